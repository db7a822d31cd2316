//! The logical block in which the array is served, and members whose blocks it would cut.

use super::super::blocks::{array_block_bytes, misfit};
use super::belonging::has_slot;
use super::roles::{SortedOut, replaces};
use super::{Candidate, Refusal};

/// The block in which the array is served: that of all members, and of those that are out of date, which are to fit when
/// they come back. Where it does not fit the members that are needed, it is their own. One that is out for good is not
/// counted: users would find other blocks than before.
pub(super) fn block_bytes(SortedOut { members, may_come_back }: &SortedOut) -> u32 {
    let wanted = block_of(members.iter().chain(may_come_back));
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
