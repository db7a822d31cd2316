//! Who looks after the paths: a task on one lane, on the lane's clock, that no request waits for.
//!
//! Each path is checked by a task of its own, so that one that hangs keeps none of the others waiting:
//! a read, with a deadline. A path joins, or comes back, only over a connection on which its identity
//! was proved, and not while writes that it has not answered may still be answered.

use std::cell::Cell;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{IoErrorKind, MemberId, MemberInfo, Patience};
use crate::lane::{Lane, LaneId, first_of};
use crate::sync::atomic::Ordering;
use crate::time::Time;

use super::identity::Identity;
use super::owner::Health;
use super::{Paths, flag};

/// A path that failed is checked so often at least.
const RETRY: Duration = Duration::from_secs(1);
/// How long a new connection may take to come.
const REOPEN: Duration = Duration::from_secs(20);
/// Time between two looks for answers to late writes.
const SETTLE_EVERY: Duration = Duration::from_millis(10);
/// Reads of an identity, where the device is written to meanwhile.
const LOOKS: u32 = 3;

/// Starts to look after the paths on `lane`, unless another lane does.
pub(super) fn start(paths: &Arc<Paths>, lane: &Rc<Lane>) {
    if paths.flags.fetch_or(flag::WATCHED, Ordering::AcqRel) & flag::WATCHED == 0 {
        paths.begin_to_wait(lane.backend().now());
        let (paths, weak) = (paths.clone(), Rc::downgrade(lane));
        lane.spawn(async move { watch(paths, weak).await });
    }
}

async fn watch(paths: Arc<Paths>, weak: Weak<Lane>) {
    let Some(lane) = weak.upgrade() else { return };
    let mut due: Vec<Time> = vec![lane.backend().now(); paths.group_of.len()];
    while !paths.is_closed() {
        let now = lane.backend().now();
        let mut next = paths.look(now);
        for (path, due) in due.iter_mut().enumerate() {
            if !paths.is_active(path) {
                *due = (*due).min(now + RETRY);
            }
            let Some(check) = paths.begin_check(path, *due <= now) else {
                // Under way, or not to be checked.
                next = next.min(now + RETRY);
                continue;
            };
            let Some(check) = check else {
                next = next.min(*due);
                continue;
            };
            *due = now + check.again_in;
            next = next.min(*due);
            let (paths, lane) = (paths.clone(), lane.clone());
            lane.clone().spawn(async move {
                check.run(&paths, &lane).await;
                paths.end_check(path);
            });
        }
        let seen = paths.generation.load(Ordering::Acquire);
        let news = paths.changed.until(|| {
            let moved = paths.generation.load(Ordering::Acquire) != seen;
            (moved || paths.is_closed()).then_some(())
        });
        first_of(news, lane.sleep_until(next)).await;
    }
}

/// One check of one path.
struct Check {
    path: usize,
    member: Option<(MemberId, MemberInfo)>,
    health: Health,
    lost: bool,
    /// Writes over it may still be answered.
    awaited: bool,
    again_in: Duration,
}

impl Check {
    async fn run(&self, paths: &Arc<Paths>, lane: &Rc<Lane>) {
        // Once more, where one has failed or did not cover all.
        paths.begin_fence(self.path, lane.backend().now());
        if self.lost {
            return self.connect(paths, lane).await;
        }
        let Some((member, info)) = &self.member else { return };
        // What it was asked before and does not answer would only grow.
        let hangs = self.health != Health::Active && lane.backend().in_flight(*member) > 0;
        if hangs || self.awaited {
            return;
        }
        self.prove(paths, lane, *member, info).await;
    }

    /// Gets a new connection, and proves that it leads to the device.
    async fn connect(&self, paths: &Arc<Paths>, lane: &Rc<Lane>) {
        paths.owner.lock().paths[self.path].reopened = None;
        paths.host.reopen(paths, self.path);
        let answered = paths.changed.until(|| {
            (paths.is_closed() || paths.owner.lock().paths[self.path].reopened.is_some())
                .then_some(())
        });
        first_of(answered, lane.sleep_until(lane.backend().now() + REOPEN)).await;
        if let Some((member, info)) = paths.take_reopened(self.path) {
            self.prove(paths, lane, member, &info).await;
        }
    }

    async fn prove(
        &self,
        paths: &Arc<Paths>,
        lane: &Rc<Lane>,
        member: MemberId,
        info: &MemberInfo,
    ) {
        for look in 1..=LOOKS {
            let patience = Patience::of(paths.policy.read_deadline);
            let own = Identity::read(lane, member, info, patience).await;
            let now = lane.backend().now();
            let own = match own {
                Ok(own) => own,
                Err(error) => {
                    let lost = error.kind == IoErrorKind::Gone;
                    return paths.fail(self.path, Some(member), &error.to_string(), lost, now);
                }
            };
            if self.health == Health::Active {
                return paths.remember(own);
            }
            let (known, at_once) = self.known(paths, lane).await;
            let now = lane.backend().now();
            match known.as_ref().and_then(|known| own.contradicts(known, at_once)) {
                Some(_) if look < LOOKS && at_once => {}
                Some(why) => return paths.refuse(self.path, why, now),
                None => return self.accept(paths, own, known.is_some(), now),
            }
        }
    }

    /// What the path's identity is to be measured by: what an active path says now, else what one
    /// said last.
    async fn known(&self, paths: &Arc<Paths>, lane: &Rc<Lane>) -> (Option<Identity>, bool) {
        if let Some((member, info)) = paths.active_other_than(self.path) {
            let patience = Patience::of(paths.policy.read_deadline);
            if let Ok(known) = Identity::read(lane, member, &info, patience).await {
                return (Some(known), true);
            }
        }
        (paths.owner.lock().known.clone(), false)
    }

