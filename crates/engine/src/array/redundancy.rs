//! How redundant each range of an array is, as one view has it: for people and programs that ask, not for requests.

use std::ops::Range;

use smallvec::SmallVec;

use crate::geometry::{Geometry, ParityGeometry, Piece, Slot};
use crate::ranges::Ranges;

use super::array_lane::ArrayLane;
use super::mirror;
use super::view::{ArrayView, MemberView};

/// How often it is looked where the next one begins, at once: a lane must not be held by one who asks about all of a large
/// array.
const STEPS_MAX: usize = 256;

/// Consecutive sectors of an array that are equally redundant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// How many; at least one.
    pub sectors: u64,
    /// How redundant they are.
    pub redundancy: Redundancy,
}

/// How redundant a range is: fully where nothing is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Redundancy {
    /// A copy or block is on no member: its member is missing, lists it as bad, or has not been rebuilt up to there.
    pub degraded: bool,
    /// A member that lacks it is being rebuilt.
    pub rebuilding: bool,
    /// Copies may differ, or parity not fit: a resync has not been there.
    pub unsynced: bool,
    /// It cannot be read: more is missing than the level bears.
    pub lost: bool,
    /// The level has neither copies nor parity.
    pub is_single: bool,
}

impl ArrayLane {
    /// How redundant some sectors are, which are not none, in whole blocks from a block's start: from the first one on, and
    /// for as many as can be told at once.
    pub fn redundancy(&self, sectors: Range<u64>) -> Vec<Stretch> {
        self.with_view(|view| view.redundancy(sectors))
    }
}

impl ArrayView {
    fn redundancy(&self, sectors: Range<u64>) -> Vec<Stretch> {
        let is_single = self.geometry.max_failures() == 0;
        if self.lacks_nothing() {
            let redundancy = Redundancy { is_single, ..Redundancy::default() };
            return vec![Stretch { sectors: sectors.end - sectors.start, redundancy }];
        }
        let mut all: Vec<Stretch> = Vec::new();
        let mut at = sectors.start;
        for _ in 0..STEPS_MAX {
            if at >= sectors.end {
                break;
            }
            let (length, redundancy) = match &*self.geometry {
                Geometry::Parity(map) => self.redundancy_of_row(map, at),
                _ => self.redundancy_of_copies(at, sectors.end - at),
            };
            let (length, redundancy) =
                (length.min(sectors.end - at), Redundancy { is_single, ..redundancy });
            at += length;
            match all.last_mut() {
                Some(last) if last.redundancy == redundancy => last.sectors += length,
                _ => all.push(Stretch { sectors: length, redundancy }),
            }
        }
        all
    }

    /// All is everywhere, and agrees.
    fn lacks_nothing(&self) -> bool {
        let has_all = |member: &MemberView| {
            member.filled_sectors == u64::MAX && member.bad.is_empty() && member.holes.is_empty()
        };
        self.unsynced.is_empty()
            && self.doubted.is_empty()
            && self.slots.iter().all(|member| member.as_ref().is_some_and(has_all))
    }

    /// From an array sector of a parity level on, and for how many sectors that holds.
    fn redundancy_of_row(&self, map: &ParityGeometry, at: u64) -> (u64, Redundancy) {
        let place = map.split(at);
        let chunk = u64::from(map.chunk_sectors());
        let (start, offset) = (map.row(place.row).member_sector(), u64::from(place.offset_sectors));
        let from = start + offset;
        let slots = || (0..map.raid_disks()).map(Slot);
        let members = slots().filter_map(|slot| self.member(slot)).map(next_change_of(from));
        let change = members.chain([self.next_change(from), u64::MAX]).min().unwrap_or(u64::MAX);
        let length = self.in_blocks(change - from).min(chunk - offset);
        let range = from..from + length;
        let lacking: SmallVec<[Slot; 4]> =
            slots().filter(|slot| self.lacks(*slot, from, length)).collect();
        let parities = usize::from(map.parity_disks());
        // Of two parities in doubt the second one tells whether the first is right.
        let compares = lacking.len() < parities && !self.unresolved.overlaps(&range);
        let is_doubted = !compares && self.in_doubt(&range, lacking.len() == 1);
        let bears = lacking.len() <= parities && (lacking.is_empty() || !is_doubted);
        let redundancy = Redundancy {
            degraded: !lacking.is_empty(),
            rebuilding: lacking.iter().any(|slot| self.is_filled_later(*slot, &range)),
            unsynced: self.unsynced.overlaps(&range),
            lost: !bears && lacking.contains(&map.locate(at).slot),
            is_single: false,
        };
        // Whole rows are alike as long as no block of them is lost: which one depends on where it is.
        let is_row = place.data_index == 0 && offset == 0;
        match change / chunk - start / chunk {
            rows @ 1.. if bears && is_row => (rows.saturating_mul(map.row_sectors()), redundancy),
            _ => (length, redundancy),
        }
    }

