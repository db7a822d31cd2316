//! The lock of a folder while something is made in it that others make too.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

/// How long another process may take to make something in the same folder: it may ask one that is silent.
const MAKES_WITHIN: Duration = Duration::from_secs(5);

/// Between two looks whether it has done so.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The lock, from the question whether a place is free until it is taken: else two find the same place free.
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
                Err(Errno::WOULDBLOCK) => return Err(Held(folder.to_path_buf())),
                Err(Errno::INTR) => {}
                Err(_) => return Ok(Making { _folder: None }),
            }
        }
    }
}
