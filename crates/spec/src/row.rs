//! What a row with parity may be trusted with.
//!
//! One row of two data blocks and P (RAID5) or P and Q (RAID6). Two lanes write either block and read.
//! Members refuse writes, go, come back after a power cut, or are replaced by a spare that is filled,
//! parity too. After a cut a row that was being written is in doubt, until a resync or a write makes it
//! whole, or P and Q agree. Members are durable at once.
//!
//! A read returns a version of its block, none older than what was answered before it began, or says
//! "lost". It says so only if a fault took what was answered, and never where what is there agrees.
//!
//! Not modelled: the stripe cache, flushes, adoption of views, a log that closes the write hole.

use crate::rules::rules;
use crate::search::{Model, Steps};
use content::Content;

mod content;
mod controller;
mod reads;
mod writes;

rules! {
    ClaimCoversTheRow: "A claim covers the same offsets of all members of the row: writes of different blocks exclude each other there.",
    OnlyForward: "After its first member write a round reads and plans nothing again: it writes the bytes that it has.",
    DoubtReconstructs: "In doubt a write reads the other data and makes parity anew.",
    DoubtComputesNothing: "In doubt nothing is computed by parity that nothing confirms.",
    DoubtIsCompared: "In doubt a block that P and Q compute alike is right, and is not lost.",
    JudgedByBlocks: "A write is answered if every block of the row is held then, written or not, however many members are left.",
    RecordedBeforeAnswer: "Who went is on record before a write that passed over it is answered.",
    ComputedUnderClaim: "A read that computes holds a claim.",
    LostLooksAgain: "A read that cannot compute a block looks at its own member again before it says that the block is lost.",
    DoubtEndsWhole: "Doubt ends by a resync, by P and Q that agree, or by a write that made all parity anew with every block held; by no other write.",
    WholeWriteEndsDoubt: "A write that made the row whole does end its doubt.",
    FailedWriteLeavesDoubt: "A write that failed leaves its row in doubt before the claim goes back.",
    IntentBeforeData: "The row's intent is durable before the first member write, degraded or not.",
    UnfilledCountsForNothing: "What is being filled is not read, computes nothing and holds no block, parity too.",
    WritesReachFilling: "Writes go to a member that is being filled as well, copied or not.",
    RefusalMakesHole: "What a member that is being filled refuses is to be copied again.",
    FilledUnderClaim: "A row is filled under its claim.",
}

/// Slots of the row.
const DATA: Slots = 0b0011;
const P: usize = 2;
const Q: usize = 3;
const SLOTS: usize = 4;
const SLOT_NAMES: [&str; SLOTS] = ["D0", "D1", "P", "Q"];

const LANES: usize = 2;

/// Slots as a mask.
type Slots = u8;

fn bit(slot: usize) -> Slots {
    1 << slot
}

fn each(slots: Slots) -> impl Iterator<Item = usize> {
    (0..SLOTS).filter(move |&slot| slots & bit(slot) != 0)
}

/// How often each thing may happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Left {
    writes: u8,
    reads: u8,
    losses: u8,
    cuts: u8,
    fills: u8,
}

/// An array, and what may happen to it.
#[derive(Clone, Copy)]
pub(crate) struct Scope {
    pub(crate) name: &'static str,
    /// 1 for RAID5, 2 for RAID6.
    parities: usize,
    /// This slot is empty at the start.
    empty: Option<usize>,
    left: Left,
}

const fn scope(name: &'static str, parities: usize, left: [u8; 5]) -> Scope {
    let [writes, reads, losses, cuts, fills] = left;
    Scope { name, parities, empty: None, left: Left { writes, reads, losses, cuts, fills } }
}

const fn without_slot(slot: usize, scope: Scope) -> Scope {
    Scope { empty: Some(slot), ..scope }
}

/// What is looked at each time.
pub(crate) const SCOPES: &[Scope] = &[
    scope("RAID5, a loss", 1, [2, 2, 1, 0, 0]),
    scope("RAID5, a cut and a loss", 1, [3, 1, 1, 1, 0]),
    scope("RAID5, two losses", 1, [2, 1, 2, 1, 0]),
    without_slot(0, scope("RAID5, a data member is filled", 1, [2, 1, 1, 0, 1])),
    without_slot(P, scope("RAID5, P is filled", 1, [2, 1, 1, 0, 1])),
    without_slot(P, scope("RAID5, P is filled, a cut", 1, [2, 1, 1, 1, 1])),
    scope("RAID6, a loss and a cut", 2, [2, 1, 1, 1, 0]),
    scope("RAID6, two losses", 2, [2, 1, 2, 0, 0]),
    scope("RAID6, a cut, degraded", 2, [3, 1, 1, 1, 0]),
    without_slot(1, scope("RAID6 degraded, a cut", 2, [2, 1, 0, 1, 1])),
    without_slot(Q, scope("RAID6, Q is filled", 2, [2, 1, 1, 0, 1])),
];

/// What takes minutes.
pub(crate) const LARGE: &[Scope] = &[
    scope("RAID5, three writes, two losses", 1, [3, 1, 2, 1, 0]),
    without_slot(0, scope("RAID5, a data member is filled, a cut", 1, [3, 1, 1, 1, 1])),
    scope("RAID6, two losses and a cut", 2, [2, 1, 2, 1, 0]),
    scope("RAID6, two cuts", 2, [2, 1, 1, 2, 0]),
    without_slot(1, scope("RAID6 degraded, a loss and a cut", 2, [2, 1, 1, 1, 1])),
    without_slot(P, scope("RAID6, P is filled, a cut", 2, [2, 1, 1, 1, 1])),
    scope("RAID6, filled after a loss and a cut", 2, [2, 1, 1, 1, 1]),
];

