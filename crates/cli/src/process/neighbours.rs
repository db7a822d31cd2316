//! Which other arrays sync on the disks of this one: each that does holds a lock file of every disk in
//! the run directory, so the arrays of one user know of each other.
//!
//! A disk is what md takes for one: partitions of one device are on it. A member that is a file, in memory
//! or behind a network is alone on its own.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mdspace_engine::neighbours::Neighbours;

use super::places::Places;

/// Arrays of this user on the same disks.
#[derive(Debug)]
pub(super) struct Disks {
    run_dir: PathBuf,
    /// Of the members: it is a lane that asks, which waits for no file system.
    places: Places,
    /// The lock files of this array's disks, by disk, while it syncs.
    held: Mutex<BTreeMap<String, File>>,
}

impl Disks {
    pub(super) fn new(run_dir: &Path, places: Places) -> Self {
        Self { run_dir: run_dir.to_owned(), places, held: Mutex::default() }
    }

    /// Takes the locks of all these disks, or none. What is held already is not let go for a moment. A lock that
    /// cannot be asked for keeps nobody waiting.
    fn begin_on(&self, disks: &BTreeSet<String>) -> bool {
        let mut held = self.held();
        held.retain(|disk, _| disks.contains(disk));
        for disk in disks {
            if held.contains_key(disk) {
                continue;
            }
            match self.lock(disk) {
                Ok(file) => drop(held.insert(disk.clone(), file)),
                Err(TryLockError::WouldBlock) => {
                    held.clear();
                    return false;
                }
                Err(TryLockError::Error(error)) => {
                    tracing::warn!("whether another array syncs on {disk} is not known: {error}");
                }
            }
        }
        true
    }

    fn lock(&self, disk: &str) -> Result<File, TryLockError> {
        let path = self.run_dir.join(format!("disk-{disk}.sync"));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(path).map_err(TryLockError::Error)?;
        file.try_lock().map(|()| file)
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<String, File>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Neighbours for Disks {
    fn begin(&self, members: &[&str]) -> bool {
        let devices = members.iter().filter_map(|member| self.places.device(member));
        self.begin_on(&devices.filter_map(disk_of).collect())
    }

    fn end(&self) {
        self.held().clear();
    }
}

/// The disk on which a block device lies, by its numbers.
fn disk_of((major, minor): (u32, u32)) -> Option<String> {
    whole_disk(&Path::new("/sys/dev/block").join(format!("{major}:{minor}"))).ok()
}

/// The numbers of the whole disk: a partition's place in sysfs is below it.
fn whole_disk(device: &Path) -> io::Result<String> {
    let place = fs::canonicalize(device)?;
    let disk = match place.join("partition").exists() {
        true => place.parent().unwrap_or(&place),
        false => &place,
    };
    Ok(fs::read_to_string(disk.join("dev"))?.trim().to_owned())
}
