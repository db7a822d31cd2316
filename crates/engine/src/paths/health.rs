//! How a path is: what takes it out of use, and what brings it back.

use crate::backend::{MemberId, MemberInfo};
use crate::time::Time;

use super::Paths;
use super::owner::Health;

impl Paths {
    /// The answer to [`Host::reopen`](super::Host::reopen). False: the device is closed meanwhile, and
    /// what was opened is to be closed too.
    #[must_use]
    pub fn opened(&self, path: usize, opened: Result<(MemberId, MemberInfo), String>) -> bool {
        let mut locked = self.owner.lock();
        if self.is_closed() {
            return false;
        }
        let owner = &mut *locked;
        let own = &mut owner.paths[path];
        own.reopened = Some(opened.map(|member| {
            self.lose_connection(&mut owner.owed, path);
            own.member = Some(member);
            own.lost = false;
        }));
        drop(locked);
        self.changed.notify();
        true
    }

    /// A path did not do what it was asked. `lost`: its connection is of no more use.
    pub(super) fn fail(
        &self,
        path: usize,
        member: Option<MemberId>,
        why: &str,
        lost: bool,
        now: Time,
    ) {
        let mut owner = self.owner.lock();
        let own = &mut owner.paths[path];
        let is_this = |id: MemberId| own.member.as_ref().is_none_or(|(known, _)| *known == id);
        if !member.is_none_or(is_this) {
            // News of a connection that has been replaced.
            return;
        }
        own.lost |= lost && own.remote;
        if own.health == Health::Active || own.health == Health::Joining {
            own.health = Health::Failed;
            own.failures += 1;
            own.reason = why.into();
            self.tell(&mut owner, "PathFailed", Some(path), why.into());
            self.publish(&mut owner, now);
        }
    }

    pub(super) fn reinstate(&self, path: usize, note: &str, now: Time) {
        let mut owner = self.owner.lock();
        let own = &mut owner.paths[path];
        let joined = own.health == Health::Joining;
        own.health = Health::Active;
        own.reason.clear();
        if !joined {
            self.tell(&mut owner, "PathReinstated", Some(path), note.into());
        }
        self.publish(&mut owner, now);
    }

    pub(super) fn refuse(&self, path: usize, why: String, now: Time) {
        let mut owner = self.owner.lock();
        let own = &mut owner.paths[path];
        // What leads elsewhere today may lead here tomorrow, over a connection of its own.
        own.lost |= own.remote;
        if own.health != Health::Refused || own.reason != why {
            own.health = Health::Refused;
            own.reason.clone_from(&why);
            self.tell(&mut owner, "PathRefused", Some(path), why);
        }
        self.publish(&mut owner, now);
    }
}
