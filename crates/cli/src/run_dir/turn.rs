//! The turn of a `restart`: of those of one array at once, one does the work.
//!
//! They would share the file that says how the array was. One that finds no array any more would delete it, and
//! the one that has stopped the array could start nothing.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::thread;

use super::name_lock::is_at;
use super::{LOCK_ATTEMPTS, LOCK_RETRY_AFTER, RunDir};
use crate::args::ArrayName;

/// The right to restart an array, until it is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct RestartTurn {
    path: PathBuf,
    file: File,
}

/// Another process has it: its number, in words.
#[derive(Debug)]
pub(crate) struct Taken(pub(crate) String);

impl RestartTurn {
    pub(super) fn take(run_dir: &RunDir, name: &ArrayName) -> io::Result<Result<Self, Taken>> {
        let path = path(run_dir, name);
        let mut attempts = 0;
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
                // Perhaps only someone who looks whether the array is restarted.
                Err(TryLockError::WouldBlock) if attempts < LOCK_ATTEMPTS => {
                    attempts += 1;
                    thread::sleep(LOCK_RETRY_AFTER);
                    continue;
                }
                Err(TryLockError::WouldBlock) => return Ok(Err(Taken(holder(file)))),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            // One that ends takes its file away: then this is not the one that others find.
            if is_at(&file, &path)? {
                file.set_len(0)?;
                writeln!(file, "{}", std::process::id())?;
                return Ok(Ok(Self { path, file }));
            }
        }
    }

    /// Whether a process has it.
    pub(super) fn is_taken(run_dir: &RunDir, name: &ArrayName) -> bool {
        let file = File::open(path(run_dir, name));
        file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }
}

fn path(run_dir: &RunDir, name: &ArrayName) -> PathBuf {
    run_dir.path().join(format!("{name}.restarting"))
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

impl Drop for RestartTurn {
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
