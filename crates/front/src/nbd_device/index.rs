//! Which device of the nbd driver it is, and whose.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::host_device::place_of;

/// N of `/dev/nbdN`.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Index(pub u32);

/// What the text begins with that the driver keeps for a device of ours.
const OURS: &str = "mdspace ";

/// The text by which a device is known for that of one array or multipath device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Identity(pub(super) String);

impl Index {
    /// Of a device's path.
    pub fn of(device: &Path) -> Option<Self> {
        device.file_name()?.to_str()?.strip_prefix("nbd")?.parse().ok().map(Self)
    }

    /// Of the path of a device or of a partition of one.
    pub(super) fn of_disk(device: &Path) -> Option<Self> {
        let name = device.file_name()?.to_str()?;
        let disk = name.rsplit_once('p').map_or(name, |(disk, _)| disk);
        Self::of(Path::new(name)).or_else(|| Self::of(Path::new(disk)))
    }

    pub(super) fn path(self) -> PathBuf {
        PathBuf::from(format!("/dev/nbd{}", self.0))
    }

    /// The text that the driver keeps for it; none where it is no device of a process.
    pub(super) fn identity(self) -> Option<Identity> {
        let text = fs::read_to_string(place_of(&self.path()).join("backend")).ok()?;
        Some(Identity(text.trim_end_matches('\n').to_owned()))
    }

    pub(super) fn number(self) -> io::Result<u64> {
        let text = fs::read_to_string(place_of(&self.path()).join("dev"))?;
        let number = text.trim().split_once(':').and_then(|(major, minor)| {
            Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
        });
        number.ok_or_else(|| io::Error::other(format!("{} has no number", self.path().display())))
    }

    /// A number that the kernel tells of it.
    pub(super) fn system_value(self, name: &str) -> Option<u64> {
        fs::read_to_string(place_of(&self.path()).join(name)).ok()?.trim().parse().ok()
    }

    /// Tells the kernel such a number.
    pub(super) fn set_system_value(self, name: &str, value: u64) -> io::Result<()> {
        fs::write(place_of(&self.path()).join(name), value.to_string())
    }
}

impl Identity {
    /// Of an array, by its UUID in md's form.
    pub fn of_array(uuid: &str) -> Self {
        Self(format!("{OURS}array {uuid}"))
    }

    /// Of a multipath device that stands alone, by its name.
    pub fn of_multipath(name: &str) -> Self {
        Self(format!("{OURS}multipath {name}"))
    }

    /// Whether it is of mdspace.
    pub(super) fn is_ours(&self) -> bool {
        self.0.starts_with(OURS)
    }
}

#[cfg(test)]
mod tests;
