//! Opening what a name leads to, without waiting for it and without reading more than is sensible.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::{fmt, str};

use super::probe::sysfs;

/// The longest configuration that is read.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// A file or block device itself, whatever its names: its device, inode and device number.
///
/// What was looked at under a name is what may be opened, written and erased under it later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Identity {
    dev: u64,
    ino: u64,
    rdev: u64,
}

impl Identity {
    /// Of an open file.
    pub fn of(file: &File) -> io::Result<Self> {
        file.metadata().map(|metadata| Self::of_metadata(&metadata))
    }

    /// Of what a name leads to now.
    pub fn of_name(path: &Path) -> io::Result<Self> {
        std::fs::metadata(path).map(|metadata| Self::of_metadata(&metadata))
    }

    /// The number of the device whose file system has the file; none of a block device.
    pub fn file_system(&self) -> Option<u64> {
        (self.dev != 0).then_some(self.dev)
    }

    /// Whether it is a block device that the kernel does not have any more, though it is open.
    pub(super) fn has_left(&self) -> bool {
        let is_shown = || Path::new("/sys/dev/block").exists();
        self.rdev != 0 && is_shown() && sysfs(self.rdev).is_none()
    }

    pub(super) fn of_metadata(metadata: &Metadata) -> Self {
        // Two nodes of one block device, in /dev and elsewhere, are one.
        match metadata.file_type().is_block_device() {
            true => Self { dev: 0, ino: 0, rdev: metadata.rdev() },
            false => Self { dev: metadata.dev(), ino: metadata.ino(), rdev: 0 },
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.dev, self.ino, self.rdev)
    }
}

impl From<Identity> for String {
    fn from(identity: Identity) -> Self {
        identity.to_string()
    }
}

impl TryFrom<String> for Identity {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl str::FromStr for Identity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no identity: DEVICE:INODE:NUMBER");
        let numbers: Result<Vec<u64>, _> = text.split(':').map(str::parse).collect();
        match numbers.map_err(|_| wrong())?[..] {
            [dev, ino, rdev] => Ok(Self { dev, ino, rdev }),
            _ => Err(wrong()),
        }
    }
}

/// Opens a file or block device to look at it. A pipe, a socket, a directory or a character device
/// is refused: it is never waited for.
pub fn open_to_look(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    match is_member(&file.metadata()?) {
        true => let_wait(&file).map(|()| file),
        false => Err(io::Error::other(NO_MEMBER)),
    }
}

/// Ends the mode in which it was opened: a ring would refuse what cannot be done at once.
pub(super) fn let_wait(file: &File) -> io::Result<()> {
    // SAFETY: no pointer is passed.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    // SAFETY: no pointer is passed.
    let set = || unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags & !libc::O_NONBLOCK) };
    match flags >= 0 && set() == 0 {
        true => Ok(()),
        false => Err(io::Error::last_os_error()),
    }
}

const NO_MEMBER: &str =
    "neither a file nor a block device; give a disk, a partition or an image file";

pub(super) fn is_member(metadata: &Metadata) -> bool {
    metadata.is_file() || metadata.file_type().is_block_device()
}

/// Reads a text that a person or another process wrote: a regular file of at most 1 MiB.
pub fn read_text(path: &Path) -> io::Result<String> {
    let (bytes, _) = read_file(path)?;
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is no text in UTF-8"))
}

/// Reads a regular file of at most 1 MiB; gives what it is, too.
pub fn read_file(path: &Path) -> io::Result<(Vec<u8>, Metadata)> {
    let file = open_regular(path)?;
    Ok((read_short(&file)?, file.metadata()?))
}

/// Opens a regular file to read it, and waits for nothing else that has its name.
pub(super) fn open_regular(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no regular file")),
    }
}

/// Reads such a file whole, of at most 1 MiB.
pub(super) fn read_short(file: &File) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    // One byte more than allowed tells a file that grows meanwhile.
    let bytes = file.take(TEXT_BYTES_MAX + 1).read_to_end(&mut content)?;
    match bytes as u64 > TEXT_BYTES_MAX {
        true => Err(io::Error::other("it is longer than 1 MiB")),
        false => Ok(content),
    }
}

#[cfg(test)]
mod tests;
