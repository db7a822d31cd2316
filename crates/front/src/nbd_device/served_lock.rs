//! Which devices have a process that serves them.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::index::Index;

/// How often the lock of a device is asked for that may only be looked at, and after what time again.
const LOOKS: usize = 50;
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Says that a process serves a device, as long as the process has it.
#[derive(Debug)]
pub(super) struct ServedLock(#[expect(dead_code, reason = "its descriptor is the lock")] File);

impl ServedLock {
    /// None: a process has it. The file stays: another process may be about to lock it.
    pub(super) fn take(index: Index, folder: &Path) -> io::Result<Option<Self>> {
        let path = folder.join(format!(".nbd{}.lock", index.0));
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    /// The same, with patience for those who only look whether a process has it.
    pub(super) fn take_patiently(index: Index, folder: &Path) -> io::Result<Option<Self>> {
        for _ in 1..LOOKS {
            if let Some(lock) = Self::take(index, folder)? {
                return Ok(Some(lock));
            }
            thread::sleep(LOOK_EVERY);
        }
        Self::take(index, folder)
    }
}

#[cfg(test)]
mod tests;