/// One search.
pub(crate) struct Rows {
    pub(crate) without: Option<Rule>,
    pub(crate) scope: Scope,
}

impl Rows {
    fn keeps(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    fn parities(&self) -> Slots {
        if self.scope.parities == 1 { bit(P) } else { bit(P) | bit(Q) }
    }

    fn slots(&self) -> Slots {
        DATA | self.parities()
    }

    /// Slots that give nothing of the row.
    fn missing(&self, state: &State) -> Slots {
        let believed = !self.keeps(Rule::UnfilledCountsForNothing);
        state.gone() | state.listed | if believed { 0 } else { state.filling }
    }

    fn is_broken(&self, state: &State) -> bool {
        (state.gone() | state.filling).count_ones() as usize > self.scope.parities
    }

    /// The claim of a row. Without its rule each data block has one of its own.
    fn claim_of(&self, block: usize) -> usize {
        if self.keeps(Rule::ClaimCoversTheRow) { 0 } else { block }
    }

    fn is_free(&self, state: &State, block: usize) -> bool {
        state.claims[self.claim_of(block)].is_none()
    }

    /// A block by the others, of which `got` has what `has` names. Nothing where they do not suffice or,
    /// in doubt, where nothing confirms them.
    fn compute(
        &self,
        block: usize,
        has: Slots,
        got: &[Content; SLOTS],
        in_doubt: bool,
    ) -> Option<Content> {
        let trusted = !in_doubt || !self.keeps(Rule::DoubtComputesNothing);
        let parities = [P, Q].map(|slot| has & self.parities() & bit(slot) != 0);
        if has & bit(1 - block) == 0 {
            let blocks = content::by_both_parities(got[P], got[Q]);
            return (parities == [true; 2] && trusted).then_some(blocks[block]);
        }
        let by = |number: usize| {
            let computed = content::by_parity(number, got[P + number], block, got[1 - block]);
            parities[number].then_some(computed)
        };
        match (by(0), by(1)) {
            (Some(p), Some(q)) if in_doubt && self.keeps(Rule::DoubtComputesNothing) => {
                (p == q && self.keeps(Rule::DoubtIsCompared)).then_some(p)
            }
            (p, q) => p.or(q).filter(|_| trusted),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Job {
    Idle,
    /// A write that has its claim.
    Plans {
        block: u8,
        version: u8,
    },
    Writes(Round),
    /// All member writes have ended.
    Settles(Round),
    /// A read, and the oldest version that it may return.
    Reads {
        block: u8,
        floor: u8,
    },
    /// It computes: what it has read of the others so far.
    Computes {
        block: u8,
        floor: u8,
        has: Slots,
        got: [Content; SLOTS],
    },
}

/// A write whose bytes are in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Round {
    block: u8,
    version: u8,
    /// New P and Q.
    parity: [Content; 2],
    to: Slots,
    took: Slots,
    refused: Slots,
    /// Parity is made of both data blocks.
    anew: bool,
    /// Parity is right if it lands: made anew, or of parity that was trusted.
    right: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct State {
    content: [Content; SLOTS],
    /// Members that do not answer; that the array leaves out, in memory and on record; whose part of the
    /// row is listed as bad; that are being filled, in memory and on record; that have a copy of the row.
    dead: Slots,
    out: Slots,
    recorded_out: Slots,
    listed: Slots,
    filling: Slots,
    recorded_filling: Slots,
    copied: Slots,
    /// A copy that is being made without a claim, and what was read for it.
    copying: Option<(u8, Content)>,
    in_doubt: bool,
    /// The bit of the bitmap: after a cut it puts the row in doubt.
    intent: bool,
    claims: [Option<u8>; 2],
    jobs: [Job; LANES],
    answered: [u8; 2],
    /// No fault since the block was last answered.
    fresh: [bool; 2],
    next: [u8; 2],
    left: Left,
}

impl State {
    fn gone(&self) -> Slots {
        self.dead | self.out
    }

    fn end_job(&mut self, lane: usize) {
        self.release(lane);
        self.jobs[lane] = Job::Idle;
    }

    fn release(&mut self, lane: usize) {
        for claim in self.claims.iter_mut().filter(|claim| **claim == Some(lane as u8)) {
            *claim = None;
        }
    }
}

impl Model for Rows {
    type State = State;

    fn start(&self) -> State {
        let empty = self.scope.empty.map_or(0, bit);
        let mut content = [Content::ZERO; SLOTS];
        for slot in each(empty) {
            content[slot] = Content::FOREIGN;
        }
        State {
            content,
            dead: empty,
            out: empty,
            recorded_out: empty,
            listed: 0,
            filling: 0,
            recorded_filling: 0,
            copied: 0,
            copying: None,
            in_doubt: false,
            intent: false,
            claims: [None; 2],
            jobs: [Job::Idle; LANES],
            answered: [0; 2],
            fresh: [true; 2],
            next: [1; 2],
            left: self.scope.left,
        }
    }

    fn steps(&self, state: &State, steps: &mut Steps<State>) {
        for lane in 0..LANES {
            self.write_steps(state, lane, steps);
            self.read_steps(state, lane, steps);
        }
        self.controller_steps(state, steps);
        self.losses(state, steps);
        self.cuts(state, steps);
    }

    fn is_quiet(&self, state: &State) -> bool {
        state.jobs == [Job::Idle; LANES]
    }
}
