//! The files behind loop devices, where their names do not lead to them: they were deleted, or other files have their
//! places. By another name of its own such a file may be opened, and locked, all the same.

use std::fs;
use std::io;

use super::loop_device::FileId;
use super::mounts;
use super::place::PlaceLock;

/// Keeps others from such a file, as long as the locks last: those who open the file itself look for them. None: someone
/// has it. The kernel keeps those apart who have it through one loop device, unless they come by a mapping: then they
/// have it `alone`. No others share it. All loop devices that there are may be among `others`.
pub(super) fn claim(
    file: FileId,
    through: u64,
    alone: bool,
    others: impl IntoIterator<Item = u64>,
) -> io::Result<Option<Vec<PlaceLock>>> {
    let locks = match alone {
        true => vec![PlaceLock::take(&name(file))?],
        false => vec![PlaceLock::share(&name(file))?, PlaceLock::share(&name_of(file, through))?],
    };
    let Some(locks) = locks.into_iter().collect() else { return Ok(None) };
    // Before the looks: of one who locks the file, or has it through another loop device, and this one at least one sees
    // the other.
    for other in others.into_iter().filter(|other| *other != through) {
        if PlaceLock::take(&name_of(file, other))?.is_none() {
            return Ok(None);
        }
    }
    Ok(Some(locks).filter(|_| !is_locked(file)))
}

/// Whether someone has a file through a loop device under no name. Asked when the file is locked.
pub(super) fn is_claimed(file: FileId) -> io::Result<bool> {
    PlaceLock::take(&name(file)).map(|free| free.is_none())
}

fn name((device, inode): FileId) -> String {
    format!("mdspace-file/{device}:{inode}")
}

/// Of what those share who have it through one loop device.
fn name_of(file: FileId, through: u64) -> String {
    format!("{}/through/{through}", name(file))
}

/// Whether someone has locked a file, as far as the kernel tells.
fn is_locked(file: FileId) -> bool {
    let text = |path| fs::read_to_string(path).unwrap_or_default();
    is_in(&text("/proc/locks"), &text("/proc/self/mountinfo"), file)
}

/// Whether a file is among the locks that `/proc/locks` tells of, with these mounts.
///
/// The device there is the file system's. Some file systems tell another one for their files, as btrfs does for each
/// subvolume, and nothing leads from that to the first. Then the inode number counts on any file system without a
/// disk's number: a file that is refused though nobody has it is less bad than two who write to it.
fn is_in(locks: &str, mounts: &str, (device, inode): FileId) -> bool {
    let is_mounted = mounts
        .lines()
        .any(|line| line.split(' ').nth(2).and_then(mounts::device_number) == Some(device));
    let is_its_own = !is_mounted && libc::major(device) == 0;
    let may_be = |place: u64| place == device || is_its_own && libc::major(place) == 0;
    locks.lines().filter_map(locked).any(|(place, locked)| locked == inode && may_be(place))
}

/// The file of a line of `/proc/locks`, by the device of its file system.
fn locked(line: &str) -> Option<FileId> {
    let place = line.split_whitespace().find(|word| word.matches(':').count() == 2)?;
    let mut numbers = place.split(':');
    let mut hexadecimal = || u32::from_str_radix(numbers.next()?, 16).ok();
    let device = libc::makedev(hexadecimal()?, hexadecimal()?);
    Some((device, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests;
