//! Which devices of the host's drivers have a process that serves them, and whose they are.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::identity::Identity;

/// What is read of such a file at most, in bytes.
const IDENTITY_BYTES_MAX: u64 = 4096;

/// How often the lock of a device is asked for that may only be looked at, and after what time again.
const LOOKS: usize = 50;
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Says that a process serves a device, as long as the process has it.
#[derive(Debug)]
pub(crate) struct ServedLock(File);

impl ServedLock {
    /// Of a device of this name in `/dev`. None: a process has it. The file stays: another process may be about to lock
    /// it.
    pub(crate) fn take(device: &str, folder: &Path) -> io::Result<Option<Self>> {
        let path = path(device, folder);
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    /// The same, with patience for those who only look whether a process has it.
    pub(crate) fn take_patiently(device: &str, folder: &Path) -> io::Result<Option<Self>> {
        for _ in 1..LOOKS {
            if let Some(lock) = Self::take(device, folder)? {
                return Ok(Some(lock));
            }
            thread::sleep(LOOK_EVERY);
        }
        Self::take(device, folder)
    }

    /// Writes down whose the device is: for drivers that keep no text.
    pub(crate) fn record(&self, identity: &Identity) -> io::Result<()> {
        let text = identity.to_string();
        self.0.write_all_at(text.as_bytes(), 0)?;
        self.0.set_len(text.len() as u64)
    }
}

/// Whose a device is, as the last process that served it wrote down; none where none did.
pub(crate) fn recorded(device: &str, folder: &Path) -> Option<Identity> {
    let mut text = String::new();
    let file = File::open(path(device, folder)).ok()?;
    file.take(IDENTITY_BYTES_MAX).read_to_string(&mut text).ok()?;
    (!text.is_empty()).then(|| Identity::from(text))
}

fn path(device: &str, folder: &Path) -> PathBuf {
    folder.join(format!(".{device}.lock"))
}

#[cfg(test)]
mod tests;
