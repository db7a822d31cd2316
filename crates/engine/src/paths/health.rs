//! How a path is: what takes it out of use, and what brings it back.

use crate::array::rules::{Rule, keep};
use crate::backend::{IoError, IoErrorKind, MemberId, MemberInfo};
use crate::sync::atomic::{Ordering, fence};
use crate::time::Time;

use super::Paths;
use super::owner::{Health, Owner, Standing};

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
            own.is_anew = true;
            own.standing = Standing::Unproved;
            own.awaits_proof = false;
        }));
        own.reopening = false;
        drop(locked);
        self.changed.notify();
        true
    }

    /// The name of a path leads to another device of this host, or to none: what it had is of no more use. True: it may
    /// be closed, so that the system can give its name to what comes next. False: the path serves over it, or something
    /// that went over it may not be over.
    #[must_use]
    pub fn let_go(&self, path: usize, member: MemberId) -> bool {
        let mut locked = self.owner.lock();
        let owner = &mut *locked;
        let own = &owner.paths[path];
        let is_over = !own.serves_or_joins() && own.is_over(member);
        if !is_over || self.is_closed() || owner.late.awaits(path) || self.in_flight_over(path) > 0
        {
            return false;
        }
        self.lose_connection(owner, path);
        let own = &mut owner.paths[path];
        own.member = None;
        own.lost = true;
        own.was_unplugged |= own.standing == Standing::Joined;
        own.standing = Standing::Unproved;
        owner.unplugs += 1;
        true
    }

    /// Requests of all lanes that a path has.
    fn in_flight_over(&self, path: usize) -> u64 {
        let count = self.counters.lock().iter().map(|lane| lane.paths[path].in_flight.get()).sum();
        // What lanes have counted of those that ended is seen with it.
        fence(Ordering::Acquire);
        count
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
        own.withdraw();
        own.awaits_proof = false;
        if own.health == Health::Active || own.health == Health::Joining {
            own.health = Health::Failed;
            own.failures += 1;
            own.reason = why.into();
            self.tell(owner, "PathFailed", Some(path), why.into());
            self.publish(owner, now);
        }
    }

    /// Takes a path into use over a connection that was proved, and has had its first flush. Not if it was refused
    /// meanwhile, or has another one.
    pub(super) fn join(&self, path: usize, proved: MemberId, now: Time) {
        let mut owner = self.owner.lock();
        let own = &owner.paths[path];
        if own.standing == Standing::Proved && own.is_over(proved) {
            self.join_in(&mut owner, path, now);
        }
    }

    /// Takes a path into use that is proved, if nothing that was sent over it is under way.
    pub(super) fn join_in(&self, owner: &mut Owner, path: usize, now: Time) -> bool {
        let own = &owner.paths[path];
        // A fence ends the connection that was proved.
        let is_fenced = own.fencing.is_some() && keep(Rule::FencesProveTheirTime);
        let ends = own.lost || is_fenced;
        let may = !ends && own.health != Health::FailedByWord && !owner.late.awaits(path);
        match may {
            true => {
                self.note_absence(owner, path, now);
                owner.note_blank_over(path, true);
                self.reinstate_in(owner, path, now);
            }
            false => self.fail_in(owner, path, "what was sent over it is not over yet", now),
        }
        may
    }

    /// Notes that the device, or the host of its servers, may have been without power before a path is taken into use again,
    /// whichever of them was unplugged or lost. One that another path serves was not: this one has just been compared with
    /// that.
    fn note_absence(&self, owner: &mut Owner, path: usize, now: Time) {
        let mut others = owner.paths.iter().enumerate().filter(|(other, _)| *other != path);
        let is_served = others.any(|(_, other)| other.is_peer());
        let was_away = owner.forget_unplugs() && !is_served;
        if !is_served {
            // Of one that has failed otherwise, or by word, the connection may be as lost, and it is not known yet.
            let is_anew = owner.paths[path].is_anew;
            let lost = |other: &usize| owner.paths[*other].lost || is_anew && *other != path;
            let lost: Vec<usize> = (0..owner.paths.len()).filter(lost).collect();
            lost.into_iter().for_each(|other| self.lose_connection(owner, other));
        }
        // Paths with caches of their own owe what they have not flushed.
        if was_away && self.loses_when_away {
            // First: what a lane counts as answered from now on without a look at that is counted here.
            self.publish(owner, now);
            owner.back_since = self.generation.load(Ordering::Acquire);
            self.lose_what_is_not_flushed();
        }
    }

    fn reinstate_in(&self, owner: &mut Owner, path: usize, now: Time) {
        let own = &mut owner.paths[path];
        let joined = own.health == Health::Joining;
        own.is_anew = false;
        own.health = Health::Active;
        own.standing = Standing::Joined;
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

    /// A path leads to another device.
    pub(super) fn refuse_in(&self, owner: &mut Owner, path: usize, why: String, now: Time) {
        self.flush_anew(owner, path);
        self.take_back_error(owner, path);
        let own = &mut owner.paths[path];
        // What leads elsewhere today may lead here tomorrow, over a connection of its own.
        own.lost |= own.remote;
        own.standing = Standing::Unproved;
        if own.health != Health::Refused || own.reason != why {
            own.health = Health::Refused;
            own.reason.clone_from(&why);
            self.tell(owner, "PathRefused", Some(path), why);
        }
        self.publish(owner, now);
    }
}
