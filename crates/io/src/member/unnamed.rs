//! The files behind loop devices, where their names do not lead to them: they were deleted, or other files have their
//! places. By another name of its own such a file may be opened, and locked, all the same.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::holder;
use super::place::PlaceLock;
use super::probe::sysfs;

/// `LOOP_GET_STATUS64`, of `linux/loop.h`. What it fills has 232 bytes, and begins with the file's device and inode
/// number, and the number of the device that the file is.
const GET_STATUS: u32 = 0x4c05;
const STATUS_WORDS: usize = 29;

/// Devices below each other; the kernel itself bears fewer.
const LEVELS_MAX: usize = 16;

/// A file, by its device and inode number.
type Id = (u64, u64);

/// Keeps others from such files below a device, as long as the locks last: those who open the file itself look for them.
/// `Ok(Err(()))`: someone has such a file.
pub(super) fn claim(device: &File) -> io::Result<Result<Vec<PlaceLock>, ()>> {
    let (mut files, mut locks) = (Vec::new(), Vec::new());
    find(device.metadata()?.rdev(), 0, &mut files)?;
    for file in files {
        // Before the look: of one who locks the file and this one at least one sees the other.
        let Some(lock) = PlaceLock::share(&name(file))? else { return Ok(Err(())) };
        if is_locked(file) {
            return Ok(Err(()));
        }
        locks.push(lock);
    }
    Ok(Ok(locks))
}

/// Whether someone has a file through a loop device under no name. Asked when the file is locked.
pub(super) fn is_claimed(file: Id) -> io::Result<bool> {
    PlaceLock::take(&name(file)).map(|free| free.is_none())
}

fn name((device, inode): Id) -> String {
    format!("mdspace-file/{device}:{inode}")
}

/// Finds the files behind a device, a partition of one or a mapping over some, to which no name leads.
fn find(device: u64, level: usize, files: &mut Vec<Id>) -> io::Result<()> {
    let Some(place) = sysfs(device).filter(|_| level < LEVELS_MAX) else { return Ok(()) };
    let disk = if place.join("partition").exists() { place.parent() } else { Some(&*place) };
    let Some(disk) = disk else { return Ok(()) };
    let Ok(told) = fs::read_to_string(disk.join("loop/backing_file")) else {
        let slaves = holder::entries(&disk.join("slaves"));
        let mut below = slaves.iter().filter_map(|slave| holder::number_of(slave));
        return below.try_for_each(|below| find(below, level + 1, files));
    };
    let mut status = [0_u64; STATUS_WORDS];
    let node = Path::new("/dev").join(disk.file_name().unwrap_or_default());
    let node = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(node)?;
    // SAFETY: the kernel fills 232 bytes, which are there.
    let asked = unsafe { libc::ioctl(node.as_raw_fd(), GET_STATUS as _, status.as_mut_ptr()) };
    if asked != 0 {
        return Err(io::Error::last_os_error());
    }
    let [device, inode, is_device, ..] = status;
    // Of a plain file some kernels say the number of its file system here.
    if is_device != 0 && is_device != device {
        return find(is_device, level + 1, files);
    }
    let named = fs::metadata(Path::new(told.strip_suffix('\n').unwrap_or(&told)));
    if !named.is_ok_and(|found| (found.dev(), found.ino()) == (device, inode)) {
        files.push((device, inode));
    }
    Ok(())
}

/// Whether someone has locked a file, as far as the kernel tells.
fn is_locked(file: Id) -> bool {
    let text = |path| fs::read_to_string(path).unwrap_or_default();
    is_in(&text("/proc/locks"), &text("/proc/self/mountinfo"), file)
}

/// Whether a file is among the locks that `/proc/locks` tells of, with these mounts.
///
/// The device there is the file system's. Some file systems tell another one for their files, as btrfs does for each
/// subvolume, and nothing leads from that to the first. Then the inode number counts on any file system without a
/// disk's number: a file that is refused though nobody has it is less bad than two who write to it.
fn is_in(locks: &str, mounts: &str, (device, inode): Id) -> bool {
    let is_mounted = mounts
        .lines()
        .any(|line| line.split(' ').nth(2).and_then(holder::device_number) == Some(device));
    let is_its_own = !is_mounted && libc::major(device) == 0;
    let may_be = |place: u64| place == device || is_its_own && libc::major(place) == 0;
    locks.lines().filter_map(locked).any(|(place, locked)| locked == inode && may_be(place))
}

/// The file of a line of `/proc/locks`, by the device of its file system.
fn locked(line: &str) -> Option<Id> {
    let place = line.split_whitespace().find(|word| word.matches(':').count() == 2)?;
    let mut numbers = place.split(':');
    let mut hexadecimal = || u32::from_str_radix(numbers.next()?, 16).ok();
    let device = libc::makedev(hexadecimal()?, hexadecimal()?);
    Some((device, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests;
