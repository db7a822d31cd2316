//! Fronts that are being closed, and how long each may take.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::LEAVING;

/// How long the kernel may take to write what it holds back of a device that is taken away by force: as long as some of
/// it is done, but not for ever.
const WRITES_WITHIN: Duration = Duration::from_secs(60);
const STANDS_STILL: Duration = Duration::from_secs(5);

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
    /// Another order by force came.
    insisted_at: Option<Instant>,
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

    /// From now on each wait of a closing takes a moment at most; that for what the kernel holds back, a moment after
    /// nothing of it is written any more, and from the second such order on as any other.
    pub(super) fn hurry(&self) {
        let mut state = self.state();
        match state.hurried_at {
            None => state.hurried_at = Some(Instant::now()),
            Some(_) => drop(state.insisted_at.get_or_insert_with(Instant::now)),
        }
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
        had(self.0.state().hurried_at, begin, LEAVING)
    }

    /// The same for a wait for the kernel, which wrote something at `wrote` for the last time.
    pub(super) fn is_late_to_write(&self, begin: Instant, wrote: Instant) -> bool {
        let state = self.0.state();
        had(state.insisted_at, begin, LEAVING)
            || had(state.hurried_at, begin, WRITES_WITHIN)
            || had(state.hurried_at, wrote, STANDS_STILL)
    }
}

/// Whether so much time has gone since both an order and the beginning of what it hurries.
fn had(order: Option<Instant>, begin: Instant, patience: Duration) -> bool {
    order.is_some_and(|order| order.max(begin).elapsed() >= patience)
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.state().under_way -= 1;
        self.0.ended.notify_all();
    }
}
