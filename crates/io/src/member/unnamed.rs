//! The file behind a loop device, where its name does not lead to it: it was deleted, or another file has its place.
//! By another name of its own it may be opened, and locked, all the same.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::place::PlaceLock;
use super::probe::sysfs;

/// `LOOP_GET_STATUS64`, of `linux/loop.h`. What it fills has 232 bytes, and begins with the file's device and inode
/// number.
const GET_STATUS: u32 = 0x4c05;
const STATUS_WORDS: usize = 29;

/// A file, by its device and inode number.
type Id = (u64, u64);

/// Keeps others from such a file, as long as the lock lasts: those who open the file itself look for it.
/// `Ok(Err(()))`: someone has the file. None: the device has none, or its name leads to it.
pub(super) fn claim(device: &File) -> io::Result<Result<Option<PlaceLock>, ()>> {
    let Some(file) = file_behind(device)? else { return Ok(Ok(None)) };
    // Before the look: of one who locks the file and this one at least one sees the other.
    let Some(lock) = PlaceLock::share(&name(file))? else { return Ok(Err(())) };
    match is_locked(file) {
        true => Ok(Err(())),
        false => Ok(Ok(Some(lock))),
    }
}

/// Whether someone has a file through a loop device under no name. Asked when the file is locked.
pub(super) fn is_claimed(file: Id) -> io::Result<bool> {
    PlaceLock::take(&name(file)).map(|free| free.is_none())
}

fn name((device, inode): Id) -> String {
    format!("mdspace-file/{device}:{inode}")
}

/// The file behind a loop device or a partition of one, if its name does not lead to it.
fn file_behind(device: &File) -> io::Result<Option<Id>> {
    let Some(place) = sysfs(device.metadata()?.rdev()) else { return Ok(None) };
    let disk = if place.join("partition").exists() { place.parent() } else { Some(&*place) };
    let told = disk.and_then(|disk| fs::read_to_string(disk.join("loop/backing_file")).ok());
    let Some(told) = told else { return Ok(None) };
    let mut status = [0_u64; STATUS_WORDS];
    // SAFETY: the kernel fills 232 bytes, which are there.
    let asked = unsafe { libc::ioctl(device.as_raw_fd(), GET_STATUS as _, status.as_mut_ptr()) };
    if asked != 0 {
        return Err(io::Error::last_os_error());
    }
    let file = (status[0], status[1]);
    let named = fs::metadata(Path::new(told.strip_suffix('\n').unwrap_or(&told)));
    let is_it = named.is_ok_and(|found| (found.dev(), found.ino()) == file);
    Ok((!is_it).then_some(file))
}

/// Whether someone has locked a file, as far as the kernel tells.
fn is_locked(file: Id) -> bool {
    fs::read_to_string("/proc/locks").unwrap_or_default().lines().any(|line| locks(line, file))
}

/// Whether a line of `/proc/locks` is of this file.
fn locks(line: &str, (device, inode): Id) -> bool {
    let place = line.split_whitespace().find(|word| word.matches(':').count() == 2);
    let mut numbers = place.unwrap_or_default().split(':');
    let mut hexadecimal = || u32::from_str_radix(numbers.next()?, 16).ok();
    let (Some(major), Some(minor)) = (hexadecimal(), hexadecimal()) else { return false };
    let found = numbers.next().and_then(|number| number.parse::<u64>().ok());
    libc::makedev(major, minor) == device && found == Some(inode)
}

#[cfg(test)]
mod tests;
