//! One flush of a device at a time, shared by all lanes and fronts.
//!
//! A device tells a flush error once, to one flush. Another one that was under way may go well although the data
//! are gone. So a request that comes while a flush is under way waits for the next one. It fails if either fails.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mdspace_engine::request::RequestError;

use crate::wait::Turns;

/// The flushes of one device. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Flushes(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    turns: Turns,
    state: Mutex<State>,
}

/// Flushes, counted.
#[derive(Debug, Default)]
struct State {
    begun: u64,
    ended: u64,
    /// The last one that failed, and how.
    failed: Option<(u64, RequestError)>,
}

impl State {
    fn end(&mut self, result: Result<(), RequestError>) {
        self.ended = self.begun;
        if let Err(error) = result {
            self.failed = Some((self.ended, error));
        }
    }
}

impl Flushes {
    /// Makes durable what has ended by now. `send` does it, unless another one does that comes first.
    pub(crate) async fn flush<F>(&self, send: impl FnOnce() -> F) -> Result<(), RequestError>
    where
        F: Future<Output = Result<(), RequestError>>,
    {
        let (under_way, wanted) = {
            let state = self.state();
            (state.ended + 1, state.begun + 1)
        };
        let _turn = self.0.turns.turn().await;
        {
            let mut state = self.state();
            if state.ended < state.begun {
                // The lane that sent it has ended: its answer is known to nobody.
                state.end(Err(RequestError::Lost));
            }
            match state.failed {
                Some((number, error)) if number >= under_way => return Err(error),
                _ if state.ended >= wanted => return Ok(()),
                _ => state.begun += 1,
            }
        }
        let result = send().await;
        self.state().end(result);
        result
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
