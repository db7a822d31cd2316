//! Where a range is cut into parts that are each alike from the first sector to the last.

use std::ops::Range;

use smallvec::SmallVec;

use crate::ranges::Ranges;

use super::view::MemberView;

/// Where a range is to be cut.
pub(super) struct Borders {
    within: Range<u64>,
    at: SmallVec<[u64; 8]>,
}

impl Borders {
    pub(super) fn of(within: Range<u64>) -> Self {
        Self { at: SmallVec::from_slice(&[within.start, within.end]), within }
    }

    pub(super) fn add(&mut self, range: &Range<u64>) {
        self.add_border(range.start, 0);
        self.add_border(range.end, 0);
    }

    fn add_border(&mut self, at: u64, shift: u64) {
        let at = at.wrapping_add(shift);
        if self.within.start < at && at < self.within.end {
            self.at.push(at);
        }
    }

    pub(super) fn add_ranges(&mut self, ranges: &Ranges, shift: u64) {
        let (start, end) =
            (self.within.start.wrapping_sub(shift), self.within.end.wrapping_sub(shift));
        let mut from = start;
        while let Some(next) = ranges.next_from(from).filter(|next| next.start < end) {
            self.add_border(next.start, shift);
            self.add_border(next.end, shift);
            from = next.end;
        }
    }

    /// Where something about a member changes.
    pub(super) fn add_member(&mut self, member: &MemberView, shift: u64) {
        self.add_ranges(&member.bad, shift);
        self.add_ranges(&member.bad_in_memory, shift);
        self.add_ranges(&member.holes, shift);
        self.add_border(member.recorded_sectors, shift);
        self.add_border(member.filled_sectors, shift);
    }

    pub(super) fn cut(mut self) -> impl Iterator<Item = Range<u64>> {
        self.at.sort_unstable();
        self.at.dedup();
        let borders = self.at;
        (1..borders.len()).map(move |at| borders[at - 1]..borders[at])
    }
}
