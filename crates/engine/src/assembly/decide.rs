//! Which devices make the array, and whether it may start.

mod belonging;
mod decided;
mod lineage;
mod refusal;
mod replacement;
mod roles;
mod served_block;
mod unsynced;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use mdspace_format::new_array::FIRST_EVENTS;
use mdspace_format::superblock::RESYNC_NONE;
use mdspace_format::{Level, Superblock, Uuid};

use crate::array::plan::PLACES_MAX;
use crate::array::settings::StartSettings;
use crate::array::{Start, StartMember};
use crate::backend::MemberId;
use crate::geometry::{Geometry, Shape, Slot};
use crate::neighbours::Neighbours;

use super::read::Candidate;
use belonging::{
    Freshest, freshest, leave_out_unserved, newest, of_one_array, refuse_copies,
    refuse_disagreement, refuse_if_it_went_on, refuse_unhandled, rivals,
};
pub use roles::missing_members;
use roles::{in_sync_at, is_in_sync, refuse_crowding, refuse_surprise, sort_out};
use served_block::{block_bytes, refuse_misfit};
use unsynced::{
    bitmap, by_bitmap, copies_differ, refuse_short_bitmap, refuse_tight_bitmap, unsynced,
};

pub use decided::Decided;
pub use refusal::{LeftOut, Reason, Refusal};

/// What the user allows.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Start although members are missing that the superblocks count on.
    pub run: bool,
    /// Start a dirty array with members missing, taking its parity as it is; or one that may have gone on with
    /// members that are missing.
    pub force: bool,
    /// Refuse writes.
    pub read_only: bool,
    /// Take only members of this array.
    pub uuid: Option<Uuid>,
    /// Where each half of the members ran alone: the name of a member of the half to go on with.
    pub prefer: Option<String>,
    /// What was decided when [`prefer`](Self::prefer) was said before. Without a new word that stands.
    pub decided: Vec<Decided>,
    /// What is fixed for as long as the array runs.
    pub settings: StartSettings,
    /// Who knows which other arrays sync on the same devices; without, the array cares for none.
    pub neighbours: Option<Arc<dyn Neighbours>>,
}

/// An array that may start.
#[derive(Debug)]
pub struct Assembly {
    /// What to start.
    pub start: Start,
    /// Devices that take no part, and why.
    pub left_out: Vec<LeftOut>,
    /// What the next start is to know of decisions, if there were any.
    pub decided: Vec<Decided>,
    /// Slots without a member in sync.
    pub degraded: usize,
    /// Sectors of each member in which a crash may have left parity half-written, and
    /// [`force`](Options::force) has missing blocks computed from it all the same.
    pub accepted_sectors: u64,
}

/// Decides about `candidates`.
pub fn decide(candidates: Vec<Candidate>, options: &Options) -> Result<Assembly, Refusal> {
    let rivals = rivals(&candidates, options);
    decide_among(candidates, options).map_err(|refusal| match refusal {
        Refusal::Duplicate { .. } | Refusal::DifferentArrays { .. } | Refusal::NoneOfIt { .. } => {
            rivals.unwrap_or(refusal)
        }
        refusal => refusal,
    })
}

fn decide_among(candidates: Vec<Candidate>, options: &Options) -> Result<Assembly, Refusal> {
    let mut left_out = Vec::new();
    let candidates = of_one_array(candidates, options, &mut left_out)?;
    let candidates = decided::leave_out(candidates, options, &mut left_out)?;
    refuse_copies(&candidates)?;
    let newest = newest(&candidates)?;
    refuse_unhandled(&candidates[newest])?;
    refuse_if_it_went_on(&candidates, newest, options)?;
    let Freshest { index: freshest, is_preferred } = freshest(&candidates, newest, options)?;
    let model = candidates[freshest].superblock.clone();
    let freshest = candidates[freshest].info.name.clone();
    let present = decided::Present::all(&candidates);
    let sorted = sort_out(candidates, &model, &mut left_out);
    let block_bytes = block_bytes(&sorted);
    let mut members = sorted.members;
    let decided = decided::to_remember(model.set_uuid, &present, &left_out, options, is_preferred);
    // Before anything is decided that no superblock says yet.
    let behind = behind(&members, &model);
    // What is out of date may differ, and have what is not handled: the array went on without it, and may have
    // changed.
    let refuse = |member: &Candidate| {
        refuse_unhandled(member)?;
        refuse_disagreement(member, &model, &freshest)?;
        refuse_misfit(member, block_bytes)
    };
    let of_all = bitmap(&members, &model);
    leave_out_unserved(&mut members, &mut left_out, |member| {
        refuse(member)?;
        refuse_tight_bitmap(of_all.as_ref(), member)
    });
    members.iter().try_for_each(refuse)?;
    let replacements: Vec<MemberId> =
        members.iter().filter(|member| roles::replaces(member)).map(|member| member.id).collect();
    let mut members = replacement::pair_up(members, &model, &mut left_out)?;
    refuse_crowding(&members)?;
    let geometry = geometry(&model, &members)?;
    let are_enough = |members: &[Candidate]| {
        geometry.enough(&|slot| members.iter().any(|member| in_sync_at(member, slot)))
    };
    if options.force && !are_enough(&members) {
        replacement::stand_in(&mut members, &model);
    }
    let in_sync = |slot: Slot| members.iter().any(|member| in_sync_at(member, slot));
    let needed = usize::from(geometry.raid_disks());
    let present = (0..geometry.raid_disks()).filter(|slot| in_sync(Slot(*slot))).count();
    if !are_enough(&members) {
        return Err(Refusal::TooFew { present, needed });
    }
    let lacks_listed = refuse_surprise(&model, &members, options)?;
    let degraded = needed - present;
    let clean = model.resync_offset_sectors == RESYNC_NONE;
    let has_parity = model.level.has_parity();
    if !clean && degraded > 0 && has_parity && !options.force {
        return Err(Refusal::DirtyDegraded);
    }
    let bitmap = bitmap(&members, &model);
    refuse_short_bitmap(bitmap.as_ref(), &geometry)?;
    members.iter().try_for_each(|member| refuse_tight_bitmap(bitmap.as_ref(), member))?;
    let mut unsynced = unsynced(&model, &geometry, bitmap.as_ref());
    if !clean {
        replacement::distrust(&mut members, &geometry, &unsynced);
    }
    replacement::fill_slots(&mut members);
    let crashed = !clean && !is_first_resync(&model);
    // Forced: lost blocks are computed from parity as it is.
    let accepts_doubt = crashed && has_parity && options.force;
    let accepted_sectors = if accepts_doubt { unsynced.sectors() } else { 0 };
    if let Geometry::Parity(map) = &geometry
        && degraded > 0
    {
        // As many blocks are missing as there are parities: nothing is left that could disagree. Below,
        // where a rebuild has been, the rest of parity is made right.
        unsynced.remove(&(map.comparable_to(|slot| filled_to(&members, slot))..u64::MAX));
    }
    let started = |member: Candidate| {
        // That it is in sync was decided here, and its superblock is yet to say so.
        let is_on_record = !replacements.contains(&member.id) || !is_in_sync(&member);
        start_member(member, &behind, is_on_record)
    };
    let start = Start {
        block_bytes,
        events: model.events,
        read_only: options.read_only,
        crashed,
        lacks_listed,
        accepts_doubt,
        unsynced,
        by_bitmap: by_bitmap(&members, &replacements, bitmap.as_ref(), &model),
        copies_differ: copies_differ(&members, bitmap.as_ref()),
        bitmap,
        settings: options.settings,
        neighbours: options.neighbours.clone(),
        members: members.into_iter().map(started).collect(),
        geometry,
    };
    Ok(Assembly { start, left_out, decided, degraded, accepted_sectors })
}