    fn accept(&self, paths: &Arc<Paths>, own: Identity, was_known: bool, now: Time) {
        if own.is_blank() && self.health == Health::Joining && was_known {
            let note = "the device is blank: nothing tells it from another of its size";
            paths.tell(&mut paths.owner.lock(), "PathUnproved", Some(self.path), note.into());
        }
        paths.remember(own);
        let failed_meanwhile = {
            let owner = paths.owner.lock();
            let own = &owner.paths[self.path];
            // A fence ends the connection that was proved.
            let ends = own.lost || own.fencing.is_some();
            own.health == Health::FailedByWord || ends || owner.late.awaits(self.path)
        };
        match failed_meanwhile {
            false => paths.reinstate(self.path, "it answers, and is the same device", now),
            true => {
                paths.fail(self.path, None, "what was sent over it is not over yet", false, now)
            }
        }
    }
}

impl Paths {
    pub(super) fn view(&self) -> Arc<super::View> {
        self.owner.lock().view.clone()
    }

    /// Starts the clock of requests that wait for a first path.
    fn begin_to_wait(&self, now: Time) {
        let mut owner = self.owner.lock();
        owner.no_path_since = owner.no_path_since.map(|_| now);
    }

    /// Does what time alone brings. Gives when to look again.
    pub(super) fn look(&self, now: Time) -> Time {
        let mut owner = self.owner.lock();
        let mut next = now + self.policy.polling_interval;
        if let Some(since) = owner.no_path_since.filter(|_| !owner.gave_up) {
            let ends = since + self.wait_max();
            if ends <= now && self.has(flag::QUEUE_IF_NO_PATH) {
                owner.gave_up = true;
                let note = self.queueing(&owner);
                self.tell(&mut owner, "QueueingDisabled", None, note);
                self.publish(&mut owner, now);
            }
            next = next.min(ends.max(now + Duration::from_millis(1)));
        }
        if let Some(when) = owner.failback_at {
            if when <= now {
                owner.failback_at = None;
                let enabled = |group: &usize| !owner.disabled[*group];
                let alive = |group: &usize| {
                    let mut paths = owner.paths.iter().zip(&self.group_of);
                    paths.any(|(path, of)| of == group && path.health == Health::Active)
                };
                owner.wanted = (0..self.table.groups.len()).filter(enabled).find(alive);
                self.publish(&mut owner, now);
            } else {
                next = next.min(when);
            }
        }
        next
    }

    /// What to check of a path. `None`: nothing, now or later; `Some(None)`: it is not due.
    fn begin_check(&self, path: usize, due: bool) -> Option<Option<Check>> {
        let mut owner = self.owner.lock();
        let awaited = owner.late.awaits(path);
        let own = &mut owner.paths[path];
        if own.checking || own.health == Health::FailedByWord {
            return None;
        }
        if !due && !std::mem::take(&mut own.urgent) {
            return Some(None);
        }
        own.checking = true;
        let again_in = match own.health {
            Health::Active => self.policy.polling_interval,
            _ => self.policy.polling_interval.min(RETRY),
        };
        let (member, health, lost) = (own.member.clone(), own.health, own.lost);
        Some(Some(Check { path, member, health, lost, awaited, again_in }))
    }

    fn is_active(&self, path: usize) -> bool {
        self.owner.lock().paths[path].health == Health::Active
    }

    /// Whether a path still goes over this connection.
    fn is_in_use(&self, member: MemberId) -> bool {
        let owner = self.owner.lock();
        owner.paths.iter().any(|path| path.member.as_ref().is_some_and(|(id, _)| *id == member))
    }

    /// The new connection of a path, if it has come.
    fn take_reopened(&self, path: usize) -> Option<(MemberId, MemberInfo)> {
        let mut owner = self.owner.lock();
        let own = &mut owner.paths[path];
        match own.reopened.take()? {
            Ok(()) => own.member.clone(),
            Err(why) => {
                if own.health == Health::Failed {
                    own.reason = why;
                }
                None
            }
        }
    }

    fn end_check(&self, path: usize) {
        self.owner.lock().paths[path].checking = false;
    }

    fn remember(&self, identity: Identity) {
        self.owner.lock().known = Some(identity);
    }

    fn active_other_than(&self, path: usize) -> Option<(MemberId, MemberInfo)> {
        let owner = self.owner.lock();
        let mut others = owner.paths.iter().enumerate().filter(|(other, _)| *other != path);
        let active = others.find(|(_, other)| other.health == Health::Active);
        active.and_then(|(_, other)| other.member.clone())
    }
}

/// Looks for the answers to a lane's late writes, until none can come any more.
pub(super) async fn settle(
    paths: &Arc<Paths>,
    lane_id: LaneId,
    weak: &Weak<Lane>,
    settling: &Cell<bool>,
) {
    let Some(lane) = weak.upgrade() else { return };
    loop {
        let awaited = paths.owner.lock().late.awaited(lane_id);
        if awaited.is_empty() || paths.is_closed() {
            return settling.set(false);
        }
        for member in awaited {
            // Of a connection that was closed nothing is in flight, and nothing is proved.
            let replaced = !paths.is_in_use(member);
            if replaced || lane.backend().in_flight(member) == 0 {
                let lost = replaced || lane.backend().unanswered(member) > 0;
                paths.settle_late(member, lane_id, lost, lane.backend().now());
            }
        }
        lane.sleep_until(lane.backend().now() + SETTLE_EVERY).await;
    }
}
