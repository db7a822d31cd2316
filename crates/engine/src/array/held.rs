//! Which blocks the members of a view hold, and will still be believed to hold after a crash.

use std::ops::Range;

use crate::geometry::{ParityGeometry, Row};

use super::plan::Place;
use super::reconstruct::slot_of;
use super::view::{ArrayView, MemberView};

/// Whether a superblock says, or needs not say, that a member holds these sectors.
pub(super) fn is_on_record(member: &MemberView, sectors: &Range<u64>) -> bool {
    sectors.end <= member.recorded_sectors.min(member.filled_sectors)
        && !member.holes.overlaps(sectors)
}

/// Whether a member will be believed about all of these sectors.
fn is_believed(member: &MemberView, sectors: &Range<u64>) -> bool {
    is_on_record(member, sectors) && !member.bad.overlaps(sectors)
}

/// Whether a data block of a row can be had in these sectors, which are all alike: from its member, or by
/// parity that is not in doubt. However long that takes.
pub(super) fn in_row(
    view: &ArrayView,
    map: &ParityGeometry,
    row: &Row,
    place: Place,
    sectors: &Range<u64>,
) -> bool {
    let data_count = usize::from(map.data_disks());
    let parity_count = usize::from(map.parity_disks());
    let is_there = |place: Place| {
        let member = view.member(slot_of(row, data_count, place));
        member.is_some_and(|member| is_believed(member, sectors))
    };
    if is_there(place) {
        return true;
    }
    let places = data_count + parity_count;
    let lacking = (0..places).filter(|&place| !is_there(place)).count();
    lacking <= parity_count && !view.in_doubt(sectors, lacking <= 1)
}
