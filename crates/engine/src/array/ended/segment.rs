//! The parts of a write in which everything that counts is the same from the first sector to the last.

use std::ops::Range;

use smallvec::SmallVec;

use crate::geometry::{Geometry, ParityGeometry, Row, Slot};
use crate::ranges::Ranges;

use super::super::borders::Borders;
use super::super::claims::Columns;
use super::super::mirror::{Copies, copies};
use super::super::plan::{Place, Places};
use super::super::reconstruct::slot_of;
use super::super::view::ArrayView;
use super::{Ended, Target};

/// Sectors in which everything that counts is the same from the first to the last.
pub(super) struct Segment {
    /// As resync counts.
    pub(super) range: Range<u64>,
    /// By place: the slot, and the sectors of its member.
    pub(super) slots: SmallVec<[(Slot, Range<u64>); 8]>,
    pub(super) data_count: Option<usize>,
    pub(super) written: Places,
}

impl Segment {
    /// Whether it was written in this place: data where users wrote, parity always.
    pub(super) fn is_sent(&self, place: Place) -> bool {
        self.data_count.is_none_or(|data| place >= data) || self.written.has(place)
    }
}

impl Ended {
    /// All of them, in a view.
    pub(super) fn segments(&self, now: &ArrayView) -> Vec<Segment> {
        match (&self.target, &*now.geometry) {
            (Target::Row { row, columns, written }, Geometry::Parity(map)) => {
                self.row_segments(now, map, &map.row(*row), columns, written)
            }
            (Target::Copies(range), geometry) => {
                let copies = copies(geometry, range.start, range.end - range.start);
                self.mirror_segments(now, range, &copies)
            }
            (Target::Row { .. }, _) => unreachable!("rows are those of parity levels"),
            (Target::Rewrites | Target::Agreement(_) | Target::Fills, _) => {
                unreachable!("they are judged as a whole")
            }
        }
    }

    fn row_segments(
        &self,
        now: &ArrayView,
        map: &ParityGeometry,
        row: &Row,
        columns: &Columns,
        written: &[(Place, Columns)],
    ) -> Vec<Segment> {
        let data_count = usize::from(map.data_disks());
        let places = data_count + usize::from(map.parity_disks());
        let slots: SmallVec<[Slot; 8]> =
            (0..places).map(|place| slot_of(row, data_count, place)).collect();
        let on_member = |columns: &Columns| row.member_sectors(columns);
        let mut borders = Borders::of(on_member(columns));
        borders.add_ranges(&now.doubted, 0);
        written.iter().for_each(|(_, part)| borders.add(&on_member(part)));
        slots.iter().for_each(|slot| self.add_borders(&mut borders, now, *slot, 0));
        let segments = borders.cut().map(|range| {
            let here = |part: &Columns| {
                let part = on_member(part);
                part.start <= range.start && range.end <= part.end
            };
            let written = written.iter().filter(|(_, part)| here(part));
            Segment {
                slots: slots.iter().map(|slot| (*slot, range.clone())).collect(),
                data_count: Some(data_count),
                written: written.map(|(place, _)| *place).collect(),
                range,
            }
        });
        segments.collect()
    }

    fn mirror_segments(
        &self,
        now: &ArrayView,
        range: &Range<u64>,
        copies: &Copies,
    ) -> Vec<Segment> {
        let mut borders = Borders::of(range.clone());
        borders.add_ranges(&now.doubted, 0);
        for copy in copies {
            // What to add to a sector of the member to get the array's.
            let shift = range.start.wrapping_sub(copy.member_sector);
            self.add_borders(&mut borders, now, copy.slot, shift);
        }
        let segments = borders.cut().map(|part| {
            let there = copies.iter().map(|copy| {
                let first = copy.member_sector + (part.start - range.start);
                (copy.slot, first..first + (part.end - part.start))
            });
            Segment {
                slots: there.collect(),
                data_count: None,
                written: Places::of(0),
                range: part,
            }
        });
        segments.collect()
    }

    /// Where something about the member in a slot changes, now or when it was written.
    fn add_borders(&self, borders: &mut Borders, now: &ArrayView, slot: Slot, shift: u64) {
        let members = [now.member(slot), self.view.member(slot), now.replacement(slot)];
        for member in members.into_iter().flatten() {
            borders.add_member(member, shift);
            for (_, ranges) in self.refused.iter().filter(|(id, _)| *id == member.id) {
                borders.add_ranges(ranges, shift);
            }
            for (_, range) in self.no_space.iter().filter(|(id, _)| *id == member.id) {
                borders.add_ranges(&Ranges::of(range.clone()), shift);
            }
        }
    }
}
