//! Which devices make the array, and whether it may start.

mod lineage;
mod replacement;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use mdspace_format::bad_blocks::BadBlocks;
use mdspace_format::bitmap::BitmapState;
use mdspace_format::superblock::RESYNC_NONE;
use mdspace_format::{BitmapSuperblock, DirtyMap, Features, Level, Role, Superblock, Uuid};

use crate::array::plan::PLACES_MAX;
use crate::array::settings::StartSettings;
use crate::array::{Start, StartMember};
use crate::geometry::{Geometry, GeometryError, Shape, Slot};
use crate::ranges::Ranges;

use super::read::{Candidate, FoundBitmap};
use lineage::{Lineage, is_stranger};

/// What the user allows.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Start although members are missing that the superblocks count on.
    pub run: bool,
    /// Start a dirty array with members missing, taking its parity as it is.
    pub force: bool,
    /// Refuse writes.
    pub read_only: bool,
    /// Take only members of this array.
    pub uuid: Option<Uuid>,
    /// Where each half of the members ran alone: the name of a member of the half to go on with.
    pub prefer: Option<String>,
    /// What is fixed for as long as the array runs.
    pub settings: StartSettings,
}

/// An array that may start.
#[derive(Debug)]
pub struct Assembly {
    /// What to start.
    pub start: Start,
    /// Devices that take no part, and why.
    pub left_out: Vec<LeftOut>,
    /// Slots without a member in sync.
    pub degraded: usize,
}

/// A device that takes no part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Its name.
    pub member: String,
    /// Why.
    pub reason: Reason,
}

/// Why a device takes no part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// It is no member.
    #[error("has no md superblock")]
    NoSuperblock,
    /// What it says of itself cannot be read, or is damaged: as good as missing.
    #[error("{0}")]
    Unreadable(String),
    /// Another array's.
    #[error("belongs to another array")]
    OtherArray,
    /// Its data are older than the array's.
    #[error("is out of date: {events} events, the array has {freshest}")]
    Stale {
        /// Its events.
        events: u64,
        /// The array's.
        freshest: u64,
    },
    /// Another member holds all that it held, and takes its slot.
    #[error("is replaced by {0}, which has all its data")]
    Replaced(String),
    /// The array says that it failed.
    #[error("is marked as failed")]
    Faulty,
}

/// Why an array does not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No device with a superblock.
    #[error("no member of an array was given")]
    NoMembers,
    /// Several arrays.
    #[error(
        "the members belong to different arrays: {first} to {first_uuid}, {other} to {other_uuid}"
    )]
    DifferentArrays {
        /// A member.
        first: String,
        /// Its array.
        first_uuid: Uuid,
        /// Another member.
        other: String,
        /// Its array.
        other_uuid: Uuid,
    },
    /// The same member twice.
    #[error("{first} and {other} claim to be the same member: one is a copy of the other")]
    Duplicate {
        /// A member.
        first: String,
        /// Its double.
        other: String,
    },
    /// Two members for one slot.
    #[error("{first} and {other} both hold slot {slot}")]
    OneSlot {
        /// The slot.
        slot: u16,
        /// A member.
        first: String,
        /// Another member.
        other: String,
    },
    /// A feature that must not be ignored.
    #[error("{member}: {feature}")]
    Unsupported {
        /// The member.
        member: String,
        /// The feature by name, and that it is not handled.
        feature: String,
    },
    /// Superblocks that contradict each other.
    #[error("{member} disagrees with {freshest} about the array's {field}")]
    Disagree {
        /// The member.
        member: String,
        /// The member with the most events.
        freshest: String,
        /// What they disagree about.
        field: &'static str,
    },
    /// Each half ran without the other.
    #[error("{first} and {other} each ran without the other: what was written differs")]
    SplitBrain {
        /// A member of one half.
        first: String,
        /// A member of the other.
        other: String,
    },
    /// A bad-block list that cannot be read.
    #[error("{member} has a bad-block list that cannot be read: {reason}")]
    BadBlocks {
        /// The member.
        member: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A shape that no array has.
    #[error("the array's shape is impossible: {0}")]
    Geometry(#[from] GeometryError),
    /// A bitmap that does not reach to the end of the array.
    #[error(
        "the bitmap covers {covered} of {needed} sectors, so writes behind it would leave no trace: \
         remove it (mdadm --grow --bitmap=none) and assemble again"
    )]
    ShortBitmap {
        /// Sectors that its bits stand for.
        covered: u64,
        /// Sectors that they should.
        needed: u64,
    },
    /// Not enough members.
    #[error("only {present} of {needed} members are there, not enough to start")]
    TooFew {
        /// Members in sync.
        present: usize,
        /// Slots of the array.
        needed: usize,
    },
    /// Members are missing that were there when the array was last seen.
    #[error("{missing} members are missing that were there when the array last ran")]
    Missing {
        /// How many.
        missing: usize,
    },
    /// Dirty and degraded.
    #[error(
        "the array is dirty and degraded: data of missing members may be wrong where writes were under way"
    )]
    DirtyDegraded,
}

