//! A worker: a lane that serves what other lanes of its node give away.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::array::gather::Piece;
use crate::array::round::Round;
use crate::array::{Array, ArrayLane};
use crate::lane::LaneId;

use super::desk::{End, GivenRound};

/// Batches that a worker has under way at most. Members that are slow, not the worker, are what such
/// an array waits for: the lanes at home go on by themselves then.
const BATCHES_MAX: usize = 4;

/// How often a worker that is to leave looks whether members have answered what it asked of them.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A worker's rounds: how many it has taken, and which have ended and go home.
#[derive(Default)]
pub(in crate::array) struct WorkerSide {
    under_way: Cell<usize>,
    ended: RefCell<Vec<(LaneId, End)>>,
    waiting: RefCell<Option<Waker>>,
}

impl WorkerSide {
    fn begin(&self) {
        self.under_way.set(self.under_way.get() + 1);
    }

    pub(in crate::array) fn end(&self, home: LaneId, end: End) {
        self.ended.borrow_mut().push((home, end));
        if let Some(waker) = self.waiting.take() {
            waker.wake();
        }
    }

    /// What has ended since the last time.
    fn take_ended(&self) -> Vec<(LaneId, End)> {
        let ended = self.ended.take();
        self.under_way.set(self.under_way.get() - ended.len());
        ended
    }

    /// Whether fewer than so many are under way. `waker` is woken by the next that ends.
    fn less_than(&self, most: usize, waker: &Waker) -> Poll<()> {
        *self.waiting.borrow_mut() = Some(waker.clone());
        if self.under_way.get() < most { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Array {
    /// Asks the worker on `lane` to leave: it takes no more, and ends what it has taken. When members have
    /// answered all that it asked of them, or the array has ended, it gives its place among the lanes back, and
    /// its task ends.
    pub fn dismiss(&self, lane: LaneId) {
        self.handover.desk(lane).dismiss();
    }

    /// Workers that serve the lanes of a NUMA node.
    pub fn workers_on(&self, node: usize) -> usize {
        self.handover.nodes[node].workers()
    }
}

impl ArrayLane {
    /// Makes this lane a worker until [`Array::dismiss`] asks it to leave. Nothing else may be run
    /// on it.
    pub async fn work(self: Rc<Self>) {
        self.node().join();
        while let Some(rounds) = self.next_given().await {
            rounds.into_iter().for_each(|given| self.run_given(given));
            self.lane.pause().await;
            self.bring_home();
        }
        self.node().leave();
        poll_fn(|context| {
            self.bring_home();
            self.side().less_than(1, context.waker())
        })
        .await;
        self.all_answered().await;
        self.leave();
    }

    /// Waits until no member can do any more what this lane asked of it, or the array has ended. Before that the
    /// array asks every lane who may.
    async fn all_answered(&self) {
        while self.is_owed_answers() && !self.array.views.is_closed() {
            self.lane.sleep_until(self.lane.backend().now() + LOOK_EVERY).await;
        }
    }

    fn side(&self) -> &WorkerSide {
        &self.handover.worker
    }

    fn run_given(self: &Rc<Self>, given: GivenRound) {
        self.side().begin();
        let GivenRound { home, slot, row, columns, pieces } = given;
        let pieces = pieces.into_iter().map(|given| Piece::given(row, given)).collect();
        self.run_here(Round { row, columns, pieces, given: Some((home, slot)) });
    }

    /// Waits for rounds to serve; `None` when it is time to leave.
    async fn next_given(&self) -> Option<Vec<GivenRound>> {
        let mut idle = false;
        poll_fn(|context| {
            self.bring_home();
            if std::mem::take(&mut idle) {
                self.node().stop_waiting(self.lane.id());
            }
            if self.desk().is_dismissed(context.waker()) {
                return Poll::Ready(None);
            }
            let batch = self.array.settings.max_stripe_batch();
            if self.side().less_than(BATCHES_MAX * batch, context.waker()).is_pending() {
                return Poll::Pending;
            }
            let mut found = self.take_given(batch);
            if found.is_none() {
                self.node().wait(self.lane.id(), context.waker());
                found = self.look_again(batch);
                idle = found.is_none();
                if !idle {
                    self.node().stop_waiting(self.lane.id());
                }
            }
            if idle { Poll::Pending } else { Poll::Ready(found) }
        })
        .await
    }

    /// Takes a part of what lies on the first desk of the node that has something.
    fn take_given(&self, batch: usize) -> Option<Vec<GivenRound>> {
        let workers = self.node().workers();
        let mut desks = self.array.handover.desks.iter();
        desks.find_map(|desk| {
            let here = desk.given_count() > 0 && desk.is_on(self.handover.node);
            let rounds = if here { desk.take_part(batch, workers) } else { Vec::new() };
            (!rounds.is_empty()).then_some(rounds)
        })
    }

    /// As [`take_given`](Self::take_given), but under every desk's lock: sees all that was given
    /// before this lane said that it is idle.
    fn look_again(&self, batch: usize) -> Option<Vec<GivenRound>> {
        let mut desks = self.array.handover.desks.iter();
        desks.find_map(|desk| {
            let rounds = if desk.is_on(self.handover.node) { desk.take(batch) } else { Vec::new() };
            (!rounds.is_empty()).then_some(rounds)
        })
    }

    /// Lays what has ended on the desks of its homes.
    fn bring_home(&self) {
        let mut ended = self.side().take_ended();
        ended.sort_by_key(|(home, _)| *home);
        let mut ended = ended.into_iter().peekable();
        while let Some((home, first)) = ended.next() {
            let others = std::iter::from_fn(|| ended.next_if(|(other, _)| *other == home));
            let desk = self.array.handover.desk(home);
            desk.end(std::iter::once(first).chain(others.map(|(_, end)| end)));
        }
    }
}
