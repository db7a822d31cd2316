//! Writes that were sent over a path and never answered. Until one is proved to be over, what it
//! would write may appear at any time: no other write may go where it would appear, and one that is under
//! way there already is not answered.
//!
//! Proofs are the path's own answer, a fence that succeeded, and the operator's word. That the
//! connection is closed proves nothing: a server may do what lies in its socket's buffer long after.

use std::ops::Range;
use std::sync::Arc;

use crate::array::rules::{Rule, keep};
use crate::backend::MemberId;
use crate::lane::LaneId;
use crate::time::Time;

use super::Paths;
use super::owner::Health;

/// Names one such write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LateId(u64);

/// Names one fence of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FenceId(u64);

/// A fence that is under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fence {
    id: FenceId,
    /// The newest late write when it began.
    newest: LateId,
}

/// One such write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Late {
    pub(super) id: LateId,
    pub(super) path: usize,
    /// The connection over which it went, and the lane whose connection it was. None: an earlier process
    /// sent it.
    sent: Option<(MemberId, LaneId)>,
    /// Sectors of the device.
    pub(super) range: Range<u64>,
    /// The connection is lost: no answer will come.
    pub(super) lost: bool,
}

/// All of a device.
#[derive(Debug, Default)]
pub(super) struct LateWrites {
    writes: Vec<Late>,
    last: u64,
}

impl LateWrites {
    pub(super) fn add(
        &mut self,
        path: usize,
        member: MemberId,
        lane: LaneId,
        range: Range<u64>,
        lost: bool,
    ) -> LateId {
        self.last += 1;
        let id = LateId(self.last);
        self.writes.push(Late { id, path, sent: Some((member, lane)), range, lost });
        id
    }

    /// Takes up what an earlier process has sent over a path.
    pub(super) fn recall(&mut self, path: usize, range: Range<u64>) {
        self.last += 1;
        self.writes.push(Late { id: LateId(self.last), path, sent: None, range, lost: true });
    }

    /// Whether writes that were sent over a path may still appear.
    pub(super) fn is_late(&self, path: usize) -> bool {
        self.writes.iter().any(|late| late.path == path)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Late> {
        self.writes.iter()
    }

    /// Connections of a lane whose answers may still come.
    pub(super) fn awaited(&self, lane: LaneId) -> Vec<MemberId> {
        let open = self.writes.iter().filter(|late| !late.lost).filter_map(|late| late.sent);
        let mut members: Vec<MemberId> =
            open.filter(|sent| sent.1 == lane).map(|(member, _)| member).collect();
        members.sort_unstable();
        members.dedup();
        members
    }

    /// Whether an answer may still come over a path.
    pub(super) fn awaits(&self, path: usize) -> bool {
        self.writes.iter().any(|late| late.path == path && !late.lost)
    }

    /// Everything that a lane sent over a connection was answered. True if that proves something.
    pub(super) fn answered(&mut self, member: MemberId, lane: LaneId) -> bool {
        let before = self.writes.len();
        self.writes.retain(|late| late.sent != Some((member, lane)) || late.lost);
        self.writes.len() < before
    }

    /// A lane's connection is lost.
    pub(super) fn lost(&mut self, member: MemberId, lane: LaneId) {
        let of_it = |late: &&mut Late| late.sent == Some((member, lane));
        self.writes.iter_mut().filter(of_it).for_each(|late| late.lost = true);
    }

    /// The newest of all.
    fn newest(&self) -> LateId {
        LateId(self.last)
    }

    /// Nothing of a path up to this one can be done any more. Gives how many that proves.
    fn fenced(&mut self, path: usize, newest: LateId) -> usize {
        let before = self.writes.len();
        self.writes.retain(|late| late.path != path || late.id > newest);
        before - self.writes.len()
    }
}

impl Paths {
    /// Takes up what the host kept of a path, before the first request: what an earlier process sent over
    /// it may still appear.
    pub fn recall(&self, path: usize, unproved: Vec<Range<u64>>) {
        if unproved.is_empty() {
            return;
        }
        let mut owner = self.owner.lock();
        unproved.iter().for_each(|range| owner.late.recall(path, range.clone()));
        let note = format!("{} writes of an earlier process may still appear", unproved.len());
        self.tell(&mut owner, "LateWritesRecalled", Some(path), note);
        self.publish(&mut owner, Time::ZERO);
    }

