//! Where lanes meet to hand rounds over: a desk for each lane, a bench of idle workers for each node.

use std::collections::VecDeque;
use std::task::Waker;

use smallvec::SmallVec;

use crate::array::claims::Columns;
use crate::array::plan::Place;
use crate::lane::LaneId;
use crate::memory::SharedBytes;
use crate::request::RequestError;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering};

/// A round on its way to a worker: a plain value.
pub struct GivenRound {
    /// Where it came from and its answers leave.
    pub home: LaneId,
    /// Names it there.
    pub slot: u32,
    /// The chunk row.
    pub row: u64,
    /// What it claims of the row.
    pub columns: Columns,
    /// What it writes, in the order of arrival.
    pub pieces: SmallVec<[GivenPiece; 1]>,
}

/// A piece of a round on its way to a worker.
pub struct GivenPiece {
    /// Of which block of the row.
    pub place: Place,
    /// Where in the block.
    pub columns: Columns,
    /// Holds what to write.
    pub bytes: SharedBytes,
    /// Where that begins in `bytes`.
    pub first_byte: usize,
    /// Whether it must be durable before the answer.
    pub fua: bool,
}

/// Whether each piece of a round was written, in their order.
pub type Results = SmallVec<[Result<(), RequestError>; 1]>;

/// The end of a round: its slot at home, and what came of it.
pub type End = (u32, Results);

/// What one lane gives away and gets back. The two sides have cache lines of their own.
pub struct Desk {
    given: GivenSide,
    ended: EndedSide,
    /// The NUMA node of the lane.
    node: AtomicUsize,
    dismissal: Mutex<Dismissal>,
}

/// Of a worker's desk: whether it is to leave.
#[derive(Default)]
struct Dismissal {
    asked: bool,
    waiting: Option<Waker>,
}

/// Where lanes are that have not been attached.
const NOWHERE: usize = usize::MAX;

#[derive(Default)]
#[repr(align(128))]
struct GivenSide {
    rounds: Mutex<VecDeque<GivenRound>>,
    /// How many there are, for a look without the lock.
    count: AtomicUsize,
}

#[derive(Default)]
#[repr(align(128))]
struct EndedSide(Mutex<Ended>);

#[derive(Default)]
struct Ended {
    ends: Vec<End>,
    waiting: Option<Waker>,
}

impl Desk {
    /// The desk of a lane that is not attached yet.
    #[allow(clippy::new_without_default, reason = "it stands nowhere, which is no default")]
    pub fn new() -> Self {
        Self {
            given: GivenSide::default(),
            ended: EndedSide::default(),
            node: AtomicUsize::new(NOWHERE),
            dismissal: Mutex::default(),
        }
    }

    /// A lane of this node attaches.
    pub fn take_seat(&self, node: usize) {
        self.node.store(node, Ordering::Relaxed);
        *self.dismissal.lock() = Dismissal::default();
    }

    /// Whether its lane is on this node.
    pub fn is_on(&self, node: usize) -> bool {
        self.node.load(Ordering::Relaxed) == node
    }

    /// Lays rounds down. Then [`Node::wake`] is to be called.
    pub fn give(&self, rounds: Vec<GivenRound>) {
        let mut given = self.given.rounds.lock();
        given.extend(rounds);
        self.given.count.store(given.len(), Ordering::Relaxed);
    }

    /// Rounds that lie there, or did a moment ago.
    pub fn given_count(&self) -> usize {
        self.given.count.load(Ordering::Relaxed)
    }

    /// Takes the oldest rounds, as many as `most`.
    pub fn take(&self, most: usize) -> Vec<GivenRound> {
        let mut given = self.given.rounds.lock();
        let count = most.min(given.len());
        let taken = given.drain(..count).collect();
        self.given.count.store(given.len(), Ordering::Relaxed);
        taken
    }

    /// A worker's part of what lies there: at most `most`, and of a few only some, so that every one
    /// of `workers` gets something.
    pub fn take_part(&self, most: usize, workers: usize) -> Vec<GivenRound> {
        let fair = self.given_count().div_ceil(workers.max(1));
        self.take(most.min(fair.max(1)))
    }

    /// Lays ends down and wakes the lane at home.
    pub fn end(&self, ends: impl Iterator<Item = End>) {
        let waiting = {
            let mut ended = self.ended.0.lock();
            ended.ends.extend(ends);
            ended.waiting.take()
        };
        if let Some(waker) = waiting {
            waker.wake();
        }
    }

    /// Takes the ends. Where there are none, `waker` is woken by the next.
    pub fn ends(&self, waker: &Waker) -> Vec<End> {
        let mut ended = self.ended.0.lock();
        if ended.ends.is_empty() {
            ended.waiting = Some(waker.clone());
        }
        std::mem::take(&mut ended.ends)
    }

    /// Lets whoever waits for ends look again.
    pub fn nudge(&self) {
        self.end(std::iter::empty());
    }

    /// Asks the worker of this desk to leave.
    pub fn dismiss(&self) {
        let waiting = {
            let mut dismissal = self.dismissal.lock();
            dismissal.asked = true;
            dismissal.waiting.take()
        };
        if let Some(waker) = waiting {
            waker.wake();
        }
    }

    /// Whether the worker is to leave; if not, `waker` is woken when it is.
    pub fn is_dismissed(&self, waker: &Waker) -> bool {
        let mut dismissal = self.dismissal.lock();
        if !dismissal.asked {
            dismissal.waiting = Some(waker.clone());
        }
        dismissal.asked
    }
}

/// The workers of one NUMA node.
#[derive(Default)]
#[repr(align(128))]
pub struct Node {
    workers: AtomicUsize,
    idle: Mutex<VecDeque<(LaneId, Waker)>>,
}

impl Node {
    /// Workers that serve here. Those who read it write nothing: it changes with the settings alone.
    pub fn workers(&self) -> usize {
        self.workers.load(Ordering::Relaxed)
    }

    pub(super) fn join(&self) {
        self.workers.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn leave(&self) {
        self.workers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Says that a worker has nothing to do. It is to look at every desk once more afterwards: a round
    /// that came before was given to nobody, one that comes after wakes it.
    pub fn wait(&self, worker: LaneId, waker: &Waker) {
        let mut idle = self.idle.lock();
        match idle.iter_mut().find(|(lane, _)| *lane == worker) {
            Some((_, known)) => known.clone_from(waker),
            None => idle.push_back((worker, waker.clone())),
        }
    }

    /// Says that a worker is busy again.
    pub fn stop_waiting(&self, worker: LaneId) {
        self.idle.lock().retain(|(lane, _)| *lane != worker);
    }

    /// Wakes as many idle workers as `most`.
    pub fn wake(&self, most: usize) {
        for _ in 0..most {
            let Some((_, waker)) = self.idle.lock().pop_front() else { return };
            waker.wake();
        }
    }
}
