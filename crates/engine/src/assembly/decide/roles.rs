//! Who is what in the array, as the freshest superblock knows it.

use std::collections::{BTreeMap, BTreeSet};

use mdspace_format::{Features, Level, Role, Superblock};

use super::super::read::Candidate;
use super::lineage::is_stranger;
use super::{LeftOut, Options, Reason, Refusal};
use crate::array::rules::{Rule, keep};
use crate::geometry::Slot;

/// Gives each member the role that the freshest superblock knows, and leaves out what is not to be
/// trusted. Members differing by exactly one event are as good: md goes back by one when it marks an
/// array clean.
pub(super) fn sort_out(
    candidates: Vec<Candidate>,
    model: &Superblock,
    left_out: &mut Vec<LeftOut>,
) -> SortedOut {
    let newest = newest_by_number(&candidates, model.events + 1);
    let mut sorted = SortedOut::default();
    for mut candidate in candidates {
        let number = candidate.superblock.dev_number;
        let role = model.roles.get(number as usize).copied().unwrap_or(Role::Spare);
        match reason_against(&candidate.superblock, role, model, &newest) {
            Some(reason) => {
                left_out.push(LeftOut { member: candidate.info.name.clone(), reason });
                if has_its_slot(&candidate.superblock, role, &newest) {
                    sorted.may_come_back.push(candidate);
                }
            }
            None => {
                take_role(&mut candidate.superblock, model, role);
                sorted.members.push(candidate);
            }
        }
    }
    sorted
}

/// What became of the candidates.
#[derive(Default)]
pub(super) struct SortedOut {
    pub(super) members: Vec<Candidate>,
    /// Those out of date whose slot no other one got.
    pub(super) may_come_back: Vec<Candidate>,
}

/// Whether a member that is out of date has the slot yet that it had, as the freshest superblock knows it.
fn has_its_slot(own: &Superblock, role: Role, newest: &BTreeMap<u32, u64>) -> bool {
    role.slot().is_some() && own.own_role() == role && !went_to_another(own, newest)
}

/// Whether a member that knows more has its number.
fn went_to_another(own: &Superblock, newest: &BTreeMap<u32, u64>) -> bool {
    newest.get(&own.dev_number).is_some_and(|newest| own.events < *newest)
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
        _ if went_to_another(own, newest) && keep(Rule::NumbersHaveOneHolder) => Some(stale),
        // More events than the model's only where a member of another half was preferred.
        Role::Slot(_) if own.events.abs_diff(model.events) > most_behind() => Some(stale),
        Role::Slot(_) if is_stranger(own, model) => Some(stale),
        Role::Faulty => Some(Reason::Faulty),
        // It is no spare in its own eyes: it was taken out.
        Role::Spare if matches!(own.own_role(), Role::Slot(_) | Role::Journal) => Some(stale),
        _ => None,
    }
}

/// Events by which a member may be behind the freshest.
fn most_behind() -> u64 {
    match () {
        () if !keep(Rule::StaleMembersStayOut) => u64::MAX,
        () if !keep(Rule::TwoEventsAreTooMany) => 2,
        () => 1,
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
/// between the superblocks of one update. Nor does a copy whose promise may have been taken back.
fn take_role(superblock: &mut Superblock, model: &Superblock, role: Role) {
    let at_home = superblock.own_role() == role;
    if role.slot().is_some() && !at_home && keep(Rule::NewcomersHoldNothing) {
        superblock.recovery_offset_sectors = Some(0);
    }
    if may_promise_too_much(superblock, model) {
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

/// Whether a member is filled with copies and has missed an update. Superblocks of such members are written first, so
/// that its own write failed or was cut off; and it may have been to promise less, for what is older where a crash or a
/// failed write left copies that differ. The others may say by now that all agrees.
fn may_promise_too_much(own: &Superblock, model: &Superblock) -> bool {
    let half_a_mirror = matches!(model.level, Level::Raid1 | Level::Raid10)
        && own.recovery_offset_sectors.is_some();
    own.events < model.events && (own.features.contains(Features::REPLACEMENT) || half_a_mirror)
}

/// A slot has one member, and perhaps one that replaces it.
pub(super) fn refuse_crowding(members: &[Candidate]) -> Result<(), Refusal> {
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

/// Whether it is to take its slot over from another member.
pub(super) fn replaces(member: &Candidate) -> bool {
    is_replacement(&member.superblock)
}

fn is_replacement(superblock: &Superblock) -> bool {
    superblock.features.contains(Features::REPLACEMENT)
}

pub(super) fn in_sync_at(member: &Candidate, slot: Slot) -> bool {
    member.superblock.own_role() == Role::Slot(slot.0) && is_in_sync(member)
}

/// Whether it has all that belongs in its slot.
pub(super) fn is_in_sync(member: &Candidate) -> bool {
    member.superblock.recovery_offset_sectors.is_none()
}

/// An array that is more degraded than it knows starts only when told to: the missing member may
/// come a second later. Whether it is.
pub(super) fn refuse_surprise(
    model: &Superblock,
    members: &[Candidate],
    options: &Options,
) -> Result<bool, Refusal> {
    let missing = missing_members(model, members.iter().map(|member| &member.superblock));
    if missing > 0 && !options.run && !options.force {
        return Err(Refusal::Missing { missing });
    }
    Ok(missing > 0)
}

/// How many members `model`, the newest superblock of an array, counts on that are not among `members`.
pub fn missing_members<'a>(
    model: &Superblock,
    members: impl IntoIterator<Item = &'a Superblock>,
) -> usize {
    let listed: BTreeSet<u16> = model.roles.iter().filter_map(|role| role.slot()).collect();
    // A replacement holds no slot: where the member is missing that it replaces, so is that.
    let there = members.into_iter().filter(|superblock| !is_replacement(superblock));
    let there: BTreeSet<u16> =
        there.filter_map(|superblock| superblock.own_role().slot()).collect();
    listed.difference(&there).count()
}
