//! How far resync and the filling of members have come: what may be read, and what a power cut leaves.
//!
//! The two are two types. Only a flush that went well makes the second from the first, and
//! superblocks take only the second: what they promise must be there after a power cut.

use std::sync::Arc;

use mdspace_format::superblock::RESYNC_NONE;

use crate::backend::{IoError, IoErrorKind, MemberId};
use crate::ranges::Ranges;

use super::super::rules::{Rule, keep};

use super::{Controller, Member, MemberState};

#[cfg(test)]
mod tests;

/// What lies below this sector is there to be read. It may still lie in the caches of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Readable(u64);

impl Readable {
    pub(super) const NOTHING: Self = Self(0);

    pub(super) fn up_to(sector: u64) -> Self {
        Self(sector)
    }

    pub(super) fn sector(self) -> u64 {
        self.0
    }
}

/// What lies below this sector is there after a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Durable(u64);

impl Durable {
    pub(super) const NOTHING: Self = Self(0);

    /// As a superblock said it when the array was assembled.
    pub(super) fn found(sector: u64) -> Self {
        Self(sector)
    }

    /// What could be read before a flush went well is durable after it.
    fn after(readable: Readable, _: &FlushReceipt) -> Self {
        Self(readable.0)
    }

    /// For a superblock. What was taken back since counts no more.
    pub(super) fn but_no_more_than(self, readable: Readable) -> u64 {
        self.0.min(readable.0)
    }

    /// No more of it than what is below a sector.
    fn up_to(self, sector: u64) -> Self {
        Self(self.0.min(sector))
    }

    pub(super) fn covers(self, sector: u64) -> bool {
        self.0 >= sector
    }
}

/// That members were flushed, and that went well.
pub(super) struct FlushReceipt(());

impl FlushReceipt {
    /// For whoever flushes all members: those that failed it are out.
    pub(super) fn of_all_members() -> Self {
        Self(())
    }

    /// For what is of one member alone.
    fn of_that_member() -> Self {
        Self(())
    }
}

/// What may be read now, noted before a flush.
pub(super) struct Reached {
    resync: Readable,
    members: Vec<(MemberId, Readable)>,
}

impl Controller {
    /// What the next flush makes durable.
    pub(super) fn reached(&self) -> Reached {
        let filled = self.members.iter().filter(|member| member.filled_to().is_some());
        let end = self.member_sectors();
        let members = filled.map(|member| (member.id, member.promise(end)));
        Reached { resync: self.resync_readable(), members: members.collect() }
    }

    /// Takes note of how far members are filled for good, by a flush that none but these failed. Before those are
    /// taken out: what was flushed is there whatever becomes of others, and a replacement may have all by that. But
    /// not where one of those was read.
    pub(super) fn is_durable_but_on(&mut self, failed: &[(MemberId, IoError)], reached: &Reached) {
        if self.were_read_after_a_reset(failed) {
            return;
        }
        let end = self.member_sectors();
        for (id, readable) in &reached.members {
            let has_failed = failed.iter().any(|(failed, _)| failed == id);
            if let Some(index) = self.index_of(*id).filter(|_| !has_failed) {
                let member = &mut self.members[index];
                // But for what was taken back meanwhile.
                let still = member.promise(end).min(*readable);
                member.durable = Durable::after(still, &FlushReceipt::of_that_member());
            }
        }
    }

    /// Takes note of how far redundancy is right for good.
    pub(super) fn resync_is_durable(&mut self, reached: &Reached, receipt: &FlushReceipt) {
        self.resynced = Durable::after(reached.resync, receipt);
    }

    /// Takes back what members were filled with since the last flush that went well, where a member that is read
    /// goes. A drive that resets has lost what it was not told to flush, and gives the old blocks until then. One that
    /// drops off may have reset before. Where the level does not bear that, no other member has it.
    pub(super) fn take_back_what_was_filled(&mut self, failed: &[(MemberId, IoError)]) {
        if self.were_read_after_a_reset(failed)
            && self.array.rules.keep(Rule::LostSourcesAreTakenBack)
        {
            self.members.iter_mut().for_each(Member::fall_back);
            // Nor does what windows that are under way copy.
            self.sync.forget_members();
        }
    }

