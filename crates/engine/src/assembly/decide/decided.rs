//! Members that were decided against, when parts of the array had run apart.
//!
//! No superblock tells of that decision. Who made it remembers it, and for each member the superblock that it was
//! about: one that has been written to since has gone on once more, and is asked about again.

use mdspace_format::{Superblock, Uuid};

use super::super::read::Candidate;
use super::{LeftOut, Options, Reason, Refusal};

/// A member that was decided against, as it was then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The array.
    pub array: Uuid,
    /// The member.
    pub device: Uuid,
    /// Its updates.
    pub events: u64,
    /// Of its superblock, which has the time of its last update too.
    pub checksum: u32,
}

impl Rejected {
    fn of(superblock: &Superblock) -> Self {
        let &Superblock { set_uuid: array, device_uuid: device, events, .. } = superblock;
        Self { array, device, events, checksum: superblock.checksum() }
    }
}

/// Leaves out what was decided against, where the operator does not decide anew.
pub(super) fn leave_out(
    candidates: Vec<Candidate>,
    options: &Options,
    left_out: &mut Vec<LeftOut>,
) -> Result<Vec<Candidate>, Refusal> {
    if options.prefer.is_some() || options.rejected.is_empty() {
        return Ok(candidates);
    }
    let is_rejected = |one: &Candidate| options.rejected.contains(&Rejected::of(&one.superblock));
    let (rejected, others): (Vec<_>, Vec<_>) = candidates.into_iter().partition(is_rejected);
    let has_slot = |one: &Candidate| one.superblock.own_role().slot().is_some();
    if let Some(member) = rejected.first().filter(|_| !others.iter().any(has_slot)) {
        return Err(Refusal::Rejected { member: member.info.name.clone() });
    }
    let names = rejected.into_iter().map(|one| one.info.name);
    left_out.extend(names.map(|member| LeftOut { member, reason: Reason::Rejected }));
    Ok(others)
}

/// The candidates that hold data, by name.
pub(super) fn with_slots(candidates: &[Candidate]) -> Vec<(String, Rejected)> {
    let with_slots = candidates.iter().filter(|one| one.superblock.own_role().slot().is_some());
    with_slots.map(|one| (one.info.name.clone(), Rejected::of(&one.superblock))).collect()
}

/// Those of them that are left out.
pub(super) fn of_those_left_out(
    with_slots: Vec<(String, Rejected)>,
    left_out: &[LeftOut],
) -> Vec<Rejected> {
    let is_out = |name: &String| left_out.iter().any(|left_out| left_out.member == *name);
    with_slots.into_iter().filter(|(name, _)| is_out(name)).map(|(_, one)| one).collect()
}
