//! Sync tasks that wait for those of other arrays on the same devices, as md's do.

use std::time::Duration;

use crate::status::SyncAction;
use crate::time::Time;

use super::Controller;

/// Between two looks whether the others have ended: they are other processes.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delay {
    pub(super) action: SyncAction,
    /// When to ask again.
    pub(super) again: Time,
}

impl Controller {
    /// Whether a sync task may start now: nobody else syncs on a device of this array, or the user wants
    /// both at once. Else it is asked again after a while.
    pub(super) fn may_sync(&mut self, action: SyncAction) -> bool {
        let Some(neighbours) = &self.sync.neighbours else { return true };
        let now = self.lane.backend().now();
        let waits = self.sync.delay.filter(|delay| now < delay.again);
        self.sync.delay = match waits {
            Some(delay) => Some(Delay { action, ..delay }),
            None => {
                let live = self.members.iter().filter(|member| member.is_live());
                let names: Vec<&str> = live.map(|member| member.info.name.as_str()).collect();
                // Asked whatever the user wants: the others are to find it there.
                self.sync.keeps_neighbours_waiting = neighbours.begin(&names);
                let forced = self.array.settings.sync_force_parallel();
                let goes = self.sync.keeps_neighbours_waiting || forced;
                (!goes).then_some(Delay { action, again: now + ASK_AGAIN_AFTER })
            }
        };
        self.sync.delay.is_none()
    }

    /// Nothing runs, and nothing is about to go on.
    pub(super) fn let_neighbours_sync(&mut self) {
        if std::mem::take(&mut self.sync.keeps_neighbours_waiting)
            && let Some(neighbours) = &self.sync.neighbours
        {
            neighbours.end();
        }
    }
}
