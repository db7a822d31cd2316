//! Members that are to take a slot over from another, as they are found.

use mdspace_format::{Features, Superblock};

use super::super::read::Candidate;
use super::roles::replaces;
use super::{LeftOut, Reason, Refusal, sized_by_members};
use crate::array::rules::{Rule, keep};
use crate::geometry::Geometry;
use crate::ranges::Ranges;

/// Brings every slot to one member, and perhaps a replacement that lacks some of its data.
///
/// | in the slot besides | the replacement | what becomes of it |
/// |---|---|---|
/// | nothing, and the array counts on no other | any | it is the member |
/// | nothing, and the array counts on another | has all, and no writes were under way | it is the member |
/// | nothing, and the array counts on another | lacks some, or writes were under way | the array starts only when told to; it is a member that lacks some, or see [`stand_in`] |
/// | a member | lacks some, or writes were under way | it replaces the member |
/// | a member | has all | it is the member, and the other is left out |
pub(super) fn pair_up(
    mut members: Vec<Candidate>,
    model: &Superblock,
    left_out: &mut Vec<LeftOut>,
) -> Result<Vec<Candidate>, Refusal> {
    if let Some(member) = members.iter().find(|member| replaces(member))
        && sized_by_members(model.level)
    {
        let feature = "feature REPLACEMENT is not for levels without redundancy".to_owned();
        return Err(Refusal::Unsupported { member: member.info.name.clone(), feature });
    }
    let clean = model.resync_offset_sectors == mdspace_format::superblock::RESYNC_NONE;
    for index in 0..members.len() {
        if !replaces(&members[index]) {
            continue;
        }
        let role = members[index].superblock.own_role();
        let superblock = &mut members[index].superblock;
        // Recorded so before the old member is given up. After a crash the two may differ.
        let has_all = has_all(superblock, model);
        let listed = model.roles.iter().filter(|other| **other == role).count();
        let may_take_over = clean || !keep(Rule::CrashedReplacementsWait);
        if listed > 1 && !(has_all && may_take_over) {
            superblock.recovery_offset_sectors.get_or_insert(model.size_sectors);
            continue;
        }
        superblock.features = superblock.features.with(Features::REPLACEMENT, false);
        if has_all {
            superblock.recovery_offset_sectors = None;
        }
        let name = members[index].info.name.clone();
        for other in &mut members {
            let is_old = other.info.name != name && other.superblock.own_role() == role;
            if is_old && !replaces(other) {
                let (member, reason) = (other.info.name.clone(), Reason::Replaced(name.clone()));
                left_out.push(LeftOut { member, reason });
            }
        }
    }
    members.retain(|member| left_out.iter().all(|out| !is_replaced(out, member)));
    Ok(members)
}

/// By force: replacements that have all are the members of slots whose own are missing. What was being written when the
/// array crashed may not be on them.
pub(super) fn stand_in(members: &mut [Candidate], model: &Superblock) {
    for index in 0..members.len() {
        let superblock = &members[index].superblock;
        if replaces(&members[index]) && has_all(superblock, model) && !is_held(members, superblock)
        {
            let superblock = &mut members[index].superblock;
            superblock.features = superblock.features.with(Features::REPLACEMENT, false);
            superblock.recovery_offset_sectors = None;
        }
    }
}

fn has_all(superblock: &Superblock, model: &Superblock) -> bool {
    superblock.recovery_offset_sectors.is_none_or(|done| done >= model.size_sectors)
}

/// Whether the slot of a replacement has a member.
fn is_held(members: &[Candidate], replacement: &Superblock) -> bool {
    let role = replacement.own_role();
    members.iter().any(|other| other.superblock.own_role() == role && !replaces(other))
}

/// Replacements of members that are missing are members that lack data.
pub(super) fn fill_slots(members: &mut [Candidate]) {
    for index in 0..members.len() {
        if replaces(&members[index]) && !is_held(members, &members[index].superblock) {
            let superblock = &mut members[index].superblock;
            superblock.features = superblock.features.with(Features::REPLACEMENT, false);
        }
    }
}

fn is_replaced(out: &LeftOut, member: &Candidate) -> bool {
    out.member == member.info.name && matches!(out.reason, Reason::Replaced(_))
}

/// After a crash a write may have come to a member and not to its replacement: what is below is copied,
/// from the first such place on it is copied again.
pub(super) fn distrust(members: &mut [Candidate], geometry: &Geometry, unsynced: &Ranges) {
    let Some(first) = unsynced.iter().next() else { return };
    if !keep(Rule::ReplacementsAreDistrusted) {
        return;
    }
    // RAID10 counts sectors of the array.
    let first = if matches!(geometry, Geometry::Raid10(_)) { 0 } else { first.start };
    for member in members.iter_mut().filter(|member| replaces(member)) {
        let done = member.superblock.recovery_offset_sectors.unwrap_or(0);
        member.superblock.recovery_offset_sectors = Some(done.min(first));
    }
}

#[cfg(test)]
mod tests;
