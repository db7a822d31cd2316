//! Rounds that a busy lane gives to workers of its NUMA node.
//!
//! A *worker* is a lane without a front end: its own thread, ring and buffers. Writes are gathered to
//! rounds at home first. A lane with more ready rounds than it can serve lays whole batches of them on
//! its *desk*, as plain values; workers of its node take them, run them under ordinary claims, and lay
//! the ends on the same desk, so that every reply leaves from home, and whatever waits for a round
//! waits there. What no worker has taken by the time the lane has nothing else left, the lane takes
//! back, a part at a time: a desk never holds a round that nobody will serve.

mod desk;
mod worker;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use crate::lane::LaneId;
use crate::memory::SharedBytes;

use super::array_lane::ArrayLane;
use super::gather::Piece;
use super::round::Round;
use super::rules::{Rule, keep};

pub use desk::{Desk, End, GivenPiece, GivenRound, Node, Results};

/// Fewer ready rounds than this are not worth a worker's waking, unless they are long.
const WORTH_ROUNDS: usize = 4;

/// So many times what a lane keeps of its ready rounds a worker gets: the lane gathers and answers all of
/// them besides, and takes back what was too much.
const WORKER_SHARE: usize = 2;

/// Of what no worker has taken the lane takes one part in so many back at a time: the workers go on with
/// the rest, and need not be woken again.
const TAKEN_BACK: usize = 4;

/// A round of so many bytes is worth it alone.
const WORTH_BYTES: usize = 64 << 10;

/// What all lanes of an array share to hand rounds over.
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

/// A lane's own side: its ready rounds, and those that it has given away.
#[derive(Default)]
pub(super) struct LaneHandover {
    pub(super) node: usize,
    ready: RefCell<VecDeque<Round>>,
    /// Whether a task serves and gives what is ready.
    sharing: Cell<bool>,
    given: RefCell<Given>,
    /// Whether a task waits for the ends of what is given.
    collecting: Cell<bool>,
    pub(super) worker: worker::WorkerSide,
}

/// Rounds given away, by the slots that their ends will name.
#[derive(Default)]
struct Given {
    slots: Vec<Option<Round>>,
    free: Vec<u32>,
}

impl Given {
    fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    fn add(&mut self, round: Round) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 rounds under way")
        });
        self.slots[slot as usize] = Some(round);
        slot
    }

    fn remove(&mut self, slot: u32) -> Round {
        self.free.push(slot);
        self.slots[slot as usize].take().expect("a round ends once")
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

    /// Keeps a round for workers to share in.
    pub(super) fn share(self: &Rc<Self>, round: Round) {
        self.handover.ready.borrow_mut().push_back(round);
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
            if self.run_all(self.take_ready(batch)) {
                self.lane.pause().await;
                continue;
            }
            // By then a worker that is awake has taken what it can.
            self.lane.next_turn().await;
            let back = self.take_back(batch);
            if !self.run_all(back) && self.handover.ready.borrow().is_empty() {
                break;
            }
        }
        self.handover.sharing.set(false);
    }

    /// Runs rounds here; false when there are none.
    fn run_all(self: &Rc<Self>, rounds: Vec<Round>) -> bool {
        let any = !rounds.is_empty();
        rounds.into_iter().for_each(|round| self.run_here(round));
        any
    }

    /// Lays the workers' share of what is ready on the desk, two batches a worker at most: while it
    /// serves one, the next lies there.
    fn give(self: &Rc<Self>, batch: usize) {
        let (node, desk) = (self.node(), self.desk());
        let workers = node.workers();
        let room = (2 * workers * batch).saturating_sub(desk.given_count());
        let mut ready = self.handover.ready.borrow_mut();
        let parts = workers * WORKER_SHARE;
        let share = (ready.len() * parts / (parts + 1)).min(room);
        let long = ready.front().is_some_and(|round| round.bytes() >= WORTH_BYTES);
        if share == 0 || (share < WORTH_ROUNDS && !long) {
            return;
        }
        let rounds = ready.drain(..share).map(|round| self.to_give(round)).collect();
        drop(ready);
        desk.give(rounds);
        node.wake(if long { share } else { share.div_ceil(WORTH_ROUNDS) });
        if !self.handover.collecting.replace(true) {
            let this = self.clone();
            self.lane.spawn(async move { this.collect_ends().await });
        }
    }

    /// A round as a plain value; what it is here waits in a slot for its end.
    fn to_give(&self, round: Round) -> GivenRound {
        let pieces = round.pieces.iter().map(|piece| self.to_give_piece(piece)).collect();
        let (row, columns) = (round.row, round.columns.clone());
        let slot = self.handover.given.borrow_mut().add(round);
        GivenRound { home: self.lane.id(), slot, row, columns, pieces }
    }

    /// A piece with its bytes as they are, or else a copy.
    pub(super) fn to_give_piece(&self, piece: &Piece) -> GivenPiece {
        let (bytes, first_byte) = match piece.source.shared() {
            Some(bytes) => (bytes, piece.first_byte),
            None => {
                let bytes = piece.bytes(piece.columns.clone());
                let mut copy = self.lane.backend().allocate(bytes.len());
                self.copy(&mut copy, bytes);
                (Arc::new(copy) as SharedBytes, 0)
            }
        };
        let Piece { place, ref columns, fua, .. } = *piece;
        GivenPiece { place, columns: columns.clone(), bytes, first_byte, fua }
    }

    fn take_ready(&self, batch: usize) -> Vec<Round> {
        let mut ready = self.handover.ready.borrow_mut();
        let count = batch.min(ready.len());
        ready.drain(..count).collect()
    }

    /// Some of what was given and no worker has taken.
    fn take_back(&self, batch: usize) -> Vec<Round> {
        let given = self.desk().given_count();
        if given == 0 {
            return Vec::new();
        }
        let back = self.desk().take(batch.min(given.div_ceil(TAKEN_BACK)));
        let mine: Vec<_> = back.into_iter().map(|given| self.end_given(given.slot)).collect();
        // Whoever waits for ends may have none left to wait for.
        self.desk().nudge();
        mine
    }

    fn end_given(&self, slot: u32) -> Round {
        self.handover.given.borrow_mut().remove(slot)
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
            for (slot, results) in ends {
                self.end_round(self.end_given(slot), results);
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

impl Piece {
    /// A given piece as a lane takes it that is not its home: its answer leaves from there.
    pub(super) fn given(row: u64, given: GivenPiece) -> Self {
        let GivenPiece { place, columns, bytes, first_byte, fua } = given;
        let fua = fua && keep(Rule::GivenPiecesKeepTheirFua);
        Self { row, place, columns, source: Rc::new(bytes), first_byte, fua, ending: None }
    }
}
