//! Writes that a busy lane gives to workers of its NUMA node.
//!
//! A *worker* is a lane without a front end: its own thread, ring and buffers. A lane with more ready
//! writes than it can serve lays whole batches of them on its *desk*, as plain values; workers of its
//! node take them, run their rounds under ordinary claims, and lay the ends on the same desk, so that
//! every reply leaves from home. What no worker has taken by the time the lane has nothing else left,
//! the lane takes back: a desk never holds a write that nobody will serve.

mod desk;
mod worker;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use crate::lane::LaneId;
use crate::memory::{Buffer, SharedBytes, Source};
use crate::request::{Queue, Request};

use super::array_lane::ArrayLane;

pub use desk::{Desk, End, GivenWrite, Node};

/// Fewer ready writes than this are not worth a worker's waking, unless they are long.
const WORTH_WRITES: usize = 4;

/// A write of so many bytes is worth it alone.
const WORTH_BYTES: usize = 64 << 10;

/// What all lanes of an array share to hand writes over.
pub(crate) struct Handover {
    /// By lane.
    desks: Box<[Desk]>,
    /// By NUMA node.
    nodes: Box<[Node]>,
}

impl Handover {
    pub(super) fn new(lanes: usize, nodes: usize) -> Self {
        Self {
            desks: (0..lanes).map(|_| Desk::new()).collect(),
            nodes: (0..nodes).map(|_| Node::default()).collect(),
        }
    }

    /// A lane attaches, on this node.
    pub(super) fn take_seat(&self, lane: LaneId, node: usize) {
        assert!(node < self.nodes.len(), "the array knows every NUMA node");
        self.desk(lane).take_seat(node);
    }

    fn desk(&self, lane: LaneId) -> &Desk {
        &self.desks[usize::from(lane.0)]
    }
}

/// A lane's own side: its ready writes, and those that it has given away.
#[derive(Default)]
pub(super) struct LaneHandover {
    pub(super) node: usize,
    ready: RefCell<VecDeque<Write>>,
    /// Whether a task serves and gives what is ready.
    sharing: Cell<bool>,
    given: RefCell<Given>,
    /// Whether a task waits for the ends of what is given.
    collecting: Cell<bool>,
    pub(super) worker: worker::WorkerSide,
}

/// A write that has arrived and has not begun.
pub(super) struct Write {
    pub(super) queue: Rc<Queue>,
    pub(super) tag: u64,
    pub(super) sector: u64,
    pub(super) from: Rc<dyn Source>,
    pub(super) fua: bool,
}

/// Writes given away, by the slots that their ends will name.
#[derive(Default)]
struct Given {
    slots: Vec<Option<(Write, Option<Arc<Buffer>>)>>,
    free: Vec<u32>,
}

impl Given {
    fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    fn add(&mut self, write: Write, copy: Option<Arc<Buffer>>) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 writes in flight")
        });
        self.slots[slot as usize] = Some((write, copy));
        slot
    }

    fn remove(&mut self, slot: u32) -> (Write, Option<Arc<Buffer>>) {
        self.free.push(slot);
        self.slots[slot as usize].take().expect("a write ends once")
    }
}

impl LaneHandover {
    pub(super) fn on_node(node: usize) -> Self {
        Self { node, ..Self::default() }
    }
}

impl ArrayLane {
    /// Whether a worker serves this lane's node.
    #[inline]
    pub(super) fn has_workers(&self) -> bool {
        self.node().workers() > 0
    }

    /// Keeps a write for workers to share in.
    pub(super) fn share(self: &Rc<Self>, write: Write) {
        self.handover.ready.borrow_mut().push_back(write);
        if !self.handover.sharing.replace(true) {
            let this = self.clone();
            self.lane.spawn(async move { this.serve_and_give().await });
        }
    }

    /// Serves what is ready, a batch at a time, and gives workers their share before each.
    async fn serve_and_give(self: Rc<Self>) {
        loop {
            let batch = self.array.settings.max_stripe_batch();
            self.give(batch);
            if self.start_all(self.take_ready(batch)) {
                self.let_rounds_go().await;
                continue;
            }
            // By then a worker that is awake has taken what it can.
            self.lane.next_turn().await;
            let back = self.take_back(batch);
            if !self.start_all(back) && self.handover.ready.borrow().is_empty() {
                break;
            }
        }
        self.handover.sharing.set(false);
    }

