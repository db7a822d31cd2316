//! The turn of a command: of those of one array that do the same work at once, one does it.
//!
//! Two `restart`s would share the file that says how the array was. One that finds no array any more would delete it,
//! and the one that has stopped the array could start nothing. Of two that save an array, the one that asked first
//! would write last, and what was set between would be lost.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::name_lock::is_at;
use super::{LOCK_RETRY_AFTER, RunDir};
use crate::args::ArrayName;

/// What one command at a time may do to an array.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// Stop it and start it again.
    Restart,
    /// Ask how it is, and write that to its configuration.
    Save,
}

impl Work {
    pub(super) fn path(self, run_dir: &RunDir, name: &ArrayName) -> PathBuf {
        let word = match self {
            Self::Restart => "restarting",
            Self::Save => "saving",
        };
        run_dir.path().join(format!("{name}.{word}"))
    }
}

/// The right to do such work, until it is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct Turn {
    path: PathBuf,
    file: File,
}

/// Another process has it: its number, in words.
#[derive(Debug)]
pub(crate) struct Taken(pub(crate) String);

impl Turn {
    /// Takes it, or says who has had it for all of `patience`.
    pub(super) fn take(path: PathBuf, patience: Duration) -> io::Result<Result<Self, Taken>> {
        let until = Instant::now() + patience;
        loop {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) if Instant::now() < until => {
                    thread::sleep(LOCK_RETRY_AFTER);
                    continue;
                }
                Err(TryLockError::WouldBlock) => return Ok(Err(Taken(holder(file)))),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            // One that ends takes its file away: then this is not the one that others find.
            if is_at(&file, &path)? {
                // The number is for a message. On a full disk the work goes on without it.
                drop(file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())));
                return Ok(Ok(Self { path, file }));
            }
        }
    }

    /// Whether a process has it.
    pub(super) fn is_taken(path: &Path) -> bool {
        let file = File::open(path);
        file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }
}

/// Who has written its number there. It may be about to do so.
fn holder(mut file: File) -> String {
    let mut number = String::new();
    let read = (&mut file).take(16).read_to_string(&mut number);
    match read.ok().and_then(|_| number.trim().parse::<u32>().ok()) {
        Some(number) => format!("process {number}"),
        None => "another process".to_owned(),
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // While it is locked, and where it is still this one: else it may be another one's.
        let removed = is_at(&self.file, &self.path).and_then(|is_own| match is_own {
            true => fs::remove_file(&self.path),
            false => Ok(()),
        });
        if let Err(error) = removed {
            tracing::debug!(%error, "{} stays", self.path.display());
        }
    }
}
