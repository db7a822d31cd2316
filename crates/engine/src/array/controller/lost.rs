//! Which sectors of the array nobody can give any more: for users, who may have them elsewhere.

use crate::geometry::{Geometry, Slot};
use crate::ranges::Ranges;

use super::super::mirror::copies;
use super::super::view::ArrayView;
use super::Controller;

/// Most listed sectors of members that are looked at.
const LOOKED_AT_MAX: usize = 1 << 16;

impl Controller {
    /// Sectors of the array that are lost to bad blocks: too many members lack them. What whole members
    /// lack that are missing is not among them, for there is another word for that.
    pub(super) fn lost_to_bad_blocks(&self) -> Ranges {
        let view = self.array.views.current();
        if self.mode == super::WriteMode::Broken {
            return Ranges::default();
        }
        let bad = view.present().flat_map(|(slot, member)| {
            let sectors = member.bad.iter().flatten();
            sectors.map(move |sector| (slot, sector))
        });
        let lost = |(slot, sector)| lost_with(&view, &self.unresolved, slot, sector);
        bad.take(LOOKED_AT_MAX).flat_map(lost).collect()
    }
}

/// The sectors of the array that are lost where `slot` lacks one. In `unresolved` ranges the parities
/// disagree.
fn lost_with(
    view: &ArrayView,
    unresolved: &Ranges,
    slot: Slot,
    sector: u64,
) -> Vec<std::ops::Range<u64>> {
    let geometry = &*view.geometry;
    let lacks = |slot: Slot, sector: u64| {
        view.member(slot).is_none_or(|member| !member.can_wait_for(sector, 1))
    };
    let of = |slot| geometry.inverse(slot, sector).map(|sector| sector..sector + 1);
    match geometry {
        Geometry::Parity(map) => {
            let slots = (0..geometry.raid_disks()).map(Slot);
            let lacking: Vec<Slot> = slots.filter(|slot| lacks(*slot, sector)).collect();
            let (parities, here) = (usize::from(map.parity_disks()), sector..sector + 1);
            // Parity in doubt makes up for nothing, unless a second one says the same.
            let compares = lacking.len() < parities && !unresolved.overlaps(&here);
            let in_doubt = view.doubted.overlaps(&here) && !compares;
            match lacking.len() > parities || in_doubt {
                true => lacking.into_iter().filter_map(of).collect(),
                false => Vec::new(),
            }
        }
        Geometry::Raid1(_) | Geometry::Raid10(_) => {
            let lost = geometry.inverse(slot, sector).filter(|at| {
                copies(geometry, *at, 1).iter().all(|copy| lacks(copy.slot, copy.member_sector))
            });
            lost.map(|sector| sector..sector + 1).into_iter().collect()
        }
        Geometry::Linear(_) | Geometry::Raid0(_) => of(slot).into_iter().collect(),
    }
}
