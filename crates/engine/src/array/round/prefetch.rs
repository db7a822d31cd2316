//! Says what the next round will read and write, while this one runs.
//!
//! A small write to members in memory spends half of its time on blocks that no cache of the CPU has: also
//! one that is only written is read by the CPU first. It fetches them beside other work, if it hears of
//! them early enough.

use smallvec::SmallVec;

use crate::backend::MemberId;
use crate::geometry::{Geometry, ParityGeometry};

use super::super::array_lane::{ArrayLane, SECTOR_BYTES};
use super::super::view::ArrayView;
use super::Round;

impl ArrayLane {
    /// Tells the backend what the round that comes next will read and write.
    pub(in super::super) fn prefetch(&self, round: &Round) {
        if round.pieces.len() > 1 {
            return;
        }
        let bytes = (round.columns.end - round.columns.start) as usize * SECTOR_BYTES;
        self.with_view(|view| {
            let Geometry::Parity(map) = &*view.geometry else { unreachable!("a parity array") };
            self.lane.backend().prefetch(&likely_blocks(view, map, round), bytes);
        });
    }
}

/// What a round of one piece will probably read and then write, and where it lies: the old block and
/// parity; before them the other data blocks, where these are fewer or the block is lost.
fn likely_blocks(
    view: &ArrayView,
    map: &ParityGeometry,
    round: &Round,
) -> SmallVec<[(MemberId, u64); 4]> {
    let row = map.row(round.row);
    let start = row.member_sector() + u64::from(round.columns.start);
    let own = row.data(round.pieces[0].place as u16);
    let old = [Some(own), Some(row.p()), row.q()].into_iter().flatten();
    let others = (0..map.data_disks()).map(|place| row.data(place)).filter(|slot| *slot != own);
    let lies_at = |slot| view.member(slot).map(|member| (member.id, member.data_offset + start));
    let fewer = view.whole && map.data_disks() < 2 + map.parity_disks();
    if fewer || view.member(own).is_none() {
        others.chain(old).filter_map(lies_at).collect()
    } else {
        old.filter_map(lies_at).collect()
    }
}