    /// The answer to [`Host::fence`](super::Host::fence): what had been sent over a path when the fence began
    /// cannot be done any more. What was found late since then waits for the next one. Its connection is not
    /// used again either. A fence that nobody waits for any more proves nothing: it may have ended a connection that
    /// was replaced meanwhile.
    pub fn fenced(&self, path: usize, fence: FenceId, done: Result<(), String>, now: Time) {
        let newest = {
            let mut owner = self.owner.lock();
            let awaited = owner.paths[path].fencing.take_if(|awaited| awaited.id == fence);
            match keep(Rule::FencesProveTheirTime) {
                true => awaited.map(|fence| fence.newest),
                false => Some(owner.late.newest()),
            }
        };
        if let Some(newest) = newest {
            self.fenced_up_to(path, newest, done, now);
        }
    }

    /// The operator's word: nothing that was sent over a path until now can be done any more.
    pub(super) fn fenced_by_word(&self, path: usize, now: Time) {
        let newest = {
            let mut owner = self.owner.lock();
            // A fence that runs has nothing left to prove.
            owner.paths[path].fencing = None;
            owner.late.newest()
        };
        self.host.fenced_by_word(path);
        self.fenced_up_to(path, newest, Ok(()), now);
    }

    fn fenced_up_to(&self, path: usize, newest: LateId, done: Result<(), String>, now: Time) {
        let mut owner = self.owner.lock();
        let own = &mut owner.paths[path];
        match done {
            Ok(()) => {
                own.lost |= own.remote;
                if own.serves_or_joins() && own.remote {
                    own.health = Health::Failed;
                    own.reason = "to be connected anew".into();
                }
                let proved = owner.late.fenced(path, newest);
                let note = format!("{proved} writes can no longer appear");
                self.tell(&mut owner, "PathFenced", Some(path), note);
            }
            Err(why) => self.tell(&mut owner, "FenceFailed", Some(path), why),
        }
        self.publish(&mut owner, now);
    }

    /// A write was sent over a path and not answered.
    pub(super) fn add_late(
        self: &Arc<Self>,
        path: usize,
        member: MemberId,
        lane: LaneId,
        range: Range<u64>,
        lost: bool,
        now: Time,
    ) -> LateId {
        let mut owner = self.owner.lock();
        let id = owner.late.add(path, member, lane, range, lost);
        self.publish(&mut owner, now);
        drop(owner);
        self.begin_fence(path, now);
        id
    }

    /// Asks for a fence of a path over which writes are late, unless one is under way. A device that is closed asks for
    /// none: it would end what the next one does over the same path.
    pub(super) fn begin_fence(self: &Arc<Self>, path: usize, now: Time) {
        if self.is_closed() {
            return;
        }
        let fence;
        {
            let mut owner = self.owner.lock();
            let (newest, late) = (owner.late.newest(), owner.late.is_late(path));
            if !late || owner.paths[path].fencing.is_some() {
                return;
            }
            owner.last_fence = FenceId(owner.last_fence.0 + 1);
            fence = owner.last_fence;
            owner.paths[path].fencing = Some(Fence { id: fence, newest });
        }
        let began = self.host.fence(self, path, fence);
        let mut owner = self.owner.lock();
        match began {
            // It takes no requests until the fence has ended, which it may have.
            true => self.publish(&mut owner, now),
            false => drop(owner.paths[path].fencing.take_if(|awaited| awaited.id == fence)),
        }
    }

    /// All that a lane sent over a connection was answered, or it is `lost`.
    pub(super) fn settle_late(&self, member: MemberId, lane: LaneId, lost: bool, now: Time) {
        let mut owner = self.owner.lock();
        if lost {
            owner.late.lost(member, lane);
        } else if owner.late.answered(member, lane) {
            let note = "late writes were answered after all".to_owned();
            self.tell(&mut owner, "LateWritesProved", None, note);
        }
        self.publish(&mut owner, now);
    }
}
