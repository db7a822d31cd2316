//! Which paths lead to the device.
//!
//! Paths may lead to different devices, or to copies of one. A path is compared with each one that serves, or that is
//! proved and about to: its *peers*. Two paths that are looked at in one moment must not both be taken because neither
//! was there when the other one was compared. So what a comparison says counts only if the peers are the same when it is
//! taken, under the owner's lock; else the path is compared again. The first one that is proved has no peers: it is the
//! device. Of several copies the newest is, as long as nothing may have been written.

use std::rc::Rc;

use crate::array::rules::{Rule, keep};
use crate::backend::{MemberId, MemberInfo, Patience};
use crate::lane::{Lane, join_all};
use crate::time::Time;

use super::Paths;
use super::identity::{Compared, Identity};
use super::owner::{Health, OwnedPath, Owner, Standing};

/// Comparisons at most that tell nothing, where the device is written to meanwhile.
const LOOKS: usize = 3;

/// A connection of a path that is to be proved.
#[derive(Clone, Copy)]
pub(super) struct Candidate<'a> {
    pub(super) path: usize,
    pub(super) member: MemberId,
    pub(super) info: &'a MemberInfo,
}

/// A path to compare another one with.
struct Peer {
    path: usize,
    member: MemberId,
    info: MemberInfo,
}

/// Those that a path is compared with.
struct Peers {
    all: Vec<Peer>,
    /// Superblocks that the device had got when they were named.
    superblocks: u64,
    /// How often paths had been unplugged by then.
    unplugs: u64,
}

impl Peers {
    /// Whether they are just `others`.
    fn are(&self, others: &Self) -> bool {
        self.all.len() == others.all.len() && self.are_among(others)
    }

    fn are_among(&self, others: &Self) -> bool {
        let is_there = |peer: &Peer| {
            others.all.iter().any(|other| (other.path, other.member) == (peer.path, peer.member))
        };
        self.all.iter().all(is_there)
    }
}

/// What was read over a path, and how it compares with each peer.
struct Seen {
    own: Identity,
    compared: Vec<OnePeer>,
}

/// How a path compares with one peer.
struct OnePeer {
    path: usize,
    compared: Compared,
    /// The peer has an older copy.
    is_older: bool,
}

/// What becomes of a look at a path.
enum Ruling {
    /// It leads to the device, and joins, or gets its first flush now.
    Taken,
    /// Not now.
    Left,
    /// Others are its peers now.
    Changed,
    /// The device was written to meanwhile.
    Unclear,
}

impl Paths {
    /// Proves that a connection leads to the device. It joins with that, unless it is to get its first flush before.
    /// False: it has not come to that.
    pub(super) async fn prove(&self, lane: &Rc<Lane>, candidate: Candidate<'_>) -> bool {
        let now = || lane.backend().now();
        if !keep(Rule::PathsAreProved) {
            return self.take(&mut self.owner.lock(), candidate, now());
        }
        let (mut unclear, mut changes) = (0, 0);
        while unclear < LOOKS && changes <= self.group_of.len() {
            let peers = self.peers_of(&self.owner.lock(), candidate.path);
            let ruling = match self.read_between(lane, candidate, &peers).await {
                Ok(seen) => self.rule(candidate, &peers, seen, now()),
                Err(ruling) => ruling,
            };
            match ruling {
                Ruling::Taken => return true,
                Ruling::Left => return false,
                Ruling::Changed => changes += 1,
                Ruling::Unclear => unclear += 1,
            }
        }
        // The next check finds a quiet moment.
        if unclear == LOOKS {
            self.leave_unclear(candidate.path, candidate.member, now());
        }
        false
    }

    /// Reads a path, between its peers: the device may be written to.
    async fn read_between(
        &self,
        lane: &Rc<Lane>,
        candidate: Candidate<'_>,
        peers: &Peers,
    ) -> Result<Seen, Ruling> {
        let Candidate { path, member, info } = candidate;
        let before = self.read_all(lane, peers).await?;
        let own = Identity::read(lane, member, info, self.patience_of_proof()).await;
        let own = own.map_err(|error| {
            self.fail_with(path, member, error, lane.backend().now());
            Ruling::Left
        })?;
        let after = self.read_all(lane, peers).await?;
        let compare = |(peer, (before, after)): (&Peer, (&Identity, &Identity))| OnePeer {
            path: peer.path,
            compared: own.compare(before, after),
            is_older: after.is_older_than(&own),
        };
        let compared = peers.all.iter().zip(before.iter().zip(&after)).map(compare).collect();
        Ok(Seen { own, compared })
    }

