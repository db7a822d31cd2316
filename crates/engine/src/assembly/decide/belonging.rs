//! Which candidates belong together, and which of them knows best.

use mdspace_format::superblock::EVENTS_MAX;
use mdspace_format::{Role, Superblock};

use super::super::read::{Candidate, FoundBitmap};
use super::lineage::Lineage;
use super::roles::{is_in_sync, replaces};
use super::{LeftOut, Options, Reason, Refusal, shape, sized_by_members};
use crate::geometry::Geometry;

/// Most updates of an array that starts: it never comes to those that a superblock may not count.
const EVENTS_TO_START: u64 = EVENTS_MAX / 2;

/// The candidates of one array: the one asked for, or the only one there is.
pub(super) fn of_one_array(
    candidates: Vec<Candidate>,
    options: &Options,
    left_out: &mut Vec<LeftOut>,
) -> Result<Vec<Candidate>, Refusal> {
    let Some(first) = candidates.first() else { return Err(Refusal::NoMembers) };
    let wanted = options.uuid.unwrap_or(first.superblock.set_uuid);
    let stranger = candidates.iter().find(|member| member.superblock.set_uuid != wanted);
    if let (None, Some(other)) = (options.uuid, stranger) {
        return Err(Refusal::DifferentArrays {
            first: first.info.name.clone(),
            first_uuid: wanted,
            other: other.info.name.clone(),
            other_uuid: other.superblock.set_uuid,
        });
    }
    let stranger = stranger.map(|other| (other.info.name.clone(), other.superblock.set_uuid));
    let (ours, others): (Vec<_>, Vec<_>) =
        candidates.into_iter().partition(|member| member.superblock.set_uuid == wanted);
    left_out.extend(
        others
            .into_iter()
            .map(|member| LeftOut { member: member.info.name, reason: Reason::OtherArray }),
    );
    match (ours.is_empty(), stranger) {
        (true, Some((member, found))) => Err(Refusal::NoneOfIt { wanted, member, found }),
        _ => Ok(ours),
    }
}

/// What to say of a member that may belong to another array than it is taken to, where the array that is wanted does not
/// tell.
pub(super) fn rivals(candidates: &[Candidate], options: &Options) -> Option<Refusal> {
    candidates.iter().find_map(|member| {
        let (taken, rival) = (&member.superblock, member.rival.as_ref()?);
        let uuids = [taken.set_uuid, rival.set_uuid];
        let is_settled = options.uuid.is_some_and(|wanted| uuids.contains(&wanted));
        (!is_settled && uuids[0] != uuids[1]).then(|| Refusal::TwoSuperblocks {
            member: member.info.name.clone(),
            taken: uuids[0],
            taken_sector: taken.place.sector,
            rival: uuids[1],
            rival_sector: rival.place.sector,
        })
    })
}

/// A number alone is no proof of a copy: that of a member that was removed may go to another.
pub(super) fn refuse_copies(candidates: &[Candidate]) -> Result<(), Refusal> {
    for (index, first) in candidates.iter().enumerate() {
        let same =
            |other: &&Candidate| other.superblock.device_uuid == first.superblock.device_uuid;
        if let Some(other) = candidates[index + 1..].iter().find(same) {
            return Err(Refusal::Duplicate {
                first: first.info.name.clone(),
                other: other.info.name.clone(),
            });
        }
    }
    Ok(())
}

/// Refuses what cannot be served of a member that is to be used, or that tells what the others are.
pub(super) fn refuse_unhandled(candidate: &Candidate) -> Result<(), Refusal> {
    let member = candidate.info.name.clone();
    if let Some(feature) = candidate.superblock.unsupported_features().first() {
        return Err(Refusal::Unsupported { member, feature: feature.to_string() });
    }
    let events = candidate.superblock.events;
    if events > EVENTS_TO_START {
        return Err(Refusal::TooManyUpdates { member, events });
    }
    if let FoundBitmap::Refused(error) = &candidate.bitmap {
        return Err(Refusal::Unsupported { member, feature: error.to_string() });
    }
    if let Err(reason) = &candidate.bad_blocks {
        return Err(Refusal::BadBlocks { member, reason: reason.clone() });
    }
    Ok(())
}

/// The member with the most events among those with a slot of their own. It tells what the others are, so that
/// one of these counts that can be served. A replacement that cannot be is done without, and so is an update that it
/// alone has seen, where all are here that it counts on.
pub(super) fn newest(candidates: &[Candidate]) -> Result<usize, Refusal> {
    let slots = (0..candidates.len()).filter(|&index| has_slot(&candidates[index]));
    let rank = |index: &usize| {
        let candidate = &candidates[*index];
        let is_served = refuse_unhandled(candidate).is_ok();
        let is_needed = is_served || !replaces(candidate);
        (is_needed, candidate.superblock.events, is_served)
    };
    slots.max_by_key(rank).ok_or(Refusal::NoMembers)
}

