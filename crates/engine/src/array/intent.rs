//! Which bitmap chunks lanes may write in: the lanes' side of the write-intent bitmap.
//!
//! A chunk is *durable* when its bit is set, written and flushed on every live member; no data write
//! of it starts before. A lane remembers its durable chunks with a count of writes in flight. To
//! clear bits the controller takes them out of the durable set, publishes a view with a new intent
//! epoch, and clears those that no lane reports busy when it adopts that view.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

use crate::signal::Signal;
use crate::sync::Mutex;

use super::chunks::Chunks;
use super::rules::{Rule, keep};

/// The shared side: what is durable, what lanes want.
#[derive(Default)]
pub(crate) struct Intent {
    state: Mutex<State>,
    /// The durable set grew.
    pub(crate) grew: Signal,
}

#[derive(Default)]
struct State {
    durable: Chunks,
    wanted: Chunks,
    /// Used since the last clearing pass.
    touched: Chunks,
    /// Reported by lanes that had writes in flight when they adopted the pass's view.
    busy: Chunks,
}

impl Intent {
    /// Whether writes in `chunks` may start; if not, they are wanted from now on.
    pub(crate) fn enter(&self, chunks: &Range<u64>) -> bool {
        let state = &mut *self.state.lock();
        if state.durable.contains_all(chunks) {
            chunks.clone().for_each(|chunk| state.touched.insert(chunk));
            return true;
        }
        let missing = chunks.clone().filter(|chunk| !state.durable.contains(*chunk));
        missing.for_each(|chunk| state.wanted.insert(chunk));
        false
    }

    /// Whether all of `chunks` are durable.
    pub(crate) fn is_durable(&self, chunks: &Range<u64>) -> bool {
        self.state.lock().durable.contains_all(chunks)
    }

    /// Controller: takes what lanes want.
    pub(crate) fn take_wanted(&self) -> Chunks {
        std::mem::take(&mut self.state.lock().wanted)
    }

    /// Controller: says that these bits are on the members for good.
    pub(crate) fn set_durable(&self, chunks: &Chunks) {
        self.state.lock().durable.insert_all(chunks);
        self.grew.notify();
    }

    /// Controller: starts a clearing pass. Gives the chunks that nobody used since the last one.
    pub(crate) fn begin_clearing(&self) -> Chunks {
        let state = &mut *self.state.lock();
        let touched = std::mem::take(&mut state.touched);
        state.busy = Chunks::default();
        state.durable.split_off_others(&touched)
    }

    /// Controller: ends the pass when every lane has reported. Gives the chunks to clear.
    pub(crate) fn end_clearing(&self, mut idle: Chunks) -> Chunks {
        let mut state = self.state.lock();
        let busy = std::mem::take(&mut state.busy);
        let busy = if keep(Rule::BusyChunksStay) { busy } else { Chunks::default() };
        let to_clear = idle.split_off_others(&busy);
        state.durable.insert_all(&idle);
        to_clear
    }

    /// Controller: whether any chunk is durable.
    pub(crate) fn any(&self) -> bool {
        !self.state.lock().durable.is_empty()
    }

    fn report_busy(&self, chunks: impl Iterator<Item = u64>) {
        let mut state = self.state.lock();
        chunks.for_each(|chunk| state.busy.insert(chunk));
    }
}

/// A lane's side: the chunks it knows to be durable, and its writes in flight in each.
#[derive(Default)]
pub(crate) struct LaneIntent(RefCell<BTreeMap<u64, u32>>);

impl LaneIntent {
    /// Counts a write in `chunks` if the lane knows them all to be durable.
    pub(crate) fn begin(&self, chunks: &Range<u64>) -> bool {
        let mut hot = self.0.borrow_mut();
        for chunk in chunks.clone() {
            let Some(count) = hot.get_mut(&chunk) else {
                drop(hot);
                self.end(&(chunks.start..chunk));
                return false;
            };
            *count += 1;
        }
        true
    }

    /// Learns that `chunks` are durable.
    pub(crate) fn learn(&self, chunks: &Range<u64>) {
        let mut hot = self.0.borrow_mut();
        for chunk in chunks.clone() {
            hot.entry(chunk).or_insert(0);
        }
    }

    /// Ends a write in `chunks`.
    pub(crate) fn end(&self, chunks: &Range<u64>) {
        let mut hot = self.0.borrow_mut();
        for chunk in chunks.clone() {
            let count = hot.get_mut(&chunk).expect("a write in flight keeps its chunk hot");
            *count = count.checked_sub(1).expect("as many ends as beginnings");
        }
    }

    /// Forgets every chunk without a write in flight and reports the others.
    pub(crate) fn close_epoch(&self, shared: &Intent) {
        let mut hot = self.0.borrow_mut();
        hot.retain(|_, count| *count > 0);
        shared.report_busy(hot.keys().copied());
    }
}
