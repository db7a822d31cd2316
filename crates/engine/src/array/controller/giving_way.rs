//! Sync tasks give way to doubt: until a range that a failed write left half-written is resynced, a block of it that
//! is lost besides stays lost. A rebuild or a check may take hours, and waits for ever at `sync_max`.

use std::ops::Range;
use std::time::Duration;

use crate::ranges::Ranges;
use crate::status::SyncEnd;
use crate::time::Time;

use super::super::sync::{FoundSoFar, SyncKind, SyncTask};
use super::Controller;

/// How long a task goes on before it gives way, where the one before it did: a write that fails over and over
/// keeps none from its end.
const STAYS_FOR: Duration = Duration::from_secs(30);

/// What is known of tasks that give way.
#[derive(Default)]
pub(super) struct GivingWay {
    /// The task that is under way was told to end for it.
    is_told: bool,
    /// A task has given way, and what it was doing has not begun again.
    has_given_way: bool,
    /// No task gives way before.
    stays_until: Option<Time>,
    /// Doubt for which there was no room once. No task gives way to it again before something changes.
    had_no_room: Ranges,
    /// The check or repair that goes on afterwards.
    pub(super) put_off: Option<PutOff>,
}

/// A check or repair that goes on later.
pub(super) struct PutOff {
    /// How far all was done.
    pub(super) at: u64,
    /// What was not, and what was found in all the rest.
    pub(super) left: Ranges,
    pub(super) total_sectors: u64,
    pub(super) found: FoundSoFar,
}

impl GivingWay {
    /// Something changed: what had no room may have some.
    pub(super) fn something_changed(&mut self) {
        self.had_no_room = Ranges::default();
    }

    /// These are tried again, for time has passed.
    pub(super) fn had_no_room(&mut self, ranges: Ranges) {
        ranges.iter().for_each(|range| self.had_no_room.insert(range));
    }

    /// Nothing is in doubt there any more.
    pub(super) fn is_right(&mut self, range: &Range<u64>) {
        self.had_no_room.remove(range);
    }

    /// A user has the task end.
    pub(super) fn forget_what_was_put_off(&mut self) {
        (self.is_told, self.put_off) = (false, None);
    }

    /// Whether a task has given way and waits.
    pub(super) fn has_given_way(&self) -> bool {
        self.has_given_way
    }

    /// A task begins.
    pub(super) fn begins(&mut self, resolves_doubt: bool, now: Time) {
        if self.has_given_way {
            self.stays_until = Some(now + STAYS_FOR);
            self.has_given_way = resolves_doubt;
        }
    }
}

impl Controller {
    /// Ends the task that is under way where doubt has come since which a resync may end now.
    pub(super) fn give_way_to_doubt(&mut self) {
        let now = self.lane.backend().now();
        let stays = self.sync.giving_way.stays_until.is_some_and(|until| now < until);
        if !stays && self.has_urgent_doubt() {
            self.sync.giving_way.is_told = true;
            self.end_sync();
        }
    }

    /// When to look again.
    pub(super) fn gives_way_at(&self) -> Option<Time> {
        let until = self.sync.giving_way.stays_until?;
        (self.lane.backend().now() < until && self.has_urgent_doubt()).then_some(until)
    }

    /// Whether there is doubt that is to be resynced now, and that the task under way is not about to end.
    fn has_urgent_doubt(&self) -> bool {
        let Some(run) = &self.sync.task else { return false };
        let ends = run.task.is_told_to_end() || self.sync.why_idle.keeps_all();
        if self.doubted.is_empty() || ends {
            return false;
        }
        // Behind `sync_max` a resync would wait too.
        let todo = self.to_resync(self.array.sync_span.max());
        let Some(mut todo) = todo.filter(|todo| self.resolves_doubt(todo)) else {
            return false;
        };
        self.sync.giving_way.had_no_room.iter().for_each(|range| todo.remove(&range));
        // A resync does what was there when it began.
        let resyncs = *run.task.kind() == SyncKind::Resync;
        todo.iter().any(|range| !resyncs || run.left.overlaps(&range))
    }

    /// Takes note that a task has ended, and has a check or repair that gave way go on where it was.
    pub(super) fn gave_way(&mut self, task: &SyncTask, ended: SyncEnd, total_sectors: u64) {
        let is_told = std::mem::take(&mut self.sync.giving_way.is_told);
        if !is_told || ended != SyncEnd::Interrupted {
            return;
        }
        self.sync.giving_way.has_given_way = true;
        let is_asked_for = matches!(task.kind(), SyncKind::Check | SyncKind::Repair(_));
        if is_asked_for && !self.read_only && self.stop.is_none() {
            self.sync.requested = Some(task.kind().clone());
            let (at, left, found) = (task.done(), task.left(), task.found());
            self.sync.giving_way.put_off = Some(PutOff { at, left, total_sectors, found });
        }
    }
}
