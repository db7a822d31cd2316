//! Finds an array's members among the block devices of this host.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use mdspace_format::superblock::of_device;
use mdspace_format::{Superblock, Uuid};
use mdspace_io::{name_of_path, open_to_look};

use crate::args::{ArrayName, AssembleArgs, MemberSpec};
use crate::failure::Failure;
use crate::member_probe::{self, Look, asked_of};
use crate::output;

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
    let devices = block_devices().map_err(|error| failed(format!("{PARTITIONS}: {error}")))?;
    for (device, found_there) in superblocks_of(devices) {
        match found_there {
            Ok(Some(superblock)) if is_wanted(&superblock, args.name(), args.uuid) => {
                found.push(MemberSpec::Path(device));
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => closed += 1,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                output::print_error(&failed(format!("{}: {error}", name_of_path(&device))));
            }
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

/// Where members of the array are that the names `members` once led to: names of block devices may lead to
/// others after a boot. What belongs to another array goes, what is found elsewhere comes.
pub(crate) fn follow(members: &mut Vec<MemberSpec>, array: Uuid) {
    let is_block = |path: &Path| {
        let found = asked_of(path, |path| fs::metadata(path).ok()).flatten();
        found.is_some_and(|found| found.file_type().is_block_device())
    };
    let belongs = |path: &Path| {
        superblock(path).is_ok_and(|found| found.is_some_and(|found| found.set_uuid == array))
    };
    let path_of = |member: &MemberSpec| match member {
        MemberSpec::Path(path) if is_block(path) => Some(path.clone()),
        _ => None,
    };
    let blocks: Vec<PathBuf> = members.iter().filter_map(path_of).collect();
    if blocks.iter().all(|path| belongs(path)) {
        return;
    }
    members.retain(|member| path_of(member).is_none_or(|path| belongs(&path)));
    let known: Vec<_> = blocks.iter().filter_map(|path| fs::canonicalize(path).ok()).collect();
    let moved = block_devices().unwrap_or_default().into_iter().filter(|device| {
        fs::canonicalize(device).is_ok_and(|place| !known.contains(&place)) && belongs(device)
    });
    members.extend(moved.map(MemberSpec::Path));
}

/// A name of a block device, given without links, that leads to it after every boot, where udev made one: the first in `by_id`.
pub(crate) fn lasting_name(device: &Path, by_id: &Path) -> Option<String> {
    let links = fs::read_dir(by_id).ok()?.flatten().map(|link| link.path());
    let mut names: Vec<_> = links
        .filter(|link| fs::canonicalize(link).is_ok_and(|place| place == device))
        .map(|link| name_of_path(&link))
        .collect();
    names.sort();
    names.into_iter().next()
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

/// The superblock that counts on each device. Several that do not answer take no longer than one.
pub(crate) fn superblocks_of(
    devices: Vec<PathBuf>,
) -> Vec<(PathBuf, io::Result<Option<Superblock>>)> {
    let begun = devices.into_iter().map(|device| {
        let path = device.clone();
        let looking = Look::start(name_of_path(&device), move |_| read_superblock(&path));
        (device, looking)
    });
    let begun: Vec<_> = begun.collect();
    let end = |looking: io::Result<Look<_>>| looking.and_then(Look::end).flatten();
    begun.into_iter().map(|(device, looking)| (device, end(looking))).collect()
}

/// The superblock that counts on a device.
fn superblock(device: &Path) -> io::Result<Option<Superblock>> {
    superblocks_of(vec![device.to_path_buf()]).remove(0).1
}

/// The superblock that counts on a device, which may never answer.
pub(crate) fn read_superblock(device: &Path) -> io::Result<Option<Superblock>> {
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
    fn a_device_has_the_name_that_leads_to_it_after_every_boot() {
        let folder = tempfile::tempdir().unwrap();
        let (device, by_id) = (folder.path().join("sdb"), folder.path().join("by-id"));
        fs::write(&device, "").unwrap();
        fs::create_dir(&by_id).unwrap();
        let name = |member: &Path| lasting_name(member, &by_id);
        assert_eq!(name(&device), None);
        for link in ["wwn-1", "ata-disk_1"] {
            std::os::unix::fs::symlink(&device, by_id.join(link)).unwrap();
        }
        assert_eq!(name(&device), by_id.join("ata-disk_1").to_str().map(str::to_owned));
        assert_eq!(name(&folder.path().join("none")), None);
    }

    #[test]
    fn every_block_device_is_a_path() {
        let partitions =
            "major minor  #blocks  name\n\n   8        0  1024 sda\n  72       1 10 cciss!c0d0p1\n";
        let expect = [PathBuf::from("/dev/sda"), PathBuf::from("/dev/cciss/c0d0p1")];
        assert_eq!(devices(partitions), expect);
    }
}
