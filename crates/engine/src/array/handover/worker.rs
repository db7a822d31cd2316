//! A worker: a lane that serves what other lanes of its node give away.

use std::any::Any;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use crate::array::{Array, ArrayLane};
use crate::lane::LaneId;
use crate::memory::{SharedBytes, Source};
use crate::request::{Queue, Request};

use super::desk::GivenWrite;

/// Batches that a worker has under way at most. Members that are slow, not the worker, are what such
/// an array waits for: the lanes at home go on by themselves then.
const BATCHES_MAX: usize = 4;

/// Where the ends of a worker's writes arrive, tagged with where they go.
#[derive(Default)]
pub(in crate::array) struct WorkerSide(Rc<Queue>);

impl Array {
    /// Asks the worker on `lane` to leave: it ends what it has taken, takes no more, gives its place
    /// among the lanes back, and its task ends.
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
        while let Some(writes) = self.next_given().await {
            for GivenWrite { home, slot, sector, bytes, fua } in writes {
                let from: Rc<dyn Source> = Rc::new(Lent(bytes));
                self.ends().begin();
                self.start(self.ends(), tag(home, slot), Request::Write { sector, from, fua });
            }
            self.let_rounds_go().await;
            self.bring_home();
        }
        self.node().leave();
        poll_fn(|context| {
            self.bring_home();
            self.less_under_way(1, context.waker())
        })
        .await;
        self.leave();
    }

    fn ends(&self) -> &Rc<Queue> {
        &self.handover.worker.0
    }

    /// Waits for writes to serve; `None` when it is time to leave.
    async fn next_given(&self) -> Option<Vec<GivenWrite>> {
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
            if self.less_under_way(BATCHES_MAX * batch, context.waker()).is_pending() {
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
    fn take_given(&self, batch: usize) -> Option<Vec<GivenWrite>> {
        let workers = self.node().workers();
        let mut desks = self.array.handover.desks.iter();
        desks.find_map(|desk| {
            let here = desk.given_count() > 0 && desk.is_on(self.handover.node);
            let writes = if here { desk.take_part(batch, workers) } else { Vec::new() };
            (!writes.is_empty()).then_some(writes)
        })
    }

    /// As [`take_given`](Self::take_given), but under every desk's lock: sees all that was given
    /// before this lane said that it is idle.
    fn look_again(&self, batch: usize) -> Option<Vec<GivenWrite>> {
        let mut desks = self.array.handover.desks.iter();
        desks.find_map(|desk| {
            let writes = if desk.is_on(self.handover.node) { desk.take(batch) } else { Vec::new() };
            (!writes.is_empty()).then_some(writes)
        })
    }

    /// Lays what has ended on the desks of its homes.
    fn bring_home(&self) {
        let mut ended: Vec<_> = std::iter::from_fn(|| self.ends().pop()).collect();
        ended.sort_by_key(|end| end.tag);
        for of_one in ended.chunk_by(|one, other| home(one.tag) == home(other.tag)) {
            let desk = self.array.handover.desk(home(of_one[0].tag));
            desk.end(of_one.iter().map(|end| (slot(end.tag), end.result)));
        }
    }

    /// Whether fewer than so many writes are under way. `waker` is woken by the next that ends.
    fn less_under_way(&self, than: usize, waker: &Waker) -> Poll<()> {
        self.ends().wake_next(waker);
        if self.ends().in_flight() < than { Poll::Ready(()) } else { Poll::Pending }
    }
}

fn tag(home: LaneId, slot: u32) -> u64 {
    u64::from(home.0) << 32 | u64::from(slot)
}

fn home(tag: u64) -> LaneId {
    LaneId((tag >> 32) as u16)
}

fn slot(tag: u64) -> u32 {
    tag as u32
}

/// The bytes of a given write, as memory that this lane writes from.
struct Lent(SharedBytes);

impl Source for Lent {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn stable(&self) -> Option<&[u8]> {
        Some(&self.0)
    }
    fn shared(&self) -> Option<SharedBytes> {
        Some(self.0.clone())
    }
    fn take(&self, offset: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.0[offset..offset + out.len()]);
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}
