//! What the pieces of a round cover: which bytes go to which columns of which place.
//!
//! Everything here is pure. Pieces come in the order of their arrival; where they overlap, the later
//! one counts.

#[cfg(test)]
mod tests;

use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use super::claims::Columns;
use super::plan::{Place, Touched};

/// The bytes that a round writes to its data blocks, in whole units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cover {
    /// From the first unit to the last.
    pub(super) columns: Columns,
    /// By place, then by columns; none overlap.
    pub(super) parts: SmallVec<[Part; 2]>,
    /// From the first column to the last.
    pub(super) cuts: SmallVec<[Cut; 1]>,
}

/// Columns in which each place has its bytes from one part or keeps them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) columns: Columns,
    /// The numbers of the parts that cover them, by place.
    pub(super) parts: SmallVec<[usize; 4]>,
}

/// Neighbouring columns of one place whose new bytes lie together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) place: Place,
    pub(super) columns: Columns,
    pub(super) new: New,
}

/// Where new bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum New {
    /// From the piece with this number.
    Piece(usize),
    /// One unit: from pieces, and where there are none from the old block.
    Mixed,
}

/// Columns in which the same places are written, in the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) columns: Columns,
    pub(super) touched: Touched,
}

impl Cover {
    /// What `pieces` cover. Their columns, grown to units, leave no gap.
    pub(super) fn new(pieces: impl Iterator<Item = (Place, Columns)>, unit: u32) -> Self {
        let mut painted: SmallVec<[Part; 2]> = SmallVec::new();
        for (number, (place, columns)) in pieces.enumerate() {
            paint(&mut painted, Part { place, columns, new: New::Piece(number) });
        }
        let whole = |part: &Part| (part.columns.start | part.columns.end) & (unit - 1) == 0;
        let parts = if painted.iter().all(whole) { painted } else { to_units(&painted, unit) };
        if let [only] = &parts[..] {
            let columns = only.columns.clone();
            let cut = Cut { columns: columns.clone(), parts: smallvec![0] };
            return Self { columns, parts, cuts: smallvec![cut] };
        }
        let cuts: SmallVec<[Cut; 1]> = Sweep::over(&parts).collect();
        let (first, last) = (cuts.first(), cuts.last());
        let (first, last) = first.zip(last).expect("a round has pieces");
        Self { columns: first.columns.start..last.columns.end, parts, cuts }
    }

    /// The columns by what is written in them.
    pub(super) fn segments(&self) -> impl Iterator<Item = Segment> {
        let same = |one: &Cut, next: &Cut| self.touched(one) == self.touched(next);
        self.cuts.chunk_by(same).map(|cuts| {
            let (first, last) = (&cuts[0], &cuts[cuts.len() - 1]);
            let columns = first.columns.start..last.columns.end;
            Segment { columns, touched: self.touched(first) }
        })
    }

    fn touched(&self, cut: &Cut) -> Touched {
        let mut touched = Touched::default();
        for part in cut.parts.iter().map(|&index| &self.parts[index]) {
            match part.new {
                New::Piece(_) => touched.whole.insert(part.place),
                New::Mixed => touched.partly.insert(part.place),
            }
        }
        touched
    }

    /// Parts that follow each other on one place: each run is one write to one member.
    pub(super) fn runs(&self) -> impl Iterator<Item = Range<usize>> {
        let follows = |index: usize| {
            let (before, part) = (&self.parts[index - 1], &self.parts[index]);
            before.place == part.place && before.columns.end == part.columns.start
        };
        let mut next = 0;
        std::iter::from_fn(move || {
            let start = next;
            next = (start + 1..self.parts.len())
                .find(|&index| !follows(index))
                .unwrap_or(self.parts.len());
            (start < next).then_some(start..next)
        })
    }
}

/// Steps from cut to cut.
struct Sweep<'a> {
    parts: &'a [Part],
    /// What is left of each place's parts.
    places: SmallVec<[Range<usize>; 4]>,
    at: u32,
    end: u32,
}

