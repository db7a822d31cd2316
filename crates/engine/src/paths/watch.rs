//! Who looks after the paths: a task on one lane, on the lane's clock, that no request waits for.
//!
//! Each path is checked by a task of its own, so that one that hangs keeps none of the others waiting:
//! a read, with a deadline. A path joins, or comes back, only over a connection on which its identity
//! was proved, and not while writes that it has not answered may still be answered.

use std::cell::Cell;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{MemberId, MemberInfo};
use crate::lane::{Lane, LaneId, first_of};
use crate::sync::atomic::Ordering;
use crate::time::Time;

use super::owner::Health;
use super::proof::Candidate;
use super::{Paths, flag};

/// A path that failed is checked so often at least.
const RETRY: Duration = Duration::from_secs(1);
/// How long a new connection may take to come.
const REOPEN: Duration = Duration::from_secs(20);
/// Time between two looks for answers to late writes.
const SETTLE_EVERY: Duration = Duration::from_millis(10);

async fn watch(paths: Arc<Paths>, weak: Weak<Lane>) {
    let Some(lane) = weak.upgrade() else { return };
    let mut due: Vec<Time> = vec![lane.backend().now(); paths.group_of.len()];
    let mut stood_still = lane.backend().stood_still();
    while !paths.is_closed() {
        let now = lane.backend().now();
        let before = std::mem::replace(&mut stood_still, lane.backend().stood_still());
        paths.count_no(stood_still.saturating_sub(before), now);
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

/// How a path is about its first flush.
enum FirstFlush {
    /// It needs none.
    NotWanted,
    /// It has had it.
    Ended,
    /// It has not come to that.
    Missed,
}

impl Check {
    async fn run(&self, paths: &Arc<Paths>, lane: &Rc<Lane>) {
        let member = self.member.as_ref().filter(|_| !self.lost);
        // What it was asked before and does not answer would only grow.
        let may_hang = !matches!(self.health, Health::Active | Health::Joining);
        let hangs = |member| may_hang && lane.backend().in_flight(member) > 0;
        let member = member.filter(|(member, _)| !self.awaited && !hangs(*member));
        let candidate = member.map(|(member, info)| self.candidate(*member, info));
        // Before a fence ends the connection.
        let first = match candidate {
            Some(candidate) => self.flush_first(paths, lane, candidate).await,
            None => FirstFlush::Missed,
        };
        // Once more, where one has failed or did not cover all.
        paths.begin_fence(self.path, lane.backend().now());
        match candidate {
            _ if self.lost => self.connect(paths, lane).await,
            Some(candidate) => {
                self.admit(paths, lane, candidate, first).await;
                paths.follow_name(self.path);
            }
            None => {}
        }
    }

    /// Gets a new connection, and proves that it leads to the device.
    async fn connect(&self, paths: &Arc<Paths>, lane: &Rc<Lane>) {
        if paths.begin_to_reopen(self.path) {
            paths.host.reopen(paths, self.path);
        }
        let answered = paths.changed.until(|| {
            (paths.is_closed() || paths.owner.lock().paths[self.path].reopened.is_some())
                .then_some(())
        });
        first_of(answered, lane.sleep_until(lane.backend().now() + REOPEN)).await;
        if let Some((member, info)) = paths.take_reopened(self.path) {
            let candidate = self.candidate(member, &info);
            // Before it takes requests: else its loss fails a flush, though no write went over it.
            let first = self.flush_first(paths, lane, candidate).await;
            self.admit(paths, lane, candidate, first).await;
        }
    }

    fn candidate<'a>(&self, member: MemberId, info: &'a MemberInfo) -> Candidate<'a> {
        Candidate { path: self.path, member, info }
    }

    /// Gives a path its first flush, unless it has had that, once it is proved to lead to the device: a server may
    /// tell an error once, and then it is for those who have written there.
    async fn flush_first(
        &self,
        paths: &Arc<Paths>,
        lane: &Rc<Lane>,
        candidate: Candidate<'_>,
    ) -> FirstFlush {
        if !paths.wants_first_flush(self.path) {
            return FirstFlush::NotWanted;
        }
        let is_flushed = paths.prove(lane, candidate).await
            && paths.flush_first(lane, self.path, candidate.member).await;
        if is_flushed { FirstFlush::Ended } else { FirstFlush::Missed }
    }

    /// Takes a path into use that is proved to lead to the device.
    async fn admit(
        &self,
        paths: &Arc<Paths>,
        lane: &Rc<Lane>,
        candidate: Candidate<'_>,
        first: FirstFlush,
    ) {
        match first {
            FirstFlush::NotWanted => drop(paths.prove(lane, candidate).await),
            FirstFlush::Ended => paths.join(self.path, candidate.member, lane.backend().now()),
            FirstFlush::Missed => {}
        }
    }
}

impl Paths {
    /// Looks after the paths on `lane`, unless another lane does. The lane stays for as long as the device is
    /// used.
    pub fn look_after_on(self: &Arc<Self>, lane: &Rc<Lane>) {
        if self.flags.fetch_or(flag::WATCHED, Ordering::AcqRel) & flag::WATCHED == 0 {
            self.begin_to_wait(lane.backend().now());
            let (paths, weak) = (self.clone(), Rc::downgrade(lane));
            lane.spawn(async move { watch(paths, weak).await });
        }
    }

    pub(super) fn view(&self) -> Arc<super::View> {
        self.owner.lock().view.clone()
    }

    /// Starts the clock of requests that wait for a first path.
    fn begin_to_wait(&self, now: Time) {
        let mut owner = self.owner.lock();
        owner.no_path_since = owner.no_path_since.map(|_| now);
    }

    /// A lane has stood still for so long: no path could come back meanwhile.
    fn count_no(&self, span: Duration, now: Time) {
        if !span.is_zero() {
            let mut owner = self.owner.lock();
            owner.no_path_since = owner.no_path_since.map(|since| (since + span).min(now));
        }
    }

    /// Does what time alone brings. Gives when to look again.
    pub(super) fn look(&self, now: Time) -> Time {
        let mut owner = self.owner.lock();
        let mut next = now + self.policy.polling_interval;
        let queues = self.has(flag::QUEUE_IF_NO_PATH) && !owner.gave_up;
        if let Some(since) = owner.no_path_since.filter(|_| queues) {
            let ends = since + self.wait_max();
            if ends <= now {
                owner.gave_up = true;
                let note = self.queueing(&owner);
                self.tell(&mut owner, "QueueingDisabled", None, note);
                self.publish(&mut owner, now);
            } else {
                next = next.min(ends);
            }
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

    /// Has the host look where the name of a path to a device of this host leads now, unless that serves. It may have been
    /// unplugged, and another one have come in its place.
    fn follow_name(self: &Arc<Self>, path: usize) {
        let stays = {
            let own = &self.owner.lock().paths[path];
            own.remote || own.serves_or_joins() || own.health == Health::FailedByWord
        };
        if !stays && self.begin_to_reopen(path) {
            self.host.reopen(self, path);
        }
    }

    /// Whether a new connection of a path is to be asked for: not while one is on its way.
    fn begin_to_reopen(&self, path: usize) -> bool {
        let own = &mut self.owner.lock().paths[path];
        own.reopened = None;
        !std::mem::replace(&mut own.reopening, true)
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
        let own = &mut self.owner.lock().paths[path];
        own.withdraw();
        own.checking = false;
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