/// Decides about `candidates`.
pub fn decide(candidates: Vec<Candidate>, options: &Options) -> Result<Assembly, Refusal> {
    let mut left_out = Vec::new();
    let candidates = of_one_array(candidates, options, &mut left_out)?;
    refuse_copies(&candidates)?;
    refuse_unhandled(&candidates)?;
    let newest = newest(&candidates)?;
    refuse_disagreement(&candidates, newest)?;
    let freshest = freshest(&candidates, newest, options)?;
    let model = candidates[freshest].superblock.clone();
    let members = sort_out(candidates, &model, &mut left_out);
    let mut members = replacement::pair_up(members, &model, &mut left_out)?;
    refuse_crowding(&members)?;
    let geometry = geometry(&model, &members)?;
    let in_sync = |slot: Slot| members.iter().any(|member| in_sync_at(member, slot));
    let needed = usize::from(geometry.raid_disks());
    let present = (0..geometry.raid_disks()).filter(|slot| in_sync(Slot(*slot))).count();
    if !geometry.enough(&in_sync) {
        return Err(Refusal::TooFew { present, needed });
    }
    refuse_surprise(&model, &members, options)?;
    let degraded = needed - present;
    let clean = model.resync_offset_sectors == RESYNC_NONE;
    let has_parity = model.level.has_parity();
    if !clean && degraded > 0 && has_parity && !options.force {
        return Err(Refusal::DirtyDegraded);
    }
    let bitmap = bitmap(&members, &model);
    refuse_short_bitmap(bitmap.as_ref(), &geometry)?;
    let mut unsynced = unsynced(&model, &geometry, bitmap.as_ref());
    if !clean {
        replacement::distrust(&mut members, &geometry, &unsynced);
    }
    replacement::fill_slots(&mut members);
    let mut crashed = !clean && model.events > 0 && model.resync_offset_sectors == 0;
    let lists = |member: &Candidate| member.superblock.features.contains(Features::BAD_BLOCKS);
    if has_parity && (degraded > 0 || options.force && members.iter().any(lists)) {
        // Forced: lost blocks are computed from parity as it is. What parity is left beyond that is
        // still to be made right.
        crashed = false;
        if degraded >= usize::from(geometry.max_failures()) {
            unsynced = Ranges::default();
        }
    }
    let start = Start {
        events: model.events,
        read_only: options.read_only,
        crashed,
        unsynced,
        by_bitmap: by_bitmap(&members, bitmap.as_ref()),
        copies_differ: copies_differ(&members, bitmap.as_ref()),
        bitmap,
        settings: options.settings,
        members: members.into_iter().map(start_member).collect(),
        geometry,
    };
    Ok(Assembly { start, left_out, degraded })
}

