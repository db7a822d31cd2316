//! What is not known to be in sync, by the superblocks and the bitmap.

use mdspace_format::bitmap::BitmapState;
use mdspace_format::superblock::RESYNC_NONE;
use mdspace_format::{BitmapSuperblock, DirtyMap, Features, Level, Superblock};

use super::super::read::Candidate;
use super::Refusal;
use crate::array::rules::{Rule, keep};
use crate::backend::MemberId;
use crate::geometry::Geometry;
use crate::ranges::Ranges;

/// The bitmap of the array: every bit that any member's fresh copy has set. Without one every bit
/// counts as set; damage may only ever make resync longer.
pub(super) fn bitmap(
    members: &[Candidate],
    model: &Superblock,
) -> Option<(BitmapSuperblock, DirtyMap)> {
    let mut copies: Vec<_> = members.iter().filter_map(|member| member.bitmap.good()).collect();
    let is_fresh =
        |(header, _): &(&BitmapSuperblock, _)| header.speaks_for(model.set_uuid, model.events);
    let any_fresh = copies.iter().any(is_fresh);
    copies.retain(|copy| !any_fresh || is_fresh(copy));
    let (&(header, map), others) = copies.split_first()?;
    let (mut header, mut map) = (header.clone(), map.clone());
    let others = if keep(Rule::EveryBitmapCounts) { others } else { &[] };
    for (other, bits) in others {
        let same_cut = other.chunk_bytes == header.chunk_bytes && bits.chunks() == map.chunks();
        if same_cut {
            map.merge(bits)
        } else {
            map.set_all()
        }
        // Bits may be clear that were set before the latest of these updates, on any copy.
        header.events_cleared = header.events_cleared.max(other.events_cleared);
    }
    if !any_fresh && keep(Rule::OldBitmapsCountAsFull) {
        map.set_all();
        // Nothing tells what was cleared before, so who left before cannot come back by what is set later.
        (header.events, header.events_cleared) = (model.events, model.events);
    }
    header.uuid = model.set_uuid;
    header.state.0 &= !BitmapState::STALE;
    Some((header, map))
}

/// Whether some member's copy of the bitmap says less, or something else, than all together.
pub(super) fn copies_differ(
    members: &[Candidate],
    bitmap: Option<&(BitmapSuperblock, DirtyMap)>,
) -> bool {
    let Some((header, map)) = bitmap else { return false };
    members.iter().any(|member| member.bitmap.good() != Some((header, map)))
}

/// A member whose own bitmap is damaged gets that of the others, which must not lie over what comes next.
pub(super) fn refuse_tight_bitmap(
    bitmap: Option<&(BitmapSuperblock, DirtyMap)>,
    member: &Candidate,
) -> Result<(), Refusal> {
    let Candidate { superblock, info, .. } = member;
    match bitmap {
        Some((header, _)) if !superblock.has_room_for(header, info.logical_block_bytes) => {
            Err(Refusal::NoRoomForBitmap { member: info.name.clone() })
        }
        _ => Ok(()),
    }
}

pub(super) fn refuse_short_bitmap(
    bitmap: Option<&(BitmapSuperblock, DirtyMap)>,
    geometry: &Geometry,
) -> Result<(), Refusal> {
    let needed = sync_sectors(geometry);
    match bitmap.map(|(header, _)| header.sync_size_sectors) {
        Some(covered) if covered < needed => Err(Refusal::ShortBitmap { covered, needed }),
        _ => Ok(()),
    }
}

/// Sectors as resync and the bitmap count them: of the array for RAID10, of a member otherwise.
fn sync_sectors(geometry: &Geometry) -> u64 {
    match geometry {
        Geometry::Raid10(map) => map.array_sectors(),
        Geometry::Parity(map) => map.rows() * u64::from(map.chunk_sectors()),
        geometry => geometry.array_sectors(),
    }
}

/// What resync has to look at.
pub(super) fn unsynced(
    model: &Superblock,
    geometry: &Geometry,
    bitmap: Option<&(BitmapSuperblock, DirtyMap)>,
) -> Ranges {
    let from = model.resync_offset_sectors;
    if from == RESYNC_NONE || geometry.max_failures() == 0 {
        return Ranges::default();
    }
    let end = sync_sectors(geometry);
    if !keep(Rule::CrashesLeaveWork) {
        return Ranges::default();
    }
    let mut ranges = match bitmap {
        Some((header, map)) => map.ranges().map(|chunks| header.sectors_of(chunks)).collect(),
        None => Ranges::of(0..end),
    };
    ranges.remove(&(0..from));
    ranges.remove(&(end..u64::MAX));
    ranges
}

/// Members whose interrupted recovery was one by the bitmap. md clears a bit when the first of its places
/// on a member is copied. On far layouts another place waits in a later part of the member, and nothing
/// marks it: what md left half-way there is copied in full from its offset on.
///
/// So is a member that was found as a replacement. Its slot had a member in sync, and the array was whole: bits
/// were cleared of writes that the replacement lacks. md puts the flag on one that was re-added as a spare.
pub(super) fn by_bitmap(
    members: &[Candidate],
    replacements: &[MemberId],
    bitmap: Option<&(BitmapSuperblock, DirtyMap)>,
    model: &Superblock,
) -> Vec<MemberId> {
    let is_far = model.level == Level::Raid10 && model.layout >> 8 & 0xff > 1;
    if is_far && !model.is_by_mdspace() {
        return Vec::new();
    }
    let marked = |member: &&Candidate| {
        let features = member.superblock.features;
        bitmap.is_some()
            && !replacements.contains(&member.id)
            && member.superblock.recovery_offset_sectors.is_some()
            && features.contains(Features::RECOVERY_BITMAP)
    };
    members.iter().filter(marked).map(|member| member.id).collect()
}

#[cfg(test)]
mod tests;
