//! What the operator has decided when parts of the array had run apart.
//!
//! No superblock tells of that decision. Who made it remembers which members went on, and of the others the superblock
//! that it was about: one that has been written to since has gone on once more, and is asked about again.

use mdspace_format::{Superblock, Uuid};

use super::super::read::Candidate;
use super::{LeftOut, Options, Reason, Refusal};

/// A member of such an array, as it was then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The array.
    pub array: Uuid,
    /// The member.
    pub device: Uuid,
    /// Its updates.
    pub events: u64,
    /// Of its superblock, which has the time of its last update too.
    pub checksum: u32,
    /// Whether the array went on with it. Else it was decided against.
    pub went_on: bool,
}

impl Decided {
    fn of(superblock: &Superblock, went_on: bool) -> Self {
        let &Superblock { set_uuid: array, device_uuid: device, events, .. } = superblock;
        Self { array, device, events, checksum: superblock.checksum(), went_on }
    }
}

/// Leaves out what was decided against, where the operator does not decide anew. Something must be there of what the
/// array went on with: others may be older, or have run apart too.
pub(super) fn leave_out(
    candidates: Vec<Candidate>,
    options: &Options,
    left_out: &mut Vec<LeftOut>,
) -> Result<Vec<Candidate>, Refusal> {
    if options.prefer.is_some() || options.decided.is_empty() {
        return Ok(candidates);
    }
    let is_rejected =
        |one: &Candidate| options.decided.contains(&Decided::of(&one.superblock, false));
    let (rejected, others): (Vec<_>, Vec<_>) = candidates.into_iter().partition(is_rejected);
    let went_on = |one: &Candidate| {
        let (array, device) = (one.superblock.set_uuid, one.superblock.device_uuid);
        let is_it = |known: &&Decided| (known.array, known.device) == (array, device);
        options.decided.iter().filter(is_it).any(|known| known.went_on)
    };
    if let Some(member) = rejected.first().filter(|_| !others.iter().any(went_on)) {
        return Err(Refusal::Rejected { member: member.info.name.clone() });
    }
    let names = rejected.into_iter().map(|one| one.info.name);
    left_out.extend(names.map(|member| LeftOut { member, reason: Reason::Rejected }));
    Ok(others)
}

/// A device that is there, as it is remembered if it goes on.
pub(super) struct Present {
    name: String,
    known: Decided,
    has_slot: bool,
}

impl Present {
    pub(super) fn all(candidates: &[Candidate]) -> Vec<Self> {
        let present = |one: &Candidate| Self {
            name: one.info.name.clone(),
            known: Decided::of(&one.superblock, true),
            has_slot: one.superblock.own_role().slot().is_some(),
        };
        candidates.iter().map(present).collect()
    }
}

/// What the next start is to know: nothing, where nothing was ever decided. All that start go on, also a spare that is
/// filled later; those that went on before may be gone by then. `anew`: the operator has decided now.
pub(super) fn to_remember(
    array: Uuid,
    present: &[Present],
    left_out: &[LeftOut],
    options: &Options,
    anew: bool,
) -> Vec<Decided> {
    let of_array = options.decided.iter().filter(|known| known.array == array);
    if !anew && of_array.clone().next().is_none() {
        return Vec::new();
    }
    let is_out = |one: &Present| left_out.iter().any(|left_out| left_out.member == one.name);
    // A word against what is out of date would keep it out for another reason.
    let is_new = |one: &&Present| !is_out(one) || anew && one.has_slot;
    let new = present.iter().filter(is_new);
    let mut decided: Vec<Decided> =
        new.map(|one| Decided { went_on: !is_out(one), ..one.known }).collect();
    // What went on by an earlier word may be what the new one is against. One that was rejected goes on by a new word alone.
    let was_rejected = |one: &Decided| {
        of_array.clone().any(|known| known.device == one.device && one.went_on && !known.went_on)
    };
    let is_new_word = anew || decided.iter().any(was_rejected);
    let stays = |known: &&Decided| {
        let is_told = decided.iter().any(|one| one.device == known.device);
        !(is_told || known.went_on && is_new_word)
    };
    let old: Vec<Decided> = of_array.filter(stays).copied().collect();
    decided.extend(old);
    decided
}
