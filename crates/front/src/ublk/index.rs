//! Which ublk device it is, and whose.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::host_device::{is_on_disk, number_of};
use crate::identity::Identity;
use crate::served_lock::{ServedLock, recorded};

use super::control::Control;
use super::wire::{DeviceInfo, state};

/// N of `/dev/ublkbN`, the disk, and `/dev/ublkcN`, by which it is served.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Index(pub(super) u32);

/// The upper 16 bits of every [`mark`].
const MAGIC: u64 = 0x6d64;

/// What the driver keeps for a device of an array or multipath device: ours in the upper 16 bits, below that a hash.
/// It has no room for the text, which stands [beside the lock](recorded).
pub(super) fn mark(identity: &Identity) -> u64 {
    /// FNV-1a of 64 bits.
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
    let hash = identity.as_str().as_bytes().iter().fold(BASIS, mix);
    MAGIC << 48 | ((hash >> 48 ^ hash) & ((1 << 48) - 1))
}

impl Index {
    /// Of a disk's path.
    pub(super) fn of(disk: &Path) -> Option<Self> {
        let number = disk.file_name()?.to_str()?.strip_prefix("ublkb")?;
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| number.parse().ok())?.map(Self)
    }

    /// Of the path of a disk or of a partition of one.
    pub(super) fn of_disk(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let disk = Path::new("/dev").join(name.rsplit_once('p').map_or(name, |(disk, _)| disk));
        Self::of(&disk).filter(|_| is_on_disk(&Path::new("/dev").join(name), &disk))
    }

    /// The disk's name in `/dev`.
    pub(super) fn name(self) -> String {
        format!("ublkb{}", self.0)
    }

    /// The disk.
    pub(super) fn path(self) -> PathBuf {
        Path::new("/dev").join(self.name())
    }

    /// By which it is served: one process at a time has it open.
    pub(super) fn server_path(self) -> PathBuf {
        PathBuf::from(format!("/dev/ublkc{}", self.0))
    }

    pub(super) fn number(self) -> io::Result<u64> {
        number_of(&self.path())
    }

    /// Whether it is of mdspace, as far as this process may ask.
    pub(super) fn is_ours(self, folder: &Path) -> bool {
        let has_mark = |info: DeviceInfo| info.mark >> 48 == MAGIC;
        recorded(&self.name(), folder).is_some_and(|identity| identity.is_ours())
            && Control::open().and_then(|control| control.info(self)).map_or(true, has_mark)
    }

    /// Whether a process serves it.
    pub(super) fn is_served(self, folder: &Path) -> bool {
        matches!(ServedLock::take(&self.name(), folder), Ok(None))
    }
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/dev/ublkb{}", self.0)
    }
}

/// Whether a device is an array's by what the driver and the record beside its lock say. One without a disk is nobody's
/// data: there the driver's word is enough.
pub(super) fn is_of(info: &DeviceInfo, record: Option<&Identity>, identity: &Identity) -> bool {
    info.mark == mark(identity)
        && (info.state == state::DEAD || record.is_none_or(|record| record == identity))
}

/// All devices of the driver, whosever they are.
pub(super) fn indices() -> io::Result<Vec<Index>> {
    let all = match fs::read_dir("/sys/class/ublk-char") {
        Ok(all) => all.collect::<io::Result<Vec<_>>>()?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    let names = all.iter().filter_map(|entry| entry.file_name().into_string().ok());
    let numbers = names.filter_map(|name| name.strip_prefix("ublkc")?.parse().ok());
    let mut known: Vec<Index> = numbers.map(Index).collect();
    known.sort();
    Ok(known)
}

#[cfg(test)]
mod tests;
