//! Finds an array's members among the block devices of this host.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use mdspace_format::superblock::of_device;
use mdspace_format::{Superblock, Uuid};
use mdspace_io::open_to_look;

use crate::args::{ArrayName, AssembleArgs, MemberSpec};
use crate::failure::Failure;
use crate::member_probe;

/// The block devices of this host, one a line behind two lines of heading.
const PARTITIONS: &str = "/proc/partitions";

/// Gives `assemble` without members those that are found: by `--uuid`, else by the array's name.
pub(crate) fn complete(args: &mut AssembleArgs) -> Result<(), Failure> {
    if !args.members.is_empty() {
        return Ok(());
    }
    let what = format!("cannot assemble {}", args.name());
    let failed = |why: String| Failure::new(&what, why, "name the members");
    let (mut found, mut closed) = (Vec::new(), 0);
    for device in block_devices().map_err(|error| failed(format!("{PARTITIONS}: {error}")))? {
        match superblock(&device) {
            Ok(Some(superblock)) if is_wanted(&superblock, args.name(), args.uuid) => {
                found.push(MemberSpec::Path(device));
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => closed += 1,
            // A drive without a medium, or a device that went away.
            _ => {}
        }
    }
    if found.is_empty() {
        let wanted =
            args.uuid.map_or_else(|| "that name".to_owned(), |uuid| format!("UUID {uuid}"));
        let closed = match closed {
            0 => String::new(),
            count => format!(" that may be read; {count} may not be"),
        };
        return Err(failed(format!(
            "no member of an array of {wanted} among the block devices{closed}"
        )));
    }
    args.members = found;
    Ok(())
}

/// The block devices of this host.
pub(crate) fn block_devices() -> io::Result<Vec<PathBuf>> {
    fs::read_to_string(PARTITIONS).map(|partitions| devices(&partitions))
}

/// `/proc/partitions` as paths: the fourth column, `!` standing for `/`.
fn devices(partitions: &str) -> Vec<PathBuf> {
    let lines = partitions.lines().skip(2);
    let names = lines.filter_map(|line| line.split_whitespace().nth(3));
    names.map(|name| Path::new("/dev").join(name.replace('!', "/"))).collect()
}

/// The superblock that counts on a device.
pub(crate) fn superblock(device: &Path) -> io::Result<Option<Superblock>> {
    let found = member_probe::superblocks(&open_to_look(device)?)?;
    Ok(of_device(found.into_iter().filter_map(|found| found.superblock)))
}

fn is_wanted(superblock: &Superblock, name: &ArrayName, uuid: Option<Uuid>) -> bool {
    match uuid {
        Some(uuid) => superblock.set_uuid == uuid,
        None => superblock.set_name.short() == name.as_str(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_device_is_a_path() {
        let partitions =
            "major minor  #blocks  name\n\n   8        0  1024 sda\n  72       1 10 cciss!c0d0p1\n";
        let expect = [PathBuf::from("/dev/sda"), PathBuf::from("/dev/cciss/c0d0p1")];
        assert_eq!(devices(partitions), expect);
    }
}
