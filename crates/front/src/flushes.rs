//! One flush of a device at a time, shared by all lanes and fronts.
//!
//! A device tells a flush error once, to one flush. Another one that was under way may go well although the data
//! are gone. So a request that comes while a flush is under way waits for the next one. It fails if either fails.
//!
//! A durable write (FUA) may be a write and a flush to its device: what it is told, the next flush is not. So one that
//! fails fails the next flush too, and a flush ends after the durable writes that were under way at its end.

use std::collections::BTreeSet;
use std::future::{Future, pending};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mdspace_engine::backend::{IoError, IoErrorKind};
use mdspace_engine::request::RequestError;

use crate::wait::{SharedWait, Turns};

/// The flushes of one device. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Flushes(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    turns: Turns,
    state: Mutex<State>,
    /// The flush whose turn it is, while it waits for durable writes.
    waiting: SharedWait,
}

/// Flushes and durable writes, counted.
#[derive(Debug, Default)]
struct State {
    begun: u64,
    ended: u64,
    /// The last one that failed, and how.
    failed: Option<(u64, RequestError)>,
    durable_begun: u64,
    /// Durable writes under way, by number.
    durable: BTreeSet<u64>,
    /// One of them has failed, and no flush since.
    is_lost: bool,
}

/// A durable write under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct DurableWrite {
    shared: Arc<Shared>,
    number: u64,
    /// What was written before it is as safe as without it.
    is_harmless: bool,
}

impl State {
    fn end(&mut self, result: Result<(), RequestError>) -> Result<(), RequestError> {
        self.ended = self.begun;
        let is_lost = std::mem::take(&mut self.is_lost);
        let result = if is_lost { result.and(Err(RequestError::Lost)) } else { result };
        if let Err(error) = result {
            self.failed = Some((self.ended, error));
        }
        result
    }
}

impl Shared {
    /// A panic elsewhere leaves it as usable as it was.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DurableWrite {
    /// It has ended so.
    pub(crate) fn end(mut self, result: Result<(), IoError>) {
        self.is_harmless = match result {
            Ok(()) => true,
            // It was not tried, or its own sectors are at fault. A reservation may be what its flush met.
            Err(error) if error.was_not_sent() => true,
            Err(error) => matches!(
                error.kind,
                IoErrorKind::Medium | IoErrorKind::NoSpace | IoErrorKind::Unsupported
            ),
        };
    }
}

impl Drop for DurableWrite {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.durable.remove(&self.number);
        state.is_lost |= !self.is_harmless;
        drop(state);
        self.shared.waiting.wake();
    }
}

impl Flushes {
    /// Makes durable what has ended by now. `send` does it, unless another one does that comes first.
    pub(crate) async fn flush<F>(&self, send: impl FnOnce() -> F) -> Result<(), RequestError>
    where
        F: Future<Output = Result<(), RequestError>>,
    {
        let (under_way, wanted) = {
            let state = self.0.state();
            (state.ended + 1, state.begun + 1)
        };
        let _turn = self.0.turns.turn().await;
        {
            let mut state = self.0.state();
            if state.ended < state.begun {
                // The lane that sent it has ended: its answer is known to nobody.
                let _ = state.end(Err(RequestError::Lost));
            }
            match state.failed {
                Some((number, error)) if number >= under_way => return Err(error),
                _ if state.ended >= wanted => return Ok(()),
                _ => state.begun += 1,
            }
        }
        let result = send().await;
        let begun = self.0.state().durable_begun;
        let have_ended = || self.0.state().durable.first().is_none_or(|first| *first >= begun);
        self.0.waiting.unless(have_ended, pending::<()>()).await;
        self.0.state().end(result)
    }

    /// A durable write is about to be sent.
    pub(crate) fn begin_write(&self) -> DurableWrite {
        let mut state = self.0.state();
        let number = state.durable_begun;
        state.durable_begun += 1;
        state.durable.insert(number);
        drop(state);
        DurableWrite { shared: self.0.clone(), number, is_harmless: false }
    }
}
