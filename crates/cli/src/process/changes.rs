//! Orders that change what the configuration says of the array, and the restart that writes that down: what is done
//! before it comes with it, and nothing is done after.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::ServingProcess;
use crate::failure::Failure;

/// How long those that are under way have before a restart is refused.
const PATIENCE: Duration = Duration::from_secs(10);

/// The changes under way.
#[derive(Default)]
pub(super) struct Changes {
    state: Mutex<State>,
    one_ended: Condvar,
}

#[derive(Default)]
struct State {
    under_way: usize,
    /// None begins any more.
    are_kept_out: bool,
}

/// One change, under way until the value is dropped.
pub(super) struct Change<'a>(&'a Changes);

/// No change is under way, and none begins, as long as the value lives.
pub(super) struct Quiet<'a>(&'a Changes);

impl Changes {
    /// None where changes are kept out.
    fn begin(&self) -> Option<Change<'_>> {
        let mut state = self.state();
        if state.are_kept_out {
            return None;
        }
        state.under_way += 1;
        Some(Change(self))
    }

    /// Keeps changes out, once those under way have ended. None where they have not by the end of `patience`, or others
    /// keep them out already.
    fn keep_out(&self, patience: Duration) -> Option<Quiet<'_>> {
        let mut state = self.state();
        if state.are_kept_out {
            return None;
        }
        state.are_kept_out = true;
        let quiet = Quiet(self);
        let busy = |state: &mut State| state.under_way > 0;
        let waited = self.one_ended.wait_timeout_while(state, patience, busy);
        let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        drop(state);
        (!waited.timed_out()).then_some(quiet)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.0.state().under_way -= 1;
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

impl ServingProcess {
    /// Begins to change what the configuration says.
    pub(super) fn begin_change(&self) -> Result<Change<'_>, Failure> {
        self.changes.begin().ok_or_else(|| {
            let what = format!("nothing was changed on {}", self.name);
            Failure::new(what, "it is being restarted", "order it when that is done")
        })
    }

    /// Keeps changes out for a restart.
    pub(super) fn keep_changes_out(&self) -> Result<Quiet<'_>, Failure> {
        self.changes.keep_out(PATIENCE).ok_or_else(|| {
            let what = format!("cannot restart {}", self.name);
            let why = "another order is under way that changes how it is";
            Failure::new(what, why, "wait until that has ended")
        })
    }
}

#[cfg(test)]
mod tests;