/// The array has no need of a spare, nor of a replacement whose slot is held by a member in sync: one that
/// cannot be served keeps nothing from starting.
pub(super) fn leave_out_unserved(
    members: &mut Vec<Candidate>,
    left_out: &mut Vec<LeftOut>,
    serves: impl Fn(&Candidate) -> Result<(), Refusal>,
) {
    let held: Vec<Role> = members
        .iter()
        .filter(|member| !replaces(member) && is_in_sync(member) && serves(member).is_ok())
        .map(|member| member.superblock.own_role())
        .collect();
    members.retain(|member| {
        let role = member.superblock.own_role();
        let is_needed = role != Role::Spare && !(replaces(member) && held.contains(&role));
        let Err(refusal) = serves(member) else { return true };
        if !is_needed {
            let reason = Reason::Unreadable(refusal.to_string());
            left_out.push(LeftOut { member: member.info.name.clone(), reason });
        }
        is_needed
    });
}

/// An update that only spares have seen, or a replacement that cannot be served, either never ended, and then all
/// members that it counts on are here; or it is on a member that is missing, which went on alone. A spare that it
/// gave a slot may not have heard of it.
pub(super) fn refuse_if_it_went_on(
    candidates: &[Candidate],
    newest: usize,
    options: &Options,
) -> Result<(), Refusal> {
    let events = candidates[newest].superblock.events;
    let is_here = |number: usize, update: u64| {
        let of_the_number = |member: &&Candidate| member.superblock.dev_number as usize == number;
        let is_due = |member: &Candidate| member.superblock.events + 1 == update;
        candidates.iter().filter(of_the_number).any(|member| has_slot(member) || is_due(member))
    };
    let counts_on_others = |spare: &&Candidate| {
        let roles = spare.superblock.roles.iter().enumerate();
        let mut active = roles.filter(|(_, role)| role.slot().is_some());
        let update = spare.superblock.events;
        update > events && active.any(|(number, _)| !is_here(number, update))
    };
    match candidates.iter().find(counts_on_others).filter(|_| !options.force) {
        Some(spare) => Err(Refusal::WentOnElsewhere { spare: spare.info.name.clone() }),
        None => Ok(()),
    }
}

pub(super) fn has_slot(candidate: &Candidate) -> bool {
    candidate.superblock.own_role().slot().is_some()
}

/// The member that knows best: one with the most events whose history is that of all. Where several
/// have as many, one may be of an update that a crash kept from the others, which then went on
/// without it. One that is being filled may have got its slot in that update: it tells something where none of the
/// others has as many.
pub(super) fn freshest(
    candidates: &[Candidate],
    newest: usize,
    options: &Options,
) -> Result<Freshest, Refusal> {
    let by_itself = |index| Ok(Freshest { index, is_preferred: false });
    let model = &candidates[newest].superblock;
    if sized_by_members(model.level) {
        return by_itself(newest);
    }
    let geometry = Geometry::new(&shape(model, Vec::new())?)?;
    let lineage = Lineage { candidates, geometry: &geometry };
    let as_new = |index: &usize| {
        let candidate = &candidates[*index];
        has_slot(candidate)
            && candidate.superblock.events == model.events
            && refuse_unhandled(candidate).is_ok()
    };
    let mut new: Vec<usize> = (0..candidates.len()).filter(as_new).collect();
    if new.iter().any(|&index| is_in_sync(&candidates[index])) {
        new.retain(|&index| is_in_sync(&candidates[index]));
    }
    // A replacement may be done without, and the others not.
    new.sort_by_key(|index| replaces(&candidates[*index]));
    let apart: Vec<_> = new.into_iter().map(|index| (index, lineage.apart_from(index))).collect();
    if let Some((index, _)) = apart.iter().find(|(_, other)| other.is_none()) {
        return by_itself(*index);
    }
    let preferred = |name: &String| {
        candidates.iter().position(|member| member.info.name == *name && has_slot(member))
    };
    let other = apart[0].1.expect("none stands alone");
    let preferred = options.prefer.as_ref().and_then(preferred);
    let preferred = preferred.map(|index| Freshest { index, is_preferred: true });
    preferred.ok_or_else(|| Refusal::SplitBrain {
        first: candidates[apart[0].0].info.name.clone(),
        other: candidates[other].info.name.clone(),
    })
}

/// The member that knows best.
pub(super) struct Freshest {
    pub(super) index: usize,
    /// Others know as much of another history: the operator has decided.
    pub(super) is_preferred: bool,
}

pub(super) fn refuse_disagreement(
    candidate: &Candidate,
    model: &Superblock,
    freshest: &str,
) -> Result<(), Refusal> {
    let (one, other) = (model, &candidate.superblock);
    let field = match () {
        () if one.level != other.level => "level",
        () if one.layout != other.layout => "layout",
        () if one.chunk_sectors != other.chunk_sectors => "chunk size",
        () if one.size_sectors != other.size_sectors => "member size",
        () if one.raid_disks != other.raid_disks => "number of members",
        () => return Ok(()),
    };
    let (member, freshest) = (candidate.info.name.clone(), freshest.to_owned());
    Err(Refusal::Disagree { member, freshest, field })
}
