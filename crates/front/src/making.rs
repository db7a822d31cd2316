//! The lock of a folder while something is made in it that others make too.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

/// How long another process may take to make something in the same folder: it may ask one that is silent.
const MAKES_WITHIN: Duration = Duration::from_secs(5);

/// Between two looks whether it has done so.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// How often the kernel's list of locks is read before a lock that is not there is another user's.
const LOOKS: usize = 8;

/// Room for that list: without it the first reads are of some bytes.
const LIST_BYTES: usize = 1 << 16;

/// The lock, from the question whether a place is free until it is taken: else two find the same place free.
///
/// Whoever may read a folder may lock it. What other users hold so, as all of them can `/tmp`, keeps nothing from being
/// made: they make nothing of this user's.
pub(crate) struct Making {
    _folder: Option<File>,
}

/// Another process makes something in this folder, or holds it for other reasons.
#[derive(Debug)]
pub(crate) struct Held(pub(crate) PathBuf);

impl Making {
    /// Waits for another one that makes something beside `path`.
    pub(crate) fn begin(path: &Path) -> Result<Making, Held> {
        Making::begin_within(path, MAKES_WITHIN)
    }

    /// A folder that cannot be locked, as on some network file systems, is not.
    pub(crate) fn begin_within(path: &Path, patience: Duration) -> Result<Making, Held> {
        Making::begin_as(rustix::process::geteuid().as_raw(), path, patience)
    }

    fn begin_as(user: u32, path: &Path, patience: Duration) -> Result<Making, Held> {
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        // What stands there may be a pipe, or a device that wakes up when it is opened.
        let flags = OFlags::DIRECTORY.bits().cast_signed();
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(folder);
        let Ok(opened) = opened else { return Ok(Making { _folder: None }) };
        let until = Instant::now() + patience;
        loop {
            match rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Making { _folder: Some(opened) }),
                Err(Errno::WOULDBLOCK) if Instant::now() < until => thread::sleep(LOOK_EVERY),
                Err(Errno::WOULDBLOCK) if is_locked_by(user, &opened) => {
                    return Err(Held(folder.to_path_buf()));
                }
                Err(Errno::WOULDBLOCK) => {
                    tracing::warn!(?folder, "another user holds its lock: see `lslocks`");
                    return Ok(Making { _folder: None });
                }
                Err(Errno::INTR) => {}
                Err(_) => return Ok(Making { _folder: None }),
            }
        }
    }
}

/// Whether a process of this user has the lock of an open file. One that is not seen is another user's.
fn is_locked_by(user: u32, file: &File) -> bool {
    let Ok(inode) = file.metadata().map(|metadata| metadata.ino().to_string()) else { return true };
    // A lock that is given back while the list is read lets the kernel skip another one.
    (0..LOOKS).any(|_| is_listed_for(user, &inode))
}

/// Whether the kernel lists a lock of this inode that a process of this user took.
fn is_listed_for(user: u32, inode: &str) -> bool {
    // Which device it is on the kernel says otherwise here for some file systems.
    let holder = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let is_lock = words.next() == Some("FLOCK");
        let (process, place) = (words.nth(2)?, words.next()?);
        (is_lock && place.rsplit(':').next() == Some(inode)).then(|| process.to_owned())
    };
    all_locks().lines().filter_map(holder).any(|process| {
        let found = fs::metadata(Path::new("/proc").join(process));
        found.is_ok_and(|found| found.uid() == user)
    })
}

/// The kernel's list, in few reads: it counts from its beginning again in each.
fn all_locks() -> String {
    let mut list = Vec::with_capacity(LIST_BYTES);
    let read = File::open("/proc/locks").and_then(|mut file| file.read_to_end(&mut list));
    if let Err(error) = read {
        tracing::debug!(%error, "the list of locks ends early");
    }
    String::from_utf8_lossy(&list).into_owned()
}

#[cfg(test)]
mod tests;
