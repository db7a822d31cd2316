//! A sorted set of sector ranges.

use std::ops::Range;

/// Sectors in ranges that neither overlap nor touch, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(Vec<Range<u64>>);

impl Ranges {
    /// The set of one range.
    pub fn of(range: Range<u64>) -> Self {
        std::iter::once(range).collect()
    }

    /// Whether nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ranges, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().cloned()
    }

    /// Sectors in the set.
    pub fn sectors(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    /// Whether any sector of `range` is in the set.
    #[inline]
    pub fn overlaps(&self, range: &Range<u64>) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let at = self.0.partition_point(|known| known.end <= range.start);
        self.0.get(at).is_some_and(|known| known.start < range.end)
    }

    /// Whether every sector of `range` is in the set.
    pub fn contains(&self, range: &Range<u64>) -> bool {
        let at = self.0.partition_point(|known| known.end <= range.start);
        let around = |known: &Range<u64>| known.start <= range.start && range.end <= known.end;
        range.is_empty() || self.0.get(at).is_some_and(around)
    }

    /// The first range that ends after `sector`, cut off before `sector`.
    pub fn next_from(&self, sector: u64) -> Option<Range<u64>> {
        let at = self.0.partition_point(|known| known.end <= sector);
        self.0.get(at).map(|known| known.start.max(sector)..known.end)
    }

    /// What is in both sets.
    pub fn both(&self, other: &Self) -> Self {
        let mut both = Self::default();
        for range in &other.0 {
            let mut sector = range.start;
            while let Some(known) = self.next_from(sector).filter(|known| known.start < range.end) {
                sector = known.end.min(range.end);
                both.insert(known.start..sector);
            }
        }
        both
    }

    /// What of it lies in `range`.
    pub fn within(&self, range: &Range<u64>) -> Self {
        self.both(&Self::of(range.clone()))
    }

    /// Adds `range`.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let first = self.0.partition_point(|known| known.end < range.start);
        let last = self.0.partition_point(|known| known.start <= range.end);
        let merged = match self.0.get(first..last) {
            Some([first, ..]) => {
                let end = self.0[last - 1].end.max(range.end);
                first.start.min(range.start)..end
            }
            _ => range,
        };
        self.0.splice(first..last, [merged]);
    }

    /// Takes `range` out.
    pub fn remove(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        let first = self.0.partition_point(|known| known.end <= range.start);
        let last = self.0.partition_point(|known| known.start < range.end);
        if first >= last {
            return;
        }
        let rests = [self.0[first].start..range.start, range.end..self.0[last - 1].end];
        self.0.splice(first..last, rests.into_iter().filter(|rest| !rest.is_empty()));
    }
}

/// Both halves of a range, in whole blocks, the later one first. None of a single block.
pub(crate) fn halves(range: &Range<u64>, block: u64) -> Option<[Range<u64>; 2]> {
    let middle = range.start + ((range.end - range.start) / 2).next_multiple_of(block);
    let has_two = range.start < middle && middle < range.end;
    has_two.then_some([middle..range.end, range.start..middle])
}

impl FromIterator<Range<u64>> for Ranges {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> Self {
        let mut set = Self::default();
        ranges.into_iter().for_each(|range| set.insert(range));
        set
    }
}

#[cfg(test)]
mod tests;