    /// Starts writes here; false when there are none.
    fn start_all(self: &Rc<Self>, writes: Vec<Write>) -> bool {
        let any = !writes.is_empty();
        for Write { queue, tag, sector, from, fua } in writes {
            self.start(&queue, tag, Request::Write { sector, from, fua });
        }
        any
    }

    /// Lets the writes just started be gathered, then their rounds go as far as they can.
    async fn let_rounds_go(&self) {
        self.lane.pause().await;
        self.lane.pause().await;
    }

    /// Lays the workers' share of what is ready on the desk, two batches a worker at most: while it
    /// serves one, the next lies there.
    fn give(self: &Rc<Self>, batch: usize) {
        let (node, desk) = (self.node(), self.desk());
        let workers = node.workers();
        let room = (2 * workers * batch).saturating_sub(desk.given_count());
        let mut ready = self.handover.ready.borrow_mut();
        let share = (ready.len() * workers / (workers + 1)).min(room);
        let long = ready.front().is_some_and(|write| write.from.len() >= WORTH_BYTES);
        if share == 0 || (share < WORTH_WRITES && !long) {
            return;
        }
        let writes: Vec<_> = ready.drain(..share).collect();
        drop(ready);
        let home = self.lane.id();
        let given = writes.into_iter().map(|write| {
            let (sector, fua) = (write.sector, write.fua);
            let (bytes, copy) = self.shared_bytes(&*write.from);
            let slot = self.handover.given.borrow_mut().add(write, copy);
            GivenWrite { home, slot, sector, bytes, fua }
        });
        desk.give(given);
        node.wake(if long { share } else { share.div_ceil(WORTH_WRITES) });
        if !self.handover.collecting.replace(true) {
            let this = self.clone();
            self.lane.spawn(async move { this.collect_ends().await });
        }
    }

    /// The bytes of a write for another lane: as they are, or else a copy, to be recycled here.
    fn shared_bytes(&self, from: &dyn Source) -> (SharedBytes, Option<Arc<Buffer>>) {
        if let Some(bytes) = from.shared() {
            return (bytes, None);
        }
        let mut copy = self.lane.backend().allocate(from.len());
        from.take(0, &mut copy);
        self.lane.count_copy(copy.len());
        let copy = Arc::new(copy);
        (copy.clone(), Some(copy))
    }

    fn take_ready(&self, batch: usize) -> Vec<Write> {
        let mut ready = self.handover.ready.borrow_mut();
        let count = batch.min(ready.len());
        ready.drain(..count).collect()
    }

    /// What was given and no worker has taken.
    fn take_back(&self, batch: usize) -> Vec<Write> {
        if self.desk().given_count() == 0 {
            return Vec::new();
        }
        let back = self.desk().take(batch);
        let mine: Vec<_> = back.into_iter().map(|given| self.end_given(given.slot)).collect();
        // Whoever waits for ends may have none left to wait for.
        self.desk().nudge();
        mine
    }

    fn end_given(&self, slot: u32) -> Write {
        let (write, copy) = self.handover.given.borrow_mut().remove(slot);
        self.recycle(copy.and_then(Arc::into_inner));
        write
    }

    /// Answers what workers have ended, as long as anything is given.
    async fn collect_ends(self: Rc<Self>) {
        loop {
            let ends = poll_fn(|context| {
                let ends = self.desk().ends(context.waker());
                let none_given = self.handover.given.borrow().is_empty();
                if ends.is_empty() && !none_given { Poll::Pending } else { Poll::Ready(ends) }
            })
            .await;
            if ends.is_empty() {
                break;
            }
            for (slot, result) in ends {
                let Write { queue, tag, from, .. } = self.end_given(slot);
                drop(from);
                queue.end(tag, result);
            }
        }
        self.handover.collecting.set(false);
    }

    fn node(&self) -> &Node {
        &self.array.handover.nodes[self.handover.node]
    }

    fn desk(&self) -> &Desk {
        self.array.handover.desk(self.lane.id())
    }
}
