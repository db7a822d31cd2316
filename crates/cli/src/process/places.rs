//! What members' names led to when they were opened.
//!
//! Looking up a name on a file system that hangs waits for that file system. So each name is looked up once,
//! within the time that opening a member may take. Later questions wait for nothing.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mdspace_io::path_of_name;

/// Places of members, by name. Clones are one list.
#[derive(Clone, Debug, Default)]
pub(super) struct Places(Arc<Mutex<BTreeMap<String, Place>>>);

/// Where a file or block device is.
#[derive(Clone, Debug)]
pub(super) struct Place {
    path: PathBuf,
    /// Major and minor number of a block device.
    device: Option<(u32, u32)>,
}

impl Place {
    /// None for a member of another kind. May wait for the file system.
    pub(super) fn of(name: &str) -> Option<Self> {
        let path = fs::canonicalize(path_of_name(name)).ok()?;
        let found = fs::metadata(&path).ok()?;
        let numbers = || (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()));
        let device = found.file_type().is_block_device().then(numbers);
        Some(Self { path, device })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Places {
    pub(super) fn note(&self, name: &str, place: Option<Place>) {
        match place {
            Some(place) => self.list().insert(name.to_owned(), place),
            None => self.list().remove(name),
        };
    }

    pub(super) fn of(&self, name: &str) -> Option<Place> {
        self.list().get(name).cloned()
    }

    /// Major and minor number of a member that is a block device.
    pub(super) fn device(&self, name: &str) -> Option<(u32, u32)> {
        self.list().get(name)?.device
    }

    fn list(&self) -> MutexGuard<'_, BTreeMap<String, Place>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