/// The candidates of one array: the one asked for, or the only one there is.
fn of_one_array(
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
    let (ours, others): (Vec<_>, Vec<_>) =
        candidates.into_iter().partition(|member| member.superblock.set_uuid == wanted);
    left_out.extend(
        others
            .into_iter()
            .map(|member| LeftOut { member: member.info.name, reason: Reason::OtherArray }),
    );
    if ours.is_empty() { Err(Refusal::NoMembers) } else { Ok(ours) }
}

/// A number alone is no proof of a copy: that of a member that was removed may go to another.
fn refuse_copies(candidates: &[Candidate]) -> Result<(), Refusal> {
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

fn refuse_unhandled(candidates: &[Candidate]) -> Result<(), Refusal> {
    for candidate in candidates {
        let member = candidate.info.name.clone();
        if let Some(feature) = candidate.superblock.unsupported_features().first() {
            return Err(Refusal::Unsupported { member, feature: feature.to_string() });
        }
        if let FoundBitmap::Refused(error) = &candidate.bitmap {
            return Err(Refusal::Unsupported { member, feature: error.to_string() });
        }
        if let Err(reason) = &candidate.bad_blocks {
            return Err(Refusal::BadBlocks { member, reason: reason.clone() });
        }
    }
    Ok(())
}

/// The member with the most events among those with a slot of their own.
fn newest(candidates: &[Candidate]) -> Result<usize, Refusal> {
    let slots = (0..candidates.len()).filter(|&index| has_slot(&candidates[index]));
    slots.max_by_key(|&index| candidates[index].superblock.events).ok_or(Refusal::NoMembers)
}

fn has_slot(candidate: &Candidate) -> bool {
    candidate.superblock.own_role().slot().is_some()
}

/// The member that knows best: one with the most events whose history is that of all. Where several
/// have as many, one may be of an update that a crash kept from the others, which then went on
/// without it.
fn freshest(candidates: &[Candidate], newest: usize, options: &Options) -> Result<usize, Refusal> {
    let model = &candidates[newest].superblock;
    if sized_by_members(model.level) {
        return Ok(newest);
    }
    let geometry = Geometry::new(&shape(model, Vec::new())?)?;
    let lineage = Lineage { candidates, geometry: &geometry };
    let as_new = |index: &usize| {
        has_slot(&candidates[*index]) && candidates[*index].superblock.events == model.events
    };
    let apart: Vec<_> = (0..candidates.len())
        .filter(as_new)
        .map(|index| (index, lineage.apart_from(index)))
        .collect();
    if let Some((index, _)) = apart.iter().find(|(_, other)| other.is_none()) {
        return Ok(*index);
    }
    let preferred = |name: &String| {
        candidates.iter().position(|member| member.info.name == *name && has_slot(member))
    };
    let other = apart[0].1.expect("none stands alone");
    options.prefer.as_ref().and_then(preferred).ok_or_else(|| Refusal::SplitBrain {
        first: candidates[apart[0].0].info.name.clone(),
        other: candidates[other].info.name.clone(),
    })
}

fn refuse_disagreement(candidates: &[Candidate], freshest: usize) -> Result<(), Refusal> {
    let model = &candidates[freshest];
    for candidate in candidates {
        let (one, other) = (&model.superblock, &candidate.superblock);
        let field = match () {
            () if one.level != other.level => "level",
            () if one.layout != other.layout => "layout",
            () if one.chunk_sectors != other.chunk_sectors => "chunk size",
            () if one.size_sectors != other.size_sectors => "member size",
            () if one.raid_disks != other.raid_disks => "number of members",
            () => continue,
        };
        return Err(Refusal::Disagree {
            member: candidate.info.name.clone(),
            freshest: model.info.name.clone(),
            field,
        });
    }
    Ok(())
}

/// Gives each member the role that the freshest superblock knows, and leaves out what is not to be
/// trusted. Members differing by exactly one event are as good: md goes back by one when it marks an
/// array clean.
fn sort_out(
    candidates: Vec<Candidate>,
    model: &Superblock,
    left_out: &mut Vec<LeftOut>,
) -> Vec<Candidate> {
    let newest = newest_by_number(&candidates, model.events + 1);
    let mut members = Vec::new();
    for mut candidate in candidates {
        let number = candidate.superblock.dev_number;
        let role = model.roles.get(number as usize).copied().unwrap_or(Role::Spare);
        match reason_against(&candidate.superblock, role, model, &newest) {
            Some(reason) => {
                left_out.push(LeftOut { member: candidate.info.name, reason });
            }
            None => {
                take_role(&mut candidate.superblock, model, role);
                members.push(candidate);
            }
        }
    }
    members
}

/// Why a member is not to be used in `role`.
fn reason_against(
    own: &Superblock,
    role: Role,
    model: &Superblock,
    newest: &BTreeMap<u32, u64>,
) -> Option<Reason> {
    let stale = Reason::Stale { events: own.events, freshest: model.events };
    match role {
        // Its number went to another.
        _ if newest.get(&own.dev_number).is_some_and(|newest| own.events < *newest) => Some(stale),
        // More events than the model's only where a member of another half was preferred.
        Role::Slot(_) if own.events.abs_diff(model.events) > 1 => Some(stale),
        Role::Slot(_) if is_stranger(own, model) => Some(stale),
        Role::Faulty => Some(Reason::Faulty),
        // It had a slot and is no spare in its own eyes: it was taken out.
        Role::Spare if own.own_role().slot().is_some() => Some(stale),
        _ => None,
    }
}

/// The most events among the candidates of each number, as far as they are the model's.
fn newest_by_number(candidates: &[Candidate], most: u64) -> BTreeMap<u32, u64> {
    let mut newest = BTreeMap::new();
    let superblocks = candidates.iter().map(|candidate| &candidate.superblock);
    for superblock in superblocks.filter(|superblock| superblock.events <= most) {
        let events: &mut u64 = newest.entry(superblock.dev_number).or_default();
        *events = superblock.events.max(*events);
    }
    newest
}

/// Gives a member the role that the freshest superblock knows, and what else that says of the array. A
/// spare whose superblock does not say yet that it got a slot holds nothing of it: the crash came
/// between the superblocks of one update.
fn take_role(superblock: &mut Superblock, model: &Superblock, role: Role) {
    let at_home = superblock.own_role() == role;
    if role.slot().is_some() && !at_home {
        superblock.recovery_offset_sectors = Some(0);
    }
    // All ones is no progress that anybody made.
    if superblock.recovery_offset_sectors == Some(u64::MAX) {
        superblock.recovery_offset_sectors = Some(0);
    }
    if !at_home {
        superblock.features = superblock.features.with(Features::RECOVERY_BITMAP, false);
        let with_role = model.roles.iter().filter(|other| role.slot().is_some() && **other == role);
        superblock.features =
            superblock.features.with(Features::REPLACEMENT, with_role.count() > 1);
    }
    superblock.roles.clone_from(&model.roles);
    superblock.utime = model.utime;
    superblock.resync_offset_sectors = model.resync_offset_sectors;
}

/// A slot has one member, and perhaps one that replaces it.
fn refuse_crowding(members: &[Candidate]) -> Result<(), Refusal> {
    let mut holders: BTreeMap<(u16, bool), &Candidate> = BTreeMap::new();
    for member in members {
        let Some(slot) = member.superblock.own_role().slot() else { continue };
        if let Some(first) = holders.insert((slot, replaces(member)), member) {
            let (first, other) = (first.info.name.clone(), member.info.name.clone());
            return Err(Refusal::OneSlot { slot, first, other });
        }
    }
    Ok(())
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

/// Whether it is to take its slot over from another member.
fn replaces(member: &Candidate) -> bool {
    member.superblock.features.contains(Features::REPLACEMENT)
}

fn in_sync_at(member: &Candidate, slot: Slot) -> bool {
    member.superblock.own_role() == Role::Slot(slot.0)
        && member.superblock.recovery_offset_sectors.is_none()
}

/// An array that is more degraded than it knows starts only when told to: the missing member may
/// come a second later.
fn refuse_surprise(
    model: &Superblock,
    members: &[Candidate],
    options: &Options,
) -> Result<(), Refusal> {
    let listed: BTreeSet<u16> = model.roles.iter().filter_map(|role| role.slot()).collect();
    // A replacement holds no slot: where the member is missing that it replaces, so is that.
    let there = members.iter().filter(|member| !replaces(member));
    let there: BTreeSet<u16> =
        there.filter_map(|member| member.superblock.own_role().slot()).collect();
    let missing = listed.difference(&there).count();
    if missing > 0 && !options.run && !options.force {
        return Err(Refusal::Missing { missing });
    }
    Ok(())
}

/// The bitmap of the array: every bit that any member's fresh copy has set. Without one every bit
/// counts as set; damage may only ever make resync longer.
fn bitmap(members: &[Candidate], model: &Superblock) -> Option<(BitmapSuperblock, DirtyMap)> {
    let mut copies: Vec<_> = members.iter().filter_map(|member| member.bitmap.good()).collect();
    let is_fresh =
        |(header, _): &(&BitmapSuperblock, _)| header.speaks_for(model.set_uuid, model.events);
    let any_fresh = copies.iter().any(is_fresh);
    copies.retain(|copy| !any_fresh || is_fresh(copy));
    let (&(header, map), others) = copies.split_first()?;
    let (mut header, mut map) = (header.clone(), map.clone());
    for (other, bits) in others {
        let same_cut = other.chunk_bytes == header.chunk_bytes && bits.chunks() == map.chunks();
        if same_cut { map.merge(bits) } else { map.set_all() }
    }
    if !any_fresh {
        map.set_all();
    }
    header.uuid = model.set_uuid;
    header.state.0 &= !BitmapState::STALE;
    Some((header, map))
}

/// Whether some member's copy of the bitmap says less, or something else, than all together.
fn copies_differ(members: &[Candidate], bitmap: Option<&(BitmapSuperblock, DirtyMap)>) -> bool {
    let Some((header, map)) = bitmap else { return false };
    members.iter().any(|member| member.bitmap.good() != Some((header, map)))
}

fn refuse_short_bitmap(
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
fn unsynced(
    model: &Superblock,
    geometry: &Geometry,
    bitmap: Option<&(BitmapSuperblock, DirtyMap)>,
) -> Ranges {
    let from = model.resync_offset_sectors;
    if from == RESYNC_NONE || geometry.max_failures() == 0 {
        return Ranges::default();
    }
    let end = sync_sectors(geometry);
    let mut ranges = match bitmap {
        Some((header, map)) => map.ranges().map(|chunks| header.sectors_of(chunks)).collect(),
        None => Ranges::of(0..end),
    };
    ranges.remove(&(0..from));
    ranges.remove(&(end..u64::MAX));
    ranges
}

/// Members whose interrupted recovery was one by the bitmap.
fn by_bitmap(
    members: &[Candidate],
    bitmap: Option<&(BitmapSuperblock, DirtyMap)>,
) -> Vec<crate::backend::MemberId> {
    let marked = |member: &&Candidate| {
        let features = member.superblock.features;
        bitmap.is_some()
            && member.superblock.recovery_offset_sectors.is_some()
            && features.contains(Features::RECOVERY_BITMAP)
    };
    members.iter().filter(marked).map(|member| member.id).collect()
}

fn start_member(member: Candidate) -> StartMember {
    let listed = member.bad_blocks.unwrap_or_default();
    let data_offset = member.superblock.data_offset_sectors;
    StartMember {
        id: member.id,
        info: member.info,
        superblock: member.superblock,
        bad: bad_in_data(&listed, data_offset),
    }
}

/// The log counts sectors of the device; an array counts those behind its data offset.
fn bad_in_data(listed: &BadBlocks, data_offset: u64) -> Ranges {
    let in_data = |range: &Range<u64>| {
        range.start.saturating_sub(data_offset)..range.end.saturating_sub(data_offset)
    };
    listed.ranges().iter().map(in_data).filter(|range| !range.is_empty()).collect()
}
