//! What a flush of the device may rest on, where a path has a cache of its own: that of its server, which a
//! flush over another path does not reach, and which is lost with the server.
//!
//! A path *owes* a flush while it has answered writes that no good flush of it covers, and, where it can be flushed,
//! before its first: an earlier process may have left writes in its cache. Lanes count the writes
//! that each path has answered. A flush goes over every path that owes one, and covers what was answered
//! before it was sent. A connection that is lost while it owes a flush makes the device's next flush fail,
//! once, as a disk does that has lost its cache.

use crate::array::rules::{Rule, keep};
use crate::backend::MemberId;

use super::Paths;
use super::owner::Health;

/// What the paths owe.
#[derive(Debug)]
pub(super) struct Owed {
    /// Writes of each path that a good flush covers, or whose loss a flush tells. None before its first: an earlier
    /// process may have left writes in its cache.
    covered: Vec<Option<u64>>,
    /// Losses of connections that owed a flush.
    losses: u64,
    /// Losses that a failed flush has told.
    told: u64,
}

impl Owed {
    pub(super) fn new(paths: usize) -> Self {
        Self { covered: vec![None; paths], losses: 0, told: 0 }
    }

    /// Notes the loss of a path's connection that had answered so many writes.
    fn lose(&mut self, path: usize, answered: u64) {
        let covered = &mut self.covered[path];
        if covered.unwrap_or(0) != answered {
            *covered = Some(answered);
            self.losses += 1;
        }
    }

    /// Whether a flush has a loss to tell. It is told once.
    fn tell(&mut self) -> bool {
        std::mem::replace(&mut self.told, self.losses) != self.losses
    }
}

/// A flush of the device under way.
pub(super) struct DeviceFlush {
    pub(super) parts: Vec<PathFlush>,
    /// Losses before it began.
    losses: u64,
}

/// A flush over one path that owes it.
pub(super) struct PathFlush {
    pub(super) path: usize,
    pub(super) member: MemberId,
    pub(super) remote: bool,
    /// Writes that the path had answered when the flush was sent.
    answered: u64,
}

impl Paths {
    /// What goes over which path. `None`: the flush fails, for a cache was lost.
    pub(super) fn begin_flush(&self) -> Option<DeviceFlush> {
        let mut owner = self.owner.lock();
        let mut parts = Vec::new();
        for path in 0..self.group_of.len() {
            let answered = self.answered_over(path);
            let (covered, own) = (owner.owed.covered[path], &owner.paths[path]);
            let in_use = matches!(own.health, Health::Joining | Health::Active);
            // Where it cannot be flushed now, nothing says that there is something to lose.
            let is_left = covered.is_none() && in_use;
            if answered == covered.unwrap_or(0) && !is_left {
                continue;
            }
            match own.member.as_ref().filter(|_| !own.lost) {
                Some(&(member, _)) => {
                    parts.push(PathFlush { path, member, remote: own.remote, answered });
                    if !keep(Rule::FlushesGoOverAllPaths) {
                        break;
                    }
                }
                None => owner.owed.lose(path, answered),
            }
        }
        let losses = owner.owed.losses;
        let is_told = owner.owed.tell() && keep(Rule::LostCachesAreTold);
        (!is_told).then_some(DeviceFlush { parts, losses })
    }

    /// A path's flush went well.
    pub(super) fn flushed(&self, part: &PathFlush) {
        let mut owner = self.owner.lock();
        let covered = &mut owner.owed.covered[part.path];
        *covered = Some(part.answered).max(*covered);
    }

    /// A path's flush did not end well, which the flush of the device tells. What the path still has in its
    /// cache it still owes; what went with its connection is told with this flush.
    pub(super) fn not_flushed(&self, part: &PathFlush) {
        if self.owner.lock().paths[part.path].lost {
            self.flushed(part);
        }
    }

    /// Ends a flush. Whether no cache was lost meanwhile.
    pub(super) fn end_flush(&self, flush: &DeviceFlush) -> bool {
        let mut owner = self.owner.lock();
        let kept_all = owner.owed.losses == flush.losses;
        if !kept_all {
            owner.owed.tell();
        }
        kept_all || !keep(Rule::LostCachesAreTold)
    }

    /// A path gets another connection: what it owes over the old one is lost.
    pub(super) fn lose_connection(&self, owed: &mut Owed, path: usize) {
        if self.has_own_caches {
            owed.lose(path, self.answered_over(path));
        }
    }

    /// A write was answered over a connection that may have been replaced meanwhile.
    pub(super) fn answered_late(&self, path: usize, member: MemberId) {
        let mut owner = self.owner.lock();
        if owner.paths[path].member.as_ref().is_none_or(|(id, _)| *id != member) {
            owner.owed.losses += 1;
        }
    }

    /// Writes that a path has answered to all lanes.
    fn answered_over(&self, path: usize) -> u64 {
        self.counters.lock().iter().map(|lane| lane.paths[path].written.get()).sum()
    }
}
