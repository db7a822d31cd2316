//! How a path is: what takes it out of use, and what brings it back.

use crate::array::rules::{Rule, keep};
use crate::backend::{IoError, IoErrorKind, MemberId, MemberInfo};
use crate::time::Time;

use super::Paths;
use super::owner::{Health, Owner};

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
        if opened.is_ok() {
            self.lose_connection(owner, path);
        }
        let own = &mut owner.paths[path];
        own.reopened = Some(opened.map(|member| {
            own.member = Some(member);
            own.lost = false;
            own.proved = false;
        }));
        own.reopening = false;
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
        self.fail_in(&mut owner, path, why, now);
    }

    /// The same, by what it was told instead.
    pub(super) fn fail_with(&self, path: usize, member: MemberId, error: IoError, now: Time) {
        let lost = error.kind == IoErrorKind::Gone;
        self.fail(path, Some(member), &error.to_string(), lost, now);
    }

    fn fail_in(&self, owner: &mut Owner, path: usize, why: &str, now: Time) {
        let own = &mut owner.paths[path];
        if own.health == Health::Active || own.health == Health::Joining {
            own.health = Health::Failed;
            own.failures += 1;
            own.reason = why.into();
            self.tell(owner, "PathFailed", Some(path), why.into());
            self.publish(owner, now);
        }
    }

    /// The connection of a path leads to the device. False: it has another one.
    pub(super) fn note_proved(&self, path: usize, proved: MemberId, now: Time) -> bool {
        let mut owner = self.owner.lock();
        let own = &mut owner.paths[path];
        let is_it = own.member.as_ref().is_some_and(|(member, _)| *member == proved);
        if is_it && !std::mem::replace(&mut own.proved, true) {
            self.publish(&mut owner, now);
        }
        is_it
    }

    /// Takes a path into use over the connection on which it was `proved`, if it still has that one, and
    /// nothing that was sent over it is under way. Another connection is proved by the next check.
    pub(super) fn join(&self, path: usize, proved: MemberId, now: Time) -> bool {
        let mut locked = self.owner.lock();
        let owner = &mut *locked;
        let own = &owner.paths[path];
        if own.member.as_ref().is_none_or(|(member, _)| *member != proved) {
            return false;
        }
        // A fence ends the connection that was proved.
        let is_fenced = own.fencing.is_some() && keep(Rule::FencesProveTheirTime);
        let ends = own.lost || is_fenced;
        let may = !ends && own.health != Health::FailedByWord && !owner.late.awaits(path);
        match may {
            true => self.reinstate_in(owner, path, now),
            false => self.fail_in(owner, path, "what was sent over it is not over yet", now),
        }
        may
    }

    fn reinstate_in(&self, owner: &mut Owner, path: usize, now: Time) {
        let own = &mut owner.paths[path];
        let joined = own.health == Health::Joining;
        own.health = Health::Active;
        own.proved = true;
        own.reason.clear();
        if !joined {
            let note = "it answers, and is the same device".to_owned();
            self.tell(owner, "PathReinstated", Some(path), note);
        }
        self.publish(owner, now);
    }

    /// Takes a path into use without a proof.
    #[cfg(test)]
    pub(super) fn reinstate(&self, path: usize, now: Time) {
        self.reinstate_in(&mut self.owner.lock(), path, now);
    }

    pub(super) fn refuse(&self, path: usize, why: String, now: Time) {
        self.refuse_in(&mut self.owner.lock(), path, why, now);
    }

    /// Refuses a path over which an older copy is read than over another one that joins. Of copies the newest is
    /// the device, as long as nothing was written to another one. False: it may have been.
    pub(super) fn refuse_older(&self, older: usize, newer: usize, now: Time) -> bool {
        let mut owner = self.owner.lock();
        let is_unwritten = owner.paths[newer].keeps_writes_waiting();
        if is_unwritten {
            let why = "its superblock is older than that of another path".to_owned();
            self.refuse_in(&mut owner, older, why, now);
        }
        is_unwritten
    }

    /// Nothing tells where a path leads that joins: no write waits for it any longer. The next check looks again.
    pub(super) fn leave_unclear(&self, path: usize, member: MemberId, now: Time) {
        if self.owner.lock().paths[path].keeps_writes_waiting() {
            let why = "what it says of itself does not tell where it leads";
            self.fail(path, Some(member), why, false, now);
        }
    }

    fn refuse_in(&self, owner: &mut Owner, path: usize, why: String, now: Time) {
        let own = &mut owner.paths[path];
        // What leads elsewhere today may lead here tomorrow, over a connection of its own.
        own.lost |= own.remote;
        own.proved = false;
        if own.health != Health::Refused || own.reason != why {
            own.health = Health::Refused;
            own.reason.clone_from(&why);
            self.tell(owner, "PathRefused", Some(path), why);
        }
        self.publish(owner, now);
    }
}