    /// Reads all peers. A peer that fails, or does not answer in time, is no peer any more: the others go on.
    async fn read_all(&self, lane: &Rc<Lane>, peers: &Peers) -> Result<Vec<Identity>, Ruling> {
        let patience = self.patience_of_proof();
        let read = |peer: &Peer| {
            let (member, info) = (peer.member, peer.info.clone());
            async move { Identity::read(lane, member, &info, patience).await }
        };
        let read = join_all(peers.all.iter().map(read)).await;
        for (peer, read) in peers.all.iter().zip(&read) {
            if let Err(error) = read {
                self.fail_with(peer.path, peer.member, *error, lane.backend().now());
            }
        }
        read.into_iter().collect::<Result<_, _>>().map_err(|_| Ruling::Changed)
    }

    fn patience_of_proof(&self) -> Patience {
        Patience::of(self.policy.read_deadline)
    }

    /// Decides what a look at a path says, if its peers are the same still.
    fn rule(&self, candidate: Candidate<'_>, peers: &Peers, seen: Seen, now: Time) -> Ruling {
        let mut locked = self.owner.lock();
        let owner = &mut *locked;
        let Candidate { path, .. } = candidate;
        if !owner.paths[path].may_join_over(candidate.member) {
            return Ruling::Left;
        }
        let are_now = self.peers_of(owner, path);
        let is_same = seen.compared.iter().all(|one| one.compared == Compared::Same);
        if peers.are(&are_now) {
            let is_older = |one: &&OnePeer| one.is_older && one.compared != Compared::Same;
            let older: Vec<usize> =
                seen.compared.iter().filter(is_older).map(|one| one.path).collect();
            if !older.is_empty() && !owner.may_be_written {
                for path in older {
                    let why = "its superblock is older than that of another path";
                    self.refuse_in(owner, path, why.into(), now);
                }
                return Ruling::Changed;
            }
            let other = seen.compared.iter().find_map(|one| match &one.compared {
                Compared::Other(why) => Some((one.path, why)),
                _ => None,
            });
            if let Some((peer, why)) = other {
                // Of two active ones the later one of the table is the other one.
                if owner.paths[path].health != Health::Active || peer < path {
                    self.refuse_in(owner, path, why.clone(), now);
                }
                return Ruling::Left;
            }
            if !is_same {
                return Ruling::Unclear;
            }
        } else if !(is_same && self.is_read_by_all(owner, peers, &are_now, &seen.own)) {
            return Ruling::Changed;
        }
        self.accept(owner, candidate, &are_now, (seen.own, peers), now)
    }

    /// Whether those that are peers by now have read the same as a path that was compared with some of them. What was
    /// read before the first write stands still: it is compared with no further reads.
    fn is_read_by_all(&self, owner: &Owner, some: &Peers, all: &Peers, own: &Identity) -> bool {
        !owner.may_be_written && some.are_among(all) && owner.known.as_ref() == Some(own)
    }

    /// Takes a path that is the same device as its peers, if there is nothing else against it. It was read since others
    /// were named.
    fn accept(
        &self,
        owner: &mut Owner,
        candidate: Candidate<'_>,
        peers: &Peers,
        (own, named): (Identity, &Peers),
        now: Time,
    ) -> Ruling {
        let (path, superblocks) = (candidate.path, named.superblocks);
        if owner.paths[path].health == Health::Active {
            if owner.unplugs == named.unplugs {
                // It was there all the time, and serves.
                owner.forget_unplugs();
            }
            self.remember(owner, path, own, superblocks);
            return Ruling::Taken;
        }
        if peers.all.is_empty()
            && let Some(why) = contradicts_last(owner, &own)
        {
            self.refuse_in(owner, path, why, now);
            return Ruling::Left;
        }
        if let Some(why) = cannot_tell(owner, candidate, peers, &own) {
            self.leave_unproved(owner, path, why, now);
            return Ruling::Left;
        }
        if !owner.may_be_written && owner.known.as_ref().is_some_and(|known| *known != own) {
            // What was read before and has failed since may have been another copy.
            let others = (0..owner.paths.len()).filter(|other| !owner.paths[*other].is_peer());
            others.collect::<Vec<_>>().into_iter().for_each(|other| self.flush_anew(owner, other));
        }
        self.remember(owner, path, own, superblocks);
        match self.take(owner, candidate, now) {
            true => Ruling::Taken,
            false => Ruling::Left,
        }
    }