    /// The same where blocks are copied, or are there once.
    fn redundancy_of_copies(&self, at: u64, most: u64) -> (u64, Redundancy) {
        let mut most = most;
        let copies: SmallVec<[Piece; 4]> = match &*self.geometry {
            geometry @ Geometry::Raid1(_) => {
                mirror::copies(geometry, at, most).into_iter().collect()
            }
            geometry @ Geometry::Raid10(map) => {
                let chunk = u64::from(map.chunk_sectors());
                most = most.min(chunk - at % chunk);
                mirror::copies(geometry, at, most).into_iter().collect()
            }
            geometry => {
                let piece = geometry.locate(at);
                most = most.min(piece.sectors);
                [piece].into_iter().collect()
            }
        };
        let change_of = |piece: &Piece| {
            let from = piece.member_sector;
            self.member(piece.slot).map_or(u64::MAX, |it| next_change_of(from)(it) - from)
        };
        let changes = copies.iter().map(change_of).chain([self.next_change(at) - at]);
        let length = self.in_blocks(changes.min().unwrap_or(u64::MAX)).min(most);
        let lacking: SmallVec<[&Piece; 4]> = copies
            .iter()
            .filter(|piece| self.lacks(piece.slot, piece.member_sector, length))
            .collect();
        let is_filled_later = |piece: &&Piece| {
            let range = piece.member_sector..piece.member_sector + length;
            self.is_filled_later(piece.slot, &range)
        };
        let redundancy = Redundancy {
            degraded: !lacking.is_empty(),
            rebuilding: lacking.iter().any(is_filled_later),
            unsynced: self.unsynced.overlaps(&(at..at + length)),
            lost: lacking.len() == copies.len(),
            is_single: false,
        };
        (length, redundancy)
    }

    /// Whether some of these sectors of a slot are on no member.
    fn lacks(&self, slot: Slot, from: u64, sectors: u64) -> bool {
        self.member(slot).is_none_or(|member| !member.can_wait_for(from, sectors))
    }

    /// Whether the slot's member is being filled, and is not as far as the end of these sectors.
    fn is_filled_later(&self, slot: Slot, sectors: &Range<u64>) -> bool {
        self.member(slot).is_some_and(|member| member.filled_sectors < sectors.end)
    }

    /// The next sector, as resync counts them, from which on something else may be known.
    fn next_change(&self, from: u64) -> u64 {
        let known = [
            &self.unsynced,
            &self.doubted,
            &self.unaccepted,
            &self.accepted_for_all,
            &self.unresolved,
        ];
        known.into_iter().map(|ranges| next_edge(ranges, from)).min().unwrap_or(u64::MAX)
    }

    /// Whole blocks, at least one.
    fn in_blocks(&self, sectors: u64) -> u64 {
        let block = u64::from(self.block_sectors);
        (sectors / block * block).max(block)
    }
}

/// The next sector of a member from which on it may hold more or less.
fn next_change_of(from: u64) -> impl Fn(&MemberView) -> u64 {
    move |member| {
        let filled = Some(member.filled_sectors).filter(|filled| *filled > from);
        let lists = next_edge(&member.bad, from).min(next_edge(&member.holes, from));
        filled.unwrap_or(u64::MAX).min(lists)
    }
}

/// Where the next range begins, or the one ends that this sector is in.
fn next_edge(ranges: &Ranges, from: u64) -> u64 {
    match ranges.next_from(from) {
        None => u64::MAX,
        Some(next) if next.start > from => next.start,
        Some(next) => next.end,
    }
}

#[cfg(test)]
mod tests;