impl<'a> Sweep<'a> {
    fn over(parts: &'a [Part]) -> Self {
        let mut places: SmallVec<[Range<usize>; 4]> = SmallVec::new();
        for (index, part) in parts.iter().enumerate() {
            match places.last_mut() {
                Some(last) if parts[last.start].place == part.place => last.end = index + 1,
                _ => places.push(index..index + 1),
            }
        }
        let start = parts.iter().map(|part| part.columns.start).min();
        let end = parts.iter().map(|part| part.columns.end).max();
        Self { parts, places, at: start.unwrap_or(0), end: end.unwrap_or(0) }
    }
}

impl Iterator for Sweep<'_> {
    type Item = Cut;

    fn next(&mut self) -> Option<Cut> {
        if self.at == self.end {
            return None;
        }
        let (mut until, mut covering) = (self.end, SmallVec::new());
        for left in &mut self.places {
            while left.start < left.end && self.parts[left.start].columns.end <= self.at {
                left.start += 1;
            }
            let Some(part) = self.parts[left.clone()].first() else { continue };
            if part.columns.start > self.at {
                until = until.min(part.columns.start);
            } else {
                until = until.min(part.columns.end);
                covering.push(left.start);
            }
        }
        let columns = self.at..until;
        self.at = until;
        Some(Cut { columns, parts: covering })
    }
}

/// Lays a part over those that came before.
fn paint(parts: &mut SmallVec<[Part; 2]>, new: Part) {
    if parts.is_empty() {
        return parts.push(new);
    }
    let (start, end) = (new.columns.start, new.columns.end);
    let first = parts.partition_point(|part| (part.place, part.columns.end) <= (new.place, start));
    let behind = parts.partition_point(|part| (part.place, part.columns.start) < (new.place, end));
    let under = &parts[first..behind];
    let left = under.first().filter(|part| part.columns.start < start);
    let left = left.map(|part| Part { columns: part.columns.start..start, ..part.clone() });
    let right = under.last().filter(|part| part.columns.end > end);
    let right = right.map(|part| Part { columns: end..part.columns.end, ..part.clone() });
    parts.drain(first..behind);
    let laid = left.into_iter().chain([new]).chain(right);
    parts.insert_many(first, laid);
}

/// Cuts parts at the units that they cover, and grows what is less than a unit.
fn to_units(parts: &[Part], unit: u32) -> SmallVec<[Part; 2]> {
    let mut cut: SmallVec<[Part; 2]> = SmallVec::new();
    let mut rest = parts;
    while let Some(first) = rest.first() {
        let apart = |index: &usize| {
            rest[*index].place != first.place
                || rest[*index].columns.start != rest[index - 1].columns.end
        };
        let count = (1..rest.len()).find(apart).unwrap_or(rest.len());
        let (run, behind) = rest.split_at(count);
        run_to_units(run, unit, &mut cut);
        rest = behind;
    }
    cut
}

fn run_to_units(run: &[Part], unit: u32, cut: &mut SmallVec<[Part; 2]>) {
    let place = run[0].place;
    let (start, end) = (run[0].columns.start, run[run.len() - 1].columns.end);
    let (inner_start, inner_end) = (start.next_multiple_of(unit), end / unit * unit);
    let mix = |cut: &mut SmallVec<[Part; 2]>, column: u32| {
        let columns = column / unit * unit..(column / unit + 1) * unit;
        let mixed = Part { place, columns, new: New::Mixed };
        if cut.last() != Some(&mixed) {
            cut.push(mixed);
        }
    };
    if start < inner_start {
        mix(cut, start);
    }
    for part in run {
        let columns = part.columns.start.max(inner_start)..part.columns.end.min(inner_end);
        if columns.start < columns.end {
            cut.push(Part { columns, ..part.clone() });
        }
    }
    if end > inner_end {
        mix(cut, end);
    }
}