/// Whether the array has never been in sync, and parity is right wherever something was written: it has
/// not run yet, or mdspace stopped it in its first resync. md also writes how far a resync came that
/// followed a crash: what it leaves may be half-written.
fn is_first_resync(model: &Superblock) -> bool {
    let has_run = match model.is_by_mdspace() {
        true => model.events > FIRST_EVENTS,
        false => model.events > 0,
    };
    !has_run || model.is_by_mdspace() && model.resync_offset_sectors != 0
}

/// Up to where, in member sectors, the member of a slot has its blocks.
fn filled_to(members: &[Candidate], slot: Slot) -> u64 {
    let holder = members.iter().find(|member| {
        member.superblock.own_role().slot() == Some(slot.0) && !roles::replaces(member)
    });
    match holder {
        Some(member) => member.superblock.recovery_offset_sectors.unwrap_or(u64::MAX),
        None => 0,
    }
}

fn geometry(model: &Superblock, members: &[Candidate]) -> Result<Geometry, Refusal> {
    let sizes = (0..model.raid_disks).map(|slot| {
        let holds =
            |member: &&Candidate| member.superblock.own_role().slot().map(u32::from) == Some(slot);
        members.iter().find(holds).map_or(0, |member| member.superblock.data_size_sectors)
    });
    let by_size = sized_by_members(model.level);
    let sizes: Vec<u64> = if by_size { sizes.collect() } else { Vec::new() };
    if by_size && sizes.contains(&0) {
        let present = sizes.iter().filter(|size| **size > 0).count();
        return Err(Refusal::TooFew { present, needed: sizes.len() });
    }
    Ok(Geometry::new(&shape(model, sizes)?)?)
}

/// Whether the level uses all of each member, so that their sizes say where things lie.
fn sized_by_members(level: Level) -> bool {
    matches!(level, Level::Linear | Level::Raid0)
}

fn shape(model: &Superblock, member_sizes: Vec<u64>) -> Result<Shape, Refusal> {
    if model.level.has_parity() && model.raid_disks as usize > PLACES_MAX {
        let feature = format!("more than {PLACES_MAX} members with parity are not handled");
        return Err(Refusal::Unsupported { member: "the array".to_owned(), feature });
    }
    Ok(Shape {
        level: model.level,
        layout: model.layout,
        raid_disks: u16::try_from(model.raid_disks).unwrap_or(u16::MAX),
        chunk_sectors: model.chunk_sectors,
        member_sectors: model.size_sectors,
        member_sizes,
    })
}

/// What members have missed of the update that the freshest superblock shows.
fn behind(members: &[Candidate], model: &Superblock) -> BTreeMap<MemberId, Superblock> {
    let events = model.events;
    let behind = members.iter().filter(|member| member.superblock.events < events);
    behind.map(|member| (member.id, Superblock { events, ..member.superblock.clone() })).collect()
}

fn start_member(
    member: Candidate,
    behind: &BTreeMap<MemberId, Superblock>,
    is_on_record: bool,
) -> StartMember {
    StartMember {
        is_on_record,
        behind: behind.get(&member.id).cloned(),
        id: member.id,
        info: member.info,
        superblock: member.superblock,
        log: member.bad_blocks.unwrap_or_default(),
    }
}
