//! What a loop device keeps its bytes in: the very file or device, whatever its name leads to by now.
//!
//! All may read the name under which it was attached. The numbers are told to whoever may read the device.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::holder;
use super::lock::Bytes;

/// `LOOP_GET_STATUS64`, of `linux/loop.h`. What it fills has 232 bytes, and begins with the file's device and inode
/// number, and the number of the device that the file is.
const GET_STATUS: u32 = 0x4c05;
const STATUS_WORDS: usize = 29;

/// A file, by its device and inode number.
pub(super) type FileId = (u64, u64);

/// What lies behind a loop device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behind {
    File(FileId),
    /// A block device, by its number.
    Device(u64),
}

impl Behind {
    pub(super) fn of_metadata(metadata: &Metadata) -> Self {
        match metadata.file_type().is_block_device() {
            true => Self::Device(metadata.rdev()),
            false => Self::File((metadata.dev(), metadata.ino())),
        }
    }

    /// What a name leads to.
    pub(super) fn of_name(path: &Path) -> io::Result<Self> {
        fs::metadata(path).map(|found| Self::of_metadata(&found))
    }

    /// What an open loop device has, or the one that has an open partition.
    pub(super) fn of_open(device: &File) -> io::Result<Self> {
        let mut status = [0_u64; STATUS_WORDS];
        // SAFETY: the kernel fills 232 bytes, which are there.
        let asked =
            unsafe { libc::ioctl(device.as_raw_fd(), GET_STATUS as _, status.as_mut_ptr()) };
        match asked {
            0 => Ok(Self::of_status(status)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn of_status([device, inode, is_device, ..]: [u64; STATUS_WORDS]) -> Self {
        // Of a plain file some kernels say the number of its file system here.
        match is_device != 0 && is_device != device {
            true => Self::Device(is_device),
            false => Self::File((device, inode)),
        }
    }

    /// What the loop device has that sysfs shows at `place`.
    pub(super) fn of_place(place: &Path) -> io::Result<Self> {
        let number = holder::number_of(place);
        let node = node(place);
        let is_it =
            |found: Metadata| found.file_type().is_block_device() && Some(found.rdev()) == number;
        let another = || io::Error::other(format!("{} is another device", node.display()));
        // Looked at first: to open another device may change that.
        if !is_it(fs::metadata(&node)?) {
            return Err(another());
        }
        let device = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&node)?;
        match is_it(device.metadata()?) {
            true => Self::of_open(&device),
            false => Err(another()),
        }
    }

    /// The same as far as this user may know it: where the device cannot be asked, its name has to do.
    pub(super) fn as_seen(place: &Path, backing: &Backing) -> Option<Self> {
        Self::of_place(place).or_else(|_| Self::of_name(&backing.path)).ok()
    }
}

/// Where a loop device that sysfs shows there is found as a rule.
pub(super) fn node(place: &Path) -> PathBuf {
    Path::new("/dev").join(place.file_name().unwrap_or_default())
}

/// The name of the file or device of a loop device, and its part of that.
pub(super) struct Backing {
    pub(super) path: PathBuf,
    pub(super) bytes: Bytes,
}

impl Backing {
    /// Of the loop device that sysfs shows at `place`, if it is one and has something.
    pub(super) fn of(place: &Path) -> Option<Self> {
        let path = fs::read_to_string(place.join("loop/backing_file")).ok()?;
        let start = holder::count_in(&place.join("loop/offset")).unwrap_or(0);
        let limit = holder::count_in(&place.join("loop/sizelimit")).unwrap_or(0);
        let path = PathBuf::from(path.strip_suffix('\n').unwrap_or(&path));
        Some(Self { path, bytes: Bytes::new(start, limit) })
    }
}

#[cfg(test)]
mod tests;
