//! Sectors that a member does not take, though it answers otherwise: they are found one by one and
//! listed as bad on that member, before the write that found out is answered.

use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use crate::backend::{IoError, IoErrorKind, MemberId, WriteFrom};
use crate::geometry::{Geometry, ParityGeometry, Row};
use crate::memory::Buffer;
use crate::ranges::Ranges;

use super::array_lane::{ArrayLane, SECTOR_BYTES, byte_range};
use super::claims::Columns;
use super::mirror::copies;
use super::news::News;
use super::plan::{self, Place, Places};
use super::reconstruct::row_state;
use super::unread::Unread;
use super::view::{MemberView, WriteMode};

/// How long a member may refuse one piece of a write after the other, each of them at its leisure. The
/// write's claim is held meanwhile.
const PIECES_PATIENCE: Duration = Duration::from_secs(10);

/// A write that its member refused as a whole.
pub(super) struct Refused {
    pub(super) member: MemberId,
    /// From the member's data offset.
    pub(super) sector: u64,
    pub(super) bytes: Buffer,
    pub(super) fua: bool,
}

impl Refused {
    fn range(&self) -> Range<u64> {
        self.sector..self.sector + (self.bytes.len() / SECTOR_BYTES) as u64
    }
}

impl ArrayLane {
    /// Writes again, in smaller and smaller pieces, what a member refused as a whole, and gives what it
    /// does not take at all. What its log lists already stays there untried. All of it may take as long
    /// as one write may, and [`PIECES_PATIENCE`] where that has no end; what was not tried by then counts
    /// as refused.
    pub(super) async fn write_in_pieces(&self, refused: Refused) -> Result<Ranges, IoError> {
        let block = self.with_view(|view| u64::from(view.block_sectors));
        let now = self.lane.backend().now();
        let given_up = self.array.settings.write_patience().deadline(now);
        let given_up = given_up.unwrap_or(now + PIECES_PATIENCE);
        let mut bad = self.listed_in(refused.member, &refused.range(), block);
        let mut left = match bad.is_empty() {
            true => halves(&refused.range(), block, &mut bad),
            false => {
                let mut rest = Ranges::of(refused.range());
                bad.iter().for_each(|range| rest.remove(&range));
                rest.iter().collect()
            }
        };
        let Refused { member, sector, bytes, fua } = refused;
        let bytes = Rc::new(bytes);
        while let Some(piece) = left.pop() {
            if self.lane.backend().now() >= given_up {
                bad.insert(piece);
                continue;
            }
            let view = self.view();
            // Without it there is nothing to list.
            let Some(there) = view.devices().find(|other| other.id == member) else { break };
            let at = byte_range(piece.start - sector, piece.end - piece.start);
            let from = WriteFrom::Shared(bytes.clone(), at);
            match self.write_member(there, piece.start, from, fua).await.result {
                Ok(()) => {}
                Err(error) if error.kind == IoErrorKind::Medium => {
                    left.extend(halves(&piece, block, &mut bad));
                }
                Err(error) => return Err(error),
            }
        }
        self.recycle(Rc::into_inner(bytes));
        Ok(bad)
    }

    /// What a member's log lists of a range, in whole blocks.
    fn listed_in(&self, member: MemberId, range: &Range<u64>, block: u64) -> Ranges {
        self.with_view(|view| {
            let found = view.devices().find(|other| other.id == member);
            let bad = found.map(|member| member.bad.clone()).unwrap_or_default();
            let listed = bad.iter().filter(|bad| bad.start < range.end && range.start < bad.end);
            let inside = listed.map(|bad| {
                let start = bad.start.max(range.start) / block * block;
                start..bad.end.min(range.end).next_multiple_of(block)
            });
            inside.collect()
        })
    }

    /// Has what a member refused put on its bad-block log. Where that cannot be, it is failed. Either
    /// way that is durable when this returns, and nobody reads it from there.
    pub(super) async fn list_refused(&self, member: MemberId, bad: &Ranges) {
        self.tell_claimed(News::Refused, member, bad).await;
    }

    /// Has a range taken off a member's bad-block log that was written whole. False where it stays there,
    /// for the log has no room for what would be left of an entry.
    pub(super) async fn take_off_list(&self, member: MemberId, range: Range<u64>) -> bool {
        self.tell_claimed(News::Written, member, &Ranges::of(range.clone())).await;
        let view = self.array.views.current();
        let listed = |other: &MemberView| other.id == member && other.bad.overlaps(&range);
        !view.devices().any(listed)
    }

    /// Whether what a place of a row holds can be read or computed, block by block.
    pub(super) fn holds_columns(
        &self,
        map: &ParityGeometry,
        row: &Row,
        place: Place,
        columns: &Columns,
    ) -> bool {
        let view = self.view();
        // However long that takes.
        let mut patient = Unread::default();
        patient.wait_for_late();
        let holds = |block: Columns| {
            let state = row_state(&view, map, row, &block, &patient);
            let computed = || plan::rebuild_reads(&state, &Places::of(place)).is_some();
            state.readable.has(place) || computed()
        };
        let block = view.block_sectors;
        let mut starts = columns.clone().step_by(block as usize);
        view.mode != WriteMode::Broken && starts.all(|start| holds(start..start + block))
    }

    /// Whether some copy of every block of a range, in one region, can be read.
    pub(super) fn holds_copies(&self, geometry: &Geometry, range: &Range<u64>) -> bool {
        let view = self.view();
        let block = u64::from(view.block_sectors);
        let holds = |sector: u64| {
            copies(geometry, sector, block).iter().any(|copy| {
                let member = view.member(copy.slot);
                member.is_some_and(|member| member.can_wait_for(copy.member_sector, block))
            })
        };
        let mut starts = range.clone().step_by(block as usize);
        view.mode != WriteMode::Broken && starts.all(holds)
    }
}

/// Both halves of a piece, in whole blocks, the later one first; a single block is bad.
pub(super) fn halves(piece: &Range<u64>, block: u64, bad: &mut Ranges) -> Vec<Range<u64>> {
    let middle = piece.start + ((piece.end - piece.start) / 2).next_multiple_of(block);
    match middle > piece.start && middle < piece.end {
        true => vec![middle..piece.end, piece.start..middle],
        false => {
            bad.insert(piece.clone());
            Vec::new()
        }
    }
}
