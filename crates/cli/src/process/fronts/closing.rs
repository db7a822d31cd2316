//! Fronts that are being closed, and how long each may take.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::LEAVING;

/// The closings under way. An order by force hurries those too that began without it.
#[derive(Default)]
pub(super) struct Closings {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    under_way: usize,
    /// The array is being stopped.
    of_a_stop: bool,
    hurried_at: Option<Instant>,
}

/// A closing, until it is dropped.
pub(super) struct Closing<'a>(&'a Closings);

impl Closings {
    pub(super) fn begin(&self) -> Closing<'_> {
        self.state().under_way += 1;
        Closing(self)
    }

    /// The array is being stopped: no front opens any more.
    pub(super) fn begin_stop(&self) {
        self.state().of_a_stop = true;
    }

    pub(super) fn are_of_a_stop(&self) -> bool {
        self.state().of_a_stop
    }

    /// From now on each wait of a closing takes a moment at most.
    pub(super) fn hurry(&self) {
        self.state().hurried_at.get_or_insert_with(Instant::now);
    }

    /// Waits until none is under way.
    pub(super) fn wait(&self) {
        let waited = self.ended.wait_while(self.state(), |state| state.under_way > 0);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// A panic elsewhere leaves the numbers as usable as they were.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Closing<'_> {
    /// Whether a wait that began at `begin` has had the moment that an order by force leaves it.
    pub(super) fn is_late(&self, begin: Instant) -> bool {
        let hurried_at = self.0.state().hurried_at;
        hurried_at.is_some_and(|hurried_at| hurried_at.max(begin).elapsed() >= LEAVING)
    }
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.state().under_way -= 1;
        self.0.ended.notify_all();
    }
}
