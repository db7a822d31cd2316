//! Which other arrays sync on the disks of this one: each that does holds a lock file of every disk in
//! the run directory, so the arrays of one user know of each other.
//!
//! A disk is what md takes for one: partitions of one device are on it. A member that is a file, in memory
//! or behind a network is alone on its own.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mdspace_engine::neighbours::Neighbours;
use mdspace_io::path_of_name;

/// Arrays of this user on the same disks.
#[derive(Debug)]
pub(super) struct Disks {
    run_dir: PathBuf,
    /// The lock files of this array's disks, while it syncs.
    held: Mutex<Vec<File>>,
}

impl Disks {
    pub(super) fn new(run_dir: &Path) -> Self {
        Self { run_dir: run_dir.to_owned(), held: Mutex::default() }
    }

    /// Takes the locks of all these disks, or none. A lock that cannot be asked for keeps nobody waiting.
    fn begin_on(&self, disks: &BTreeSet<String>) -> bool {
        let mut held = self.held();
        held.clear();
        for disk in disks {
            match self.lock(disk) {
                Ok(file) => held.push(file),
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

    fn held(&self) -> MutexGuard<'_, Vec<File>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Neighbours for Disks {
    fn begin(&self, members: &[&str]) -> bool {
        self.begin_on(&members.iter().filter_map(|member| disk_of(member)).collect())
    }

    fn end(&self) {
        self.held().clear();
    }
}

/// The disk on which a block device lies, by its numbers.
fn disk_of(member: &str) -> Option<String> {
    let found = fs::metadata(path_of_name(member))
        .ok()
        .filter(|found| found.file_type().is_block_device())?;
    let (major, minor) = (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()));
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
