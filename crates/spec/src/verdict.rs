//! The one question at the end of every write, as a pure function. The engine has its own, and a test
//! holds it to the table that this one prints.
//!
//! It is asked of a column: one block of a mirror, or the same offset in all members of a row with two
//! data blocks and P. It asks two things. Is every block that was written held by a member that will be
//! believed after a crash? Is every member that lacks the write on record as not to be believed? A write
//! is answered if both are so. What is missing for the second is recorded, and both are asked again.

use Slot::{Bad, Gone, Healed, Kept, Out, Refused, Took, Unfilled};

pub(crate) mod table;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// Copies of one block.
    Mirror,
    /// Slots 0 and 1 are data, slot 2 is P.
    Row,
}

/// What is known of a slot when the writes to it have ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Slot {
    /// It took the write, and memory and durable records believe it.
    Took,
    /// It took the write, and its bad-block list still names the block.
    Healed,
    /// It is being filled, and no durable record says that it has this block. It may have taken the write.
    Unfilled,
    /// It is believed and lacks the write: it refused it, or was not written to though it is present.
    Refused,
    /// It lacks the write, and a durable list names the block.
    Bad,
    /// It failed, and no durable record says so.
    Gone,
    /// Empty, or out by durable record.
    Out,
    /// A data block that was not written, is believed and can be read.
    Kept,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Outcome {
    /// Answer at once.
    Answer,
    /// Keep the claim, record what is named, let it settle, then ask again.
    Record,
    /// Put the column in doubt, record who went, let both settle, then answer with an error.
    Error,
    /// More members are gone than the level bears: record nothing, answer with an error.
    Broken,
}

/// The outcome, and what is to be recorded. Slots are masks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Verdict {
    pub(crate) outcome: Outcome,
    pub(crate) list: u8,
    pub(crate) unlist: u8,
    pub(crate) out: u8,
    /// Parity alone holds a written block, so the doubt of the column must end durably first.
    pub(crate) end_doubt: bool,
    /// Every slot that stays believed is right, so the doubt may end. Else a resync ends it.
    pub(crate) may_end_doubt: bool,
}

/// What is wrongly believed where a rule is off. The engine believes none of it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Credulous {
    pub(crate) counts_members: bool,
    pub(crate) believes_listed: bool,
    pub(crate) believes_unfilled: bool,
    pub(crate) ignores_doubt: bool,
}

/// A column when all its writes have ended.
pub(crate) struct Column<'a> {
    pub(crate) level: Level,
    pub(crate) slots: &'a [Slot],
    /// Data blocks that users wrote, as a mask. A mirror has block 0 alone.
    pub(crate) written: u8,
    /// It was in doubt when the round began.
    pub(crate) in_doubt: bool,
    /// Parity that was sent is right: it was made of blocks that were read, or of trusted parity.
    pub(crate) parity_right: bool,
    pub(crate) credulous: Credulous,
}

impl Column<'_> {
    pub(crate) fn verdict(&self) -> Verdict {
        let nothing = Verdict {
            outcome: Outcome::Broken,
            list: 0,
            unlist: 0,
            out: 0,
            end_doubt: false,
            may_end_doubt: false,
        };
        let (list, out) = (self.are(Refused), self.are(Gone));
        let missing = (out | self.are(Out) | self.are(Unfilled)).count_ones() as usize;
        let borne = if self.level == Level::Mirror { self.slots.len() - 1 } else { 1 };
        if missing > borne {
            return nothing;
        }
        let users = (0..2).filter(|block| self.written & 1 << block != 0);
        let by_parity = users.filter(|&block| !self.counts(block)).collect::<Vec<_>>();
        let held = match self.level {
            Level::Mirror => (0..self.slots.len()).any(|slot| self.counts(slot)),
            Level::Row => by_parity.iter().all(|&block| self.can_be_computed(block)),
        };
        if !held && !self.credulous.counts_members {
            return Verdict { outcome: Outcome::Error, out, ..nothing };
        }
        let is_row = self.level == Level::Row;
        let unlist = if self.credulous.believes_listed { 0 } else { self.are(Healed) };
        let parity_alone = is_row && !by_parity.is_empty() && !self.credulous.ignores_doubt;
        let end_doubt = self.in_doubt && parity_alone;
        let made_right = !is_row || self.parity_right && self.counts(2);
        let complete = list | unlist | out == 0 && !end_doubt;
        let outcome = if complete { Outcome::Answer } else { Outcome::Record };
        let may_end_doubt = self.in_doubt && made_right;
        Verdict { outcome, list, unlist, out, end_doubt, may_end_doubt }
    }

    /// The slots that are so, as a mask.
    fn are(&self, what: Slot) -> u8 {
        let slots = self.slots.iter().enumerate().filter(|(_, slot)| **slot == what);
        slots.fold(0, |mask, (number, _)| mask | 1 << number)
    }

    /// Whether the slot has the write and will be believed.
    fn counts(&self, slot: usize) -> bool {
        match self.slots[slot] {
            Took | Healed => true,
            Unfilled => self.credulous.believes_unfilled,
            Refused | Bad | Gone | Out | Kept => false,
        }
    }

    fn can_be_computed(&self, block: usize) -> bool {
        let other = self.slots[1 - block] == Kept || self.counts(1 - block);
        other && self.counts(2) && (self.parity_right || self.credulous.ignores_doubt)
    }
}
