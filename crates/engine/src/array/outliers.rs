//! Rows in doubt of which it is known whose blocks put them there.
//!
//! A write that failed because members had no room lacks just what these did not take. They are the row's
//! *outliers*: without them the row is of one time, since what all others have agrees with its parity. That
//! stands until something else ends half-way there. After a resync did the outliers are those that lack what it wrote.
//! No disk says so: after a crash nothing is known.

#[cfg(test)]
mod tests;

use std::ops::Range;

use smallvec::SmallVec;

use crate::geometry::Slot;
use crate::ranges::Ranges;

/// Slots of one row.
pub type Slots = SmallVec<[Slot; 2]>;

/// Most ranges of which this is known.
const RANGES_MAX: usize = 1 << 10;

/// Ranges of member sectors, and the slots whose blocks are not of one time there with all others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outliers(Vec<(Range<u64>, Slots)>);

impl Outliers {
    /// Takes note of a range. What was known of it before counts no more.
    pub fn insert(&mut self, range: Range<u64>, slots: Slots) {
        self.forget(&range);
        let touches = |known: &Range<u64>| known.end == range.start || range.end == known.start;
        let beside = self.0.iter_mut().find(|(known, of)| *of == slots && touches(known));
        if let Some((known, _)) = beside {
            *known = known.start.min(range.start)..known.end.max(range.end);
        } else if self.0.len() < RANGES_MAX {
            self.0.push((range, slots));
        }
    }

    /// Nothing is known of a range any more.
    pub fn forget(&mut self, range: &Range<u64>) {
        self.change(range, |_| None);
    }

    /// What a slot has in a range fits all others by now: it was computed without the outliers. Where there was no other
    /// outlier the row is of one time.
    pub fn fits(&mut self, slot: Slot, range: &Range<u64>) {
        self.change(range, |slots| Some(slots.iter().copied().filter(|it| *it != slot).collect()));
    }

    fn change(&mut self, range: &Range<u64>, change: impl Fn(&Slots) -> Option<Slots>) {
        let parts = std::mem::take(&mut self.0).into_iter().flat_map(|(known, slots)| {
            let before = known.start..known.end.min(range.start);
            let within = known.start.max(range.start)..known.end.min(range.end);
            let after = known.start.max(range.end)..known.end;
            let changed = change(&slots);
            [(before, Some(slots.clone())), (within, changed), (after, Some(slots))]
        });
        let known = parts.filter(|(part, _)| !part.is_empty());
        let known = known.filter_map(|(part, slots)| Some((part, slots?)));
        self.0.extend(known.take(RANGES_MAX));
    }

    /// The slots to do without in a range, if that is known of all of it that is in doubt.
    pub fn of(&self, range: &Range<u64>, doubted: &Ranges) -> Option<Slots> {
        if self.is_empty() {
            return None;
        }
        let (mut unknown, mut slots) = (doubted.within(range), Slots::new());
        for (part, of_part) in self.known(range, doubted) {
            unknown.remove(part);
            let new = of_part.iter().filter(|slot| !slots.contains(slot));
            slots.extend(new.copied().collect::<Slots>());
        }
        unknown.is_empty().then_some(slots)
    }

    /// Whether anything is known of some of a range.
    pub fn knows_of(&self, range: &Range<u64>, doubted: &Ranges) -> bool {
        !self.is_empty() && self.known(range, doubted).next().is_some()
    }

    /// Whether a slot is to be done without wherever something is known of a range.
    pub fn names(&self, slot: Slot, range: &Range<u64>, doubted: &Ranges) -> bool {
        self.known(range, doubted).all(|(_, slots)| slots.contains(&slot))
    }

    /// What is known of a range where it is in doubt. What is known of the rest counts for nothing.
    fn known(
        &self,
        range: &Range<u64>,
        doubted: &Ranges,
    ) -> impl Iterator<Item = &(Range<u64>, Slots)> {
        let in_doubt = doubted.within(range);
        self.0.iter().filter(move |(part, _)| in_doubt.overlaps(part))
    }

    /// What is known, range by range.
    pub fn iter(&self) -> impl Iterator<Item = &(Range<u64>, Slots)> {
        self.0.iter()
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
