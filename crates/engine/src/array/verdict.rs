//! The one question at the end of every write, as a pure function.
//!
//! It is asked of one column: a block of a mirror, or the same offset in all members of a parity row.
//! Is every block that was written held by a member that will be believed after a crash, and is every
//! member that did not take it on record as not to be believed? Only then is the write answered. What
//! is missing is recorded first, and then all is asked again.

#[cfg(test)]
mod tests;

use super::plan::{Place, Places};

/// What is known of one slot when all writes to a column have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotEnd {
    /// It took the write, and is believed in memory and on record.
    Took,
    /// It took the write, but its bad-block list still names the block.
    Healed,
    /// It is being filled, and no record says yet that it holds the block. It may have taken the write.
    Unfilled,
    /// It is believed and lacks the write: it refused it, or did not get it although it is present.
    Refused,
    /// It lacks the write or was not to get it, and its list on the device names the block, so that it is
    /// not read.
    Bad,
    /// It was not to get the write, and memory alone lists the block: it is not read now, and is read as it was after
    /// a restart.
    Hidden,
    /// It failed, and no record says so yet.
    Gone,
    /// There is no member, or it is on record as out.
    Out,
    /// It was not to get the write, is believed, and can be read.
    Kept,
}

/// One column, when all writes to it have ended.
pub(super) struct Column<'a> {
    /// By place: copies of one block, or data blocks and then parities.
    pub(super) ends: &'a [SlotEnd],
    /// How many of them are data blocks of a parity row; `None` for a mirror.
    pub(super) data_count: Option<usize>,
    /// The data blocks that users wrote. A mirror has the block 0.
    pub(super) written: Places,
    /// The data blocks that nobody wrote and that were held before.
    pub(super) was_held: Places,
    /// Whether parity was in doubt when the write began.
    pub(super) in_doubt: bool,
    /// Whether the parity that was sent was computed from blocks that were read, or from parity that is
    /// not in doubt.
    pub(super) parity_right: bool,
}

/// What a write comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// It is answered at once.
    #[default]
    Answer,
    /// Something is recorded under the claim, and the verdict is asked again.
    Record,
    /// The column is put in doubt, and the write is answered with an error. No list gets longer: what
    /// no other member holds is better read from the member that refused the new bytes than lost.
    Error,
    /// More members are gone than the level bears. Nothing is recorded.
    Broken,
}

/// The verdict. What it asks to record are the slots that [refused](SlotEnd::Refused), to be listed;
/// those that [healed](SlotEnd::Healed), to be listed no more; and those that are [gone](SlotEnd::Gone).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) outcome: Outcome,
    /// The doubt of the column is to end before the answer: parity alone holds what was written.
    pub(super) end_doubt: bool,
    /// The doubt may end: every slot that stays believed is right.
    pub(super) may_end_doubt: bool,
}

impl Column<'_> {
    pub(super) fn verdict(&self) -> Verdict {
        let ends = |outcome| Verdict { outcome, end_doubt: false, may_end_doubt: false };
        if self.missing() > self.bears() {
            return ends(Outcome::Broken);
        }
        let held = |blocks: &Places| blocks.iter().all(|block| self.holds(block));
        if !held(&self.written) || !held(&self.was_held) {
            return ends(Outcome::Error);
        }
        let by_parity = |block: Place| self.data_count.is_some() && !self.took(block);
        let end_doubt = self.in_doubt && self.written.iter().any(by_parity);
        // Parity would not fit it after a restart, and nothing would say so.
        if end_doubt && self.hides_a_block() {
            return ends(Outcome::Error);
        }
        let is_news = |end| matches!(end, SlotEnd::Refused | SlotEnd::Healed | SlotEnd::Gone);
        let outcome = match end_doubt || self.ends.iter().any(|&end| is_news(end)) {
            true => Outcome::Record,
            false => Outcome::Answer,
        };
        Verdict { outcome, end_doubt, may_end_doubt: self.may_end_doubt() }
    }

    /// Slots without a member that is in sync here.
    fn missing(&self) -> usize {
        let is_out = |end| matches!(end, SlotEnd::Gone | SlotEnd::Out | SlotEnd::Unfilled);
        self.ends.iter().filter(|&&end| is_out(end)).count()
    }

    /// How many slots may be without a member that is believed.
    fn bears(&self) -> usize {
        match self.data_count {
            Some(data) => self.ends.len() - data,
            None => self.ends.len() - 1,
        }
    }

    /// Whether a slot has what was sent to it, and will be believed once its list is right.
    fn took(&self, at: Place) -> bool {
        matches!(self.ends[at], SlotEnd::Took | SlotEnd::Healed)
    }

    /// Whether a block is on a member that will be believed, or can be computed from such.
    fn holds(&self, block: Place) -> bool {
        let Some(data) = self.data_count else {
            return (0..self.ends.len()).any(|copy| self.took(copy));
        };
        let is_there = |at: &Place| self.took(*at) || self.ends[*at] == SlotEnd::Kept;
        let lost = (0..data).filter(|at| !is_there(at)).count();
        is_there(&block) || self.parity_right && lost <= self.parities_taken()
    }

    fn parities_taken(&self) -> usize {
        let data = self.data_count.unwrap_or(self.ends.len());
        (data..self.ends.len()).filter(|&parity| self.took(parity)).count()
    }

    /// Whether a block that is not read now may be read again as it was.
    fn hides_a_block(&self) -> bool {
        self.ends.contains(&SlotEnd::Hidden)
    }

    fn may_end_doubt(&self) -> bool {
        let Some(data) = self.data_count else { return self.in_doubt };
        let all_right = !self.ends[data..].contains(&SlotEnd::Refused) && !self.hides_a_block();
        self.in_doubt && self.parity_right && self.parities_taken() > 0 && all_right
    }
}
