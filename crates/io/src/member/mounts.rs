//! What is mounted, as `proc_pid_mountinfo(5)` has it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::seen::Seen;

/// One line of `mountinfo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountLine<'a> {
    /// The mount's number, in whatever namespace it is.
    pub id: u64,
    /// The number of its file system.
    pub number: u64,
    /// Its place, in which `\NNN` stands for a byte.
    pub point: &'a str,
    source: &'a str,
}

impl<'a> MountLine<'a> {
    /// All that can be read of such a file.
    pub fn all(mountinfo: &'a str) -> impl Iterator<Item = Self> {
        mountinfo.lines().filter_map(Self::parse)
    }

    fn parse(line: &'a str) -> Option<Self> {
        // ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [TAG...] - TYPE SOURCE SUPER_OPTIONS
        let (mount, system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ');
        let id = fields.next()?.parse().ok()?;
        let number = device_number(fields.nth(1)?)?;
        let point = fields.nth(1)?;
        Some(Self { id, number, point, source: system.split(' ').nth(1)? })
    }

    /// The block device below it: some file systems, as Btrfs, have a number of their own, and say their device by its
    /// name.
    pub fn device(&self) -> Option<u64> {
        if libc::major(self.number) != 0 {
            return Some(self.number);
        }
        let named = Some(Path::new(self.source)).filter(|source| source.starts_with("/dev"));
        named.and_then(Seen::at).map(|found| found.device).filter(|device| *device != 0)
    }

    /// Its place.
    pub fn place(&self) -> PathBuf {
        let mut pieces = self.point.split('\\');
        let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
        for piece in pieces {
            match piece.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
                Some(byte) => {
                    bytes.push(byte);
                    bytes.extend(&piece.as_bytes()[3..]);
                }
                None => bytes.extend([b"\\", piece.as_bytes()].concat()),
            }
        }
        OsString::from_vec(bytes).into()
    }
}

/// Whether what is on the file system of this number may have this name, with these mounts.
pub(super) fn may_hold(mountinfo: &str, name: &Path, number: u64) -> bool {
    let mounts: Vec<_> = MountLine::all(mountinfo).collect();
    let deepest = mounts
        .iter()
        .filter(|mount| name.starts_with(mount.place()))
        // The last one of several at one place hides the others.
        .max_by_key(|mount| mount.place().components().count());
    // Some file systems (btrfs) tell another number for their files: of those nothing is known.
    let is_known = mounts.iter().any(|mount| mount.number == number);
    !is_known || deepest.is_none_or(|mount| mount.number == number)
}

/// Reads `MAJOR:MINOR`.
pub(super) fn device_number(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests;
