//! Rows in doubt of which it is known whose blocks put them there.
//!
//! A write that failed because members had no room lacks just what these did not take. They are the row's
//! *outliers*: without them the row is of one time, since what all others have agrees with its parity. That
//! stands until something else ends half-way there. After a resync did the outliers are those that lack what it wrote.
//! No disk says so: after a crash nothing is known.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;

use smallvec::SmallVec;

use crate::geometry::Slot;
use crate::ranges::Ranges;

/// Slots of one row.
pub type Slots = SmallVec<[Slot; 2]>;

/// Slots whose blocks are not of one time with all others, and the member sectors where that is so. Each sector stands
/// under one set of slots, which is sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outliers(BTreeMap<Slots, Ranges>);

impl Outliers {
    /// Takes note of a range. What was known of it before counts no more.
    pub fn insert(&mut self, range: Range<u64>, mut slots: Slots) {
        self.forget(&range);
        slots.sort_unstable();
        slots.dedup();
        self.0.entry(slots).or_default().insert(range);
    }

    /// Nothing is known of a range any more.
    pub fn forget(&mut self, range: &Range<u64>) {
        self.0.values_mut().for_each(|known| known.remove(range));
        self.0.retain(|_, known| !known.is_empty());
    }

    /// What a slot has in a range fits all others by now: it was computed without the outliers. Where there was no other
    /// outlier the row is of one time.
    pub fn fits(&mut self, slot: Slot, range: &Range<u64>) {
        let of_it = self.0.iter().filter(|(slots, _)| slots.contains(&slot));
        let fit: Vec<(Slots, Ranges)> = of_it
            .map(|(slots, known)| {
                let others = slots.iter().copied().filter(|other| *other != slot).collect();
                (others, known.within(range))
            })
            .collect();
        for (others, parts) in fit {
            parts.iter().for_each(|part| self.insert(part, others.clone()));
        }
    }

    /// The slots to do without in a range, if that is known of all of it that is in doubt.
    pub fn of(&self, range: &Range<u64>, doubted: &Ranges) -> Option<Slots> {
        if self.is_empty() {
            return None;
        }
        let (mut unknown, mut slots) = (doubted.within(range), Slots::new());
        for (of_part, parts) in self.known(range, doubted) {
            parts.iter().for_each(|part| unknown.remove(&part));
            slots.extend_from_slice(of_part);
        }
        slots.sort_unstable();
        slots.dedup();
        unknown.is_empty().then_some(slots)
    }

    /// Whether anything is known of some of a range.
    pub fn knows_of(&self, range: &Range<u64>, doubted: &Ranges) -> bool {
        !self.is_empty() && self.known(range, doubted).next().is_some()
    }

    /// Whether a slot is to be done without wherever something is known of a range.
    pub fn names(&self, slot: Slot, range: &Range<u64>, doubted: &Ranges) -> bool {
        self.known(range, doubted).all(|(slots, _)| slots.contains(&slot))
    }

    /// What is known of a range where it is in doubt. What is known of the rest counts for nothing.
    fn known(
        &self,
        range: &Range<u64>,
        doubted: &Ranges,
    ) -> impl Iterator<Item = (&Slots, Ranges)> {
        let in_doubt = doubted.within(range);
        let here = self.0.iter().map(move |(slots, known)| (slots, known.both(&in_doubt)));
        here.filter(|(_, parts)| !parts.is_empty())
    }

    /// What is known, range by range.
    pub fn iter(&self) -> impl Iterator<Item = (Range<u64>, &Slots)> {
        self.0.iter().flat_map(|(slots, known)| known.iter().map(move |range| (range, slots)))
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