    fn were_read_after_a_reset(&self, failed: &[(MemberId, IoError)]) -> bool {
        let lost: Vec<MemberId> = failed.iter().map(|(id, _)| *id).collect();
        let is_borne = self.bears_loss_of(&lost);
        let may_have_reset = |member: &Member| {
            let went = |(id, error): &(MemberId, IoError)| {
                *id == member.id && (is_borne || error.kind != IoErrorKind::Gone)
            };
            failed.iter().any(went)
        };
        let was_read = |member: &Member| match member.state {
            MemberState::InSync(_) => true,
            MemberState::Recovering(_, done) => done > Readable::NOTHING,
            _ => false,
        };
        self.members.iter().any(|member| was_read(member) && may_have_reset(member))
    }

    /// Redundancy can be trusted up to here. Nothing is until the doubts of a crash are resolved: any
    /// other number would say that the first resync was interrupted, and that parity is right where
    /// data are.
    pub(super) fn resync_readable(&self) -> Readable {
        match self.unsynced.iter().next() {
            None => Readable(RESYNC_NONE),
            Some(_)
                if !self.doubted.is_empty()
                    && self.array.rules.keep(Rule::DoubtLowersTheResync) =>
            {
                Readable::NOTHING
            }
            Some(first) => Readable(first.start),
        }
    }
}

impl Member {
    /// While it is being filled: how far.
    pub(super) fn filled_to(&self) -> Option<Readable> {
        match self.state {
            MemberState::Recovering(_, done) | MemberState::Replacing(_, done) => Some(done),
            _ => None,
        }
    }

    /// What of its slot has not come to it, wherever that lies.
    pub(super) fn not_filled(&self) -> Ranges {
        let filled_to = self.filled_to().map_or(u64::MAX, Readable::sector);
        let mut lacks = Ranges::clone(&self.holes);
        lacks.insert(filled_to..u64::MAX);
        lacks
    }

    /// On disk there is but one offset, and all below it is promised. What the array does not use, from
    /// `end` on, is as good as there.
    pub(super) fn promise(&self, end: u64) -> Readable {
        let done = self.filled_to().unwrap_or(Readable::NOTHING);
        let first = self.holes.iter().next().filter(|_| keep(Rule::HolesLowerThePromise));
        let hole = first.map_or(done, |hole| Readable(hole.start));
        match done.min(hole) {
            all if all.0 >= end => Readable(self.superblock.size_sectors),
            some => some,
        }
    }

    /// Whether all of its slot is there for good.
    pub(super) fn is_filled(&self, end: u64) -> bool {
        if !keep(Rule::HolesKeepMembersOut) {
            // A sync task went over all of it.
            return self.filled_to().is_some_and(|done| done.0 >= end);
        }
        self.holes.is_empty() && self.durable.covers(end)
    }

    /// While it is being filled: what it holds for good.
    pub(super) fn falls_back_to(&self) -> Option<Readable> {
        self.filled_to().map(|done| Readable(self.durable.but_no_more_than(done)))
    }

    /// It holds no more than what is there for good.
    fn fall_back(&mut self) {
        let durable = self.falls_back_to();
        if let MemberState::Recovering(_, done) | MemberState::Replacing(_, done) = &mut self.state
        {
            *done = durable.expect("it is being filled");
        }
    }

    /// It is to be filled from the start.
    pub(super) fn has_nothing(&mut self) {
        self.durable = Durable::NOTHING;
        self.recorded_sectors = 0;
        self.holes = Arc::default();
    }

    /// What it holds there is not what belongs there: it is written and not read, until it was copied anew. What is
    /// copied then is not there for good before the next flush.
    pub(super) fn distrust(&mut self, ranges: &Ranges) {
        let mut holes = Ranges::clone(&self.holes);
        ranges.iter().for_each(|range| holes.insert(range));
        self.holes = Arc::new(holes);
        if let Some(first) = ranges.iter().next()
            && keep(Rule::HolesLowerThePromise)
        {
            // What fills them is not flushed yet.
            self.durable = self.durable.up_to(first.start);
        }
    }

    /// What was copied is no hole any more.
    pub(super) fn was_copied(&mut self, ranges: &Ranges) {
        if ranges.iter().any(|range| self.holes.overlaps(&range)) {
            let mut holes = Ranges::clone(&self.holes);
            ranges.iter().for_each(|range| holes.remove(&range));
            self.holes = Arc::new(holes);
        }
    }
}
