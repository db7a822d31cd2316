//! What the kernel knows of a file without a word with who answers for its file system.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::loop_device::FileId;

/// A file or device as the kernel knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) file: FileId,
    /// The number of the device that it is; 0 for what is none.
    pub(super) device: u64,
    pub(super) is_file: bool,
    pub(super) bytes: u64,
    pub(super) names: u32,
}

impl Seen {
    pub(super) fn of(file: &File) -> Option<Self> {
        Self::ask(file.as_raw_fd(), Path::new(""), libc::AT_EMPTY_PATH)
    }

    /// What a name leads to. To find that, file systems on the way may be asked.
    pub(super) fn at(path: &Path) -> Option<Self> {
        Self::ask(libc::AT_FDCWD, path, 0)
    }

    fn ask(from: RawFd, path: &Path, flags: libc::c_int) -> Option<Self> {
        let path = CString::new(path.as_os_str().as_bytes()).ok()?;
        // SAFETY: all zeroes is an empty answer.
        let mut answer: libc::statx = unsafe { std::mem::zeroed() };
        let flags = flags | libc::AT_STATX_DONT_SYNC;
        let wanted = libc::STATX_BASIC_STATS;
        // SAFETY: the path is a C string, and `answer` is as large as the system expects.
        let asked = unsafe { libc::statx(from, path.as_ptr(), flags, wanted, &mut answer) };
        (asked == 0).then(|| Self {
            file: (libc::makedev(answer.stx_dev_major, answer.stx_dev_minor), answer.stx_ino),
            device: libc::makedev(answer.stx_rdev_major, answer.stx_rdev_minor),
            is_file: u32::from(answer.stx_mode) & libc::S_IFMT == libc::S_IFREG,
            bytes: answer.stx_size,
            names: answer.stx_nlink,
        })
    }
}

#[cfg(test)]
mod tests;