    /// Takes a connection of a path that is proved: it joins, or is a peer while it gets its first flush.
    fn take(&self, owner: &mut Owner, candidate: Candidate<'_>, now: Time) -> bool {
        let Candidate { path, member, .. } = candidate;
        if !owner.paths[path].may_join_over(member) {
            return false;
        }
        if !self.wants_first_flush_in(owner, path) {
            return self.join_in(owner, path, now);
        }
        owner.paths[path].standing = Standing::Proved;
        self.publish(owner, now);
        true
    }

    /// Those that a path is compared with. Active ones are the same device as each other: of these the first will do
    /// for one that is active itself.
    fn peers_of(&self, owner: &Owner, path: usize) -> Peers {
        let is_active = owner.paths[path].health == Health::Active;
        let counts = |(other, peer): &(usize, &OwnedPath)| {
            *other != path && peer.is_peer() && (!is_active || peer.health == Health::Active)
        };
        let peer = |(path, peer): (usize, &OwnedPath)| {
            let (member, info) = peer.member.clone()?;
            Some(Peer { path, member, info })
        };
        let peers = owner.paths.iter().enumerate().filter(counts).filter_map(peer);
        let count = if is_active { 1 } else { usize::MAX };
        Peers {
            all: peers.take(count).collect(),
            superblocks: owner.superblocks,
            unplugs: owner.unplugs,
        }
    }

    /// Notes what the device says of itself, and over which path, as long as it is blank. Not if its superblock
    /// was written since that many were: then it may have been read before.
    fn remember(&self, owner: &mut Owner, path: usize, identity: Identity, superblocks: u64) {
        if owner.superblocks != superblocks {
            return;
        }
        let is_used = owner.paths[path].health == Health::Active;
        owner.given.read(&identity);
        owner.known = Some(identity);
        owner.note_blank_over(path, is_used);
    }

    /// A path is not used before something tells where it leads.
    fn leave_unproved(&self, owner: &mut Owner, path: usize, why: &'static str, now: Time) {
        owner.owed.expect_nothing(path);
        let own = &mut owner.paths[path];
        own.awaits_proof = true;
        if std::mem::replace(&mut own.health, Health::Failed) == Health::Joining
            || own.reason != why
        {
            own.reason = why.into();
            self.tell(owner, "PathUnproved", Some(path), why.into());
            self.publish(owner, now);
        }
    }

    /// Nothing tells where a path leads that joins: no request waits for it any longer. The next check looks again.
    fn leave_unclear(&self, path: usize, member: MemberId, now: Time) {
        if self.owner.lock().paths[path].keeps_requests_waiting() {
            let why = "what it says of itself does not tell where it leads";
            self.fail(path, Some(member), why, false, now);
        }
    }
}

impl Owner {
    /// Notes over which path the device is used while it is blank, or that it is so no more.
    pub(super) fn note_blank_over(&mut self, path: usize, is_used: bool) {
        match self.known.as_ref().is_some_and(Identity::is_blank) {
            true if is_used => self.blank_over = self.blank_over.or(Some(path)),
            true => {}
            false => self.blank_over = None,
        }
    }
}

/// Why a path cannot lead to the device, though no other one does: that is what it was last, or what its user has made
/// it since.
fn contradicts_last(owner: &Owner, own: &Identity) -> Option<String> {
    let known = owner.known.as_ref()?;
    let why = own.contradicts_last(known, owner.may_be_written);
    let is_other = || {
        let is_known = owner.may_be_written && known.superblock.is_none();
        (is_known && !owner.given.explains_first_block(own))
            .then(|| "its first block is not what the device's was".to_owned())
    };
    why.filter(|_| !owner.given.explains(own)).or_else(is_other)
}

/// Why nothing tells whether a path leads to the device: it is blank, or was when it was last looked at over the path
/// that is used.
fn cannot_tell(
    owner: &Owner,
    candidate: Candidate<'_>,
    peers: &Peers,
    own: &Identity,
) -> Option<&'static str> {
    let peer = || peers.all.first().filter(|_| own.is_blank()).map(|peer| peer.path);
    let used = owner.blank_over.or_else(peer)?;
    let is_it = owner.paths[used].is_over(candidate.member);
    if used == candidate.path || is_it || owner.given.explains(own) {
        return None;
    }
    let used_is_active = owner.paths[used].health == Health::Active;
    match (own.is_blank(), used_is_active) {
        (true, _) => Some("the device is blank: nothing tells it from another of its size"),
        (false, true) => None,
        (false, false) => Some("the device was blank when its other path was lost"),
    }
}

#[cfg(test)]
mod tests;
