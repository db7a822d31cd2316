//! Sectors that a member does not take, though it answers otherwise: they are found one by one and
//! listed as bad on that member, before the write that found out is answered.

use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use crate::backend::{IoError, IoErrorKind, MemberId, Scope, WriteFrom};
use crate::memory::Buffer;
use crate::ranges::{Ranges, halves};

use super::array_lane::{ArrayLane, SECTOR_BYTES, byte_range};
use super::rules::Rule;

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
    pub(super) behind: bool,
}

impl Refused {
    /// What was refused, from the member's data offset.
    pub(super) fn range(&self) -> Range<u64> {
        self.sector..self.sector + (self.bytes.len() / SECTOR_BYTES) as u64
    }
}

impl ArrayLane {
    /// Writes again, in smaller and smaller pieces, what a member refused as a whole, and gives what it
    /// does not take at all. What its log lists already stays there untried. All of it may take as long
    /// as one write may, and [`PIECES_PATIENCE`] where that has no end; what was not tried by then counts
    /// as refused.
    pub(super) async fn write_in_pieces(
        &self,
        refused: Refused,
    ) -> Result<Ranges, (IoError, Range<u64>)> {
        let block = self.with_view(|view| u64::from(view.block_sectors));
        let given_up = self.array.settings.write_patience().deadline(self.lane.lived());
        let given_up = given_up.unwrap_or(self.lane.lived() + PIECES_PATIENCE);
        let range = refused.range();
        let mut bad = self.listed_in(refused.member, &range, block);
        let mut left: Vec<_> = match bad.is_empty() {
            true => halves_or_bad(&refused.range(), block, &mut bad).collect(),
            false => {
                let mut rest = Ranges::of(refused.range());
                bad.iter().for_each(|range| rest.remove(&range));
                rest.iter().collect()
            }
        };
        let Refused { member, sector, bytes, fua, behind } = refused;
        let bytes = Rc::new(bytes);
        while let Some(piece) = left.pop() {
            if self.lane.lived() >= given_up {
                bad.insert(piece);
                continue;
            }
            let view = self.view();
            let Some(there) = view.devices().find(|other| other.id == member) else {
                // It failed meanwhile. That is not on record before somebody has said so and waited.
                return Err((IoError { kind: IoErrorKind::Gone, errno: 0 }, range));
            };
            if there.failfast {
                // Tried once: the controller fails it, or lists what is left.
                bad.insert(piece);
                continue;
            }
            let at = byte_range(piece.start - sector, piece.end - piece.start);
            let from = WriteFrom::Shared(bytes.clone(), at);
            match self.write_member(there, piece.start, from, fua, behind).await {
                Ok(()) if !self.array.rules.keep(Rule::PiecesAreAllTried) => left.clear(),
                Ok(()) => {}
                Err(error) if error.kind.scope() == Scope::Sectors => {
                    left.extend(halves_or_bad(&piece, block, &mut bad));
                }
                Err(error) => return Err((error, range)),
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
}

/// Both halves of a piece, to be tried again; a single block is bad.
pub(super) fn halves_or_bad(
    piece: &Range<u64>,
    block: u64,
    bad: &mut Ranges,
) -> impl Iterator<Item = Range<u64>> + use<> {
    let halves = halves(piece, block);
    if halves.is_none() {
        bad.insert(piece.clone());
    }
    halves.into_iter().flatten()
}
