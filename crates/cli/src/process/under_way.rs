//! What is not to be cut off: who ends the process, or writes down how it is, waits until it is done, and lets nothing
//! more of it begin.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Things of one kind that are under way.
#[derive(Default)]
pub(super) struct UnderWay {
    state: Mutex<State>,
    one_ended: Condvar,
}

#[derive(Default)]
struct State {
    begun: usize,
    /// None begins as long as that is so.
    are_kept_out: bool,
    /// None begins any more.
    is_over: bool,
}

/// One of them, under way until the value is dropped.
pub(super) struct Begun<'a>(&'a UnderWay);

/// None is under way, and none begins, as long as the value lives.
pub(super) struct Quiet<'a>(&'a UnderWay);

impl UnderWay {
    /// None where they are kept out.
    pub(super) fn begin(&self) -> Option<Begun<'_>> {
        let mut state = self.state();
        if state.are_kept_out || state.is_over {
            return None;
        }
        state.begun += 1;
        Some(Begun(self))
    }

    /// Keeps them out, once those under way have ended. None where they have not by the end of `patience`, or others
    /// keep them out already.
    pub(super) fn keep_out(&self, patience: Duration) -> Option<Quiet<'_>> {
        let mut state = self.state();
        if state.are_kept_out {
            return None;
        }
        state.are_kept_out = true;
        let quiet = Quiet(self);
        self.wait_with(state, patience).then_some(quiet)
    }

    /// Lets none begin any more, and waits for those under way. False: they have not ended by the end of `patience`.
    pub(super) fn end(&self, patience: Duration) -> bool {
        let mut state = self.state();
        state.is_over = true;
        self.wait_with(state, patience)
    }

    fn wait_with(&self, state: MutexGuard<'_, State>, patience: Duration) -> bool {
        let are_there = |state: &mut State| state.begun > 0;
        let waited = self.one_ended.wait_timeout_while(state, patience, are_there);
        let (_state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        !waited.timed_out()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.0.state().begun -= 1;
        self.0.one_ended.notify_all();
    }
}

impl Quiet<'_> {
    /// It stays quiet to the end of the process.
    pub(super) fn stay(self) {
        std::mem::forget(self);
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        self.0.state().are_kept_out = false;
    }
}

#[cfg(test)]
mod tests;
