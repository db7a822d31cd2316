//! The logical block in which the array is served, and members whose blocks it would cut.

use mdspace_format::{Role, Superblock};

use super::super::blocks::{array_block_bytes, misfit};
use super::belonging::has_slot;
use super::roles::replaces;
use super::{Candidate, Refusal};

/// The block of all that is here. Who is out of date is to fit when it comes back. One that is out for good is not
/// counted: users would find other blocks than before.
pub(super) fn wanted_block_bytes(candidates: &[Candidate], model: &Superblock) -> u32 {
    let is_counted = |member: &&Candidate| {
        let role = model.roles.get(member.superblock.dev_number as usize);
        member.superblock.own_role() == Role::Spare
            || role.is_some_and(|role| role.slot().is_some())
    };
    block_of(candidates.iter().filter(is_counted))
}

/// The block in which the array is served: the wanted one, or where it does not fit the members, their own.
pub(super) fn block_bytes(members: &[Candidate], wanted: u32) -> u32 {
    let needed = || members.iter().filter(|member| has_slot(member) && !replaces(member));
    match needed().all(|member| refuse_misfit(member, wanted).is_ok()) {
        true => wanted,
        false => block_of(needed()),
    }
}

/// Every I/O of the array is whole blocks of every member.
pub(super) fn refuse_misfit(member: &Candidate, block_bytes: u32) -> Result<(), Refusal> {
    match misfit(&member.superblock, &member.info, block_bytes) {
        Some(feature) => Err(Refusal::Unsupported { member: member.info.name.clone(), feature }),
        None => Ok(()),
    }
}

fn block_of<'a>(members: impl Iterator<Item = &'a Candidate>) -> u32 {
    array_block_bytes(members.map(|member| (&member.superblock, &member.info)))
}
