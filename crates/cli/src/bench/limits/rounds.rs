//! Read-modify-writes as bare member I/Os: three reads, the change into P and Q, three writes.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use mdspace_engine::backend::{IoDone, IoOp, MemberIo, Patience, ReadInto, WriteFrom};
use mdspace_engine::lane::{Lane, OpOwner};
use mdspace_engine::memory::{Buffer, Source};
use mdspace_io::{LaneIo, Payload};
use mdspace_parity::{Change, kernels};

use crate::bench::measure::{Load, Meter, Outcome, RawMember};

/// Members of a round: data, P and Q.
const PARTS: usize = 3;

/// As many rounds as the load is deep; each begins anew when it has ended.
pub(super) struct Rounds {
    meter: Meter,
    lane: Rc<Lane>,
    members: Vec<RawMember>,
    rounds: RefCell<Vec<Round>>,
    running: Cell<usize>,
    waiting: Cell<Option<Waker>>,
}

struct Round {
    stage: Stage,
    tag: u64,
    sector: u64,
    /// Member of the data; P and Q lie on the two after it.
    slot: usize,
    new: Rc<Payload>,
    /// The old block, P and Q; a buffer is away while a member I/O has it.
    blocks: [Option<Buffer>; PARTS],
    pending: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Begin,
    Read,
    Written,
}

impl Rounds {
    /// Runs a load; `members` are at least three.
    pub(super) async fn run(
        members: Vec<RawMember>,
        lane: Rc<Lane>,
        io: LaneIo,
        load: Load,
    ) -> Outcome {
        let sectors = members.iter().map(|member| member.sectors).min().unwrap_or(0);
        let round = |_| Round {
            stage: Stage::Begin,
            tag: 0,
            sector: 0,
            slot: 0,
            new: io.payload(load.block_bytes),
            blocks: std::array::from_fn(|_| Some(lane.backend().allocate(load.block_bytes))),
            pending: 0,
        };
        let rounds = Rc::new(Self {
            rounds: RefCell::new((0..load.depth).map(round).collect()),
            meter: Meter::new(&lane, &io, load, sectors),
            lane,
            members,
            running: Cell::new(load.depth),
            waiting: Cell::new(None),
        });
        (0..load.depth).for_each(|at| rounds.drive(at));
        poll_fn(|context| {
            rounds.waiting.set(Some(context.waker().clone()));
            if rounds.running.get() == 0 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        rounds.meter.outcome()
    }

    /// Takes one round as far as it goes without waiting.
    fn drive(self: &Rc<Self>, at: usize) {
        let owner: Rc<dyn OpOwner> = self.clone();
        loop {
            let (stage, tag, pending) = {
                let round = &self.rounds.borrow()[at];
                (round.stage, round.tag, round.pending)
            };
            match stage {
                _ if pending > 0 => return,
                Stage::Read => self.write(at, &owner),
                Stage::Written => {
                    self.meter.end(tag, true);
                    self.rounds.borrow_mut()[at].stage = Stage::Begin;
                }
                Stage::Begin if self.meter.is_over() => return self.end(),
                Stage::Begin => self.read(at, &owner),
            }
        }
    }

    fn end(&self) {
        self.running.set(self.running.get() - 1);
        if let Some(waker) = self.waiting.take() {
            waker.wake();
        }
    }

    fn read(&self, at: usize, owner: &Rc<dyn OpOwner>) {
        let (tag, target, payload) = self.meter.begin();
        {
            let round = &mut self.rounds.borrow_mut()[at];
            (round.tag, round.sector, round.new) = (tag, target.sector, payload.clone());
            round.slot = if round.slot + 1 < self.members.len() { round.slot + 1 } else { 0 };
            round.stage = Stage::Read;
        }
        for part in 0..PARTS {
            self.submit(at, part, owner, |sector, round| {
                let block = round.blocks[part].take().expect("no I/O has it");
                let whole = 0..block.len();
                IoOp::Read { sector, into: ReadInto::Buffer(block, whole) }
            });
        }
    }

    fn write(&self, at: usize, owner: &Rc<dyn OpOwner>) {
        {
            let round = &mut self.rounds.borrow_mut()[at];
            let [old, p, q] =
                round.blocks.each_mut().map(|block| block.as_mut().expect("it is back"));
            let new = round.new.stable().expect("nothing fills what is written from");
            let change = Change { exponent: 2, old, new };
            kernels().update(&[change], Some(p), Some(q));
            round.stage = Stage::Written;
        }
        for part in 0..PARTS {
            self.submit(at, part, owner, |sector, round| {
                let from = match part {
                    0 => WriteFrom::Source(round.new.clone(), 0..round.new.len()),
                    _ => {
                        let block = round.blocks[part].take().expect("no I/O has it");
                        let whole = 0..block.len();
                        WriteFrom::Buffer(block, whole)
                    }
                };
                IoOp::Write { sector, from, fua: false }
            });
        }
    }

    fn submit(
        &self,
        at: usize,
        part: usize,
        owner: &Rc<dyn OpOwner>,
        op: impl FnOnce(u64, &mut Round) -> IoOp,
    ) {
        let io = {
            let round = &mut self.rounds.borrow_mut()[at];
            round.pending += 1;
            let member = self.members[(round.slot + part) % self.members.len()];
            MemberIo {
                member: member.id,
                op: op(member.first_sector + round.sector, round),
                patience: Patience::FOREVER,
            }
        };
        if let Some(done) = self.lane.io_direct(io, owner, (at * PARTS + part) as u64) {
            self.take_back(at, part, done);
        }
    }

    fn take_back(&self, at: usize, part: usize, done: IoDone) {
        assert!(done.result.is_ok(), "a member of the benchmark failed");
        let round = &mut self.rounds.borrow_mut()[at];
        round.pending -= 1;
        if let Some(buffer) = done.buffer {
            round.blocks[part] = Some(buffer);
        }
    }
}

impl OpOwner for Rounds {
    fn done(self: Rc<Self>, tag: u64, done: IoDone) {
        let (at, part) = (tag as usize / PARTS, tag as usize % PARTS);
        self.take_back(at, part, done);
        self.drive(at);
    }
}
