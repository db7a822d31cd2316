//! What makes a member of an array an empty device again.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use mdspace_format::superblock::AREA_BYTES;

use crate::member_probe;

/// Overwrites every md superblock of a member with zeroes, durably. Gives their number.
pub(crate) fn erase_superblocks(member: &Path) -> io::Result<usize> {
    let file = File::options().read(true).write(true).open(member)?;
    let found = member_probe::superblocks(&file)?;
    for superblock in &found {
        file.write_all_at(&[0; AREA_BYTES], superblock.sector * 512)?;
    }
    file.sync_data()?;
    Ok(found.len())
}
