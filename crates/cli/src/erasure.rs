//! What makes a member of an array an empty device again.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::member_probe::{self, Area};

/// Overwrites every md superblock of a member with zeroes, durably. Gives their number. Takes the
/// file that is open and locked, for the member's name may lead elsewhere by now.
pub(crate) fn erase_superblocks(member: &File) -> io::Result<usize> {
    let found = member_probe::superblocks(member)?;
    for superblock in &found {
        member.write_all_at(&Area::zeroes().0, superblock.sector * 512)?;
    }
    member.sync_data()?;
    Ok(found.len())
}
