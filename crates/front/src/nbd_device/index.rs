//! Which device of the nbd driver it is, and whose.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::host_device::place_of;

/// N of `/dev/nbdN`.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Index(pub u32);

/// What the text begins with that the driver keeps for a device of ours.
const OURS: &str = "mdspace ";

/// The text by which a device is known for that of one array or multipath device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Identity(pub(super) String);

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<String> for Identity {
    fn from(text: String) -> Self {
        Self(text)
    }
}

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

    /// Whether it is of mdspace.
    pub(super) fn is_ours(self) -> bool {
        self.told_identity().is_ok_and(|identity| identity.is_ours())
    }

    /// Whether it is that array's. Also where the system does not say: who believes that it is another one's leaves it
    /// attached. As long as a process has it open its number is no other one's.
    pub fn is_of(self, identity: &Identity) -> bool {
        self.is_known_of(identity).unwrap_or(true)
    }

    /// The same, where the system says.
    pub(super) fn is_known_of(self, identity: &Identity) -> io::Result<bool> {
        is_told(self.told_identity(), identity)
    }

    fn told_identity(self) -> io::Result<Identity> {
        let text = fs::read_to_string(place_of(&self.path()).join("backend"))?;
        Ok(Identity(text.trim_end_matches('\n').to_owned()))
    }

    pub(super) fn number(self) -> io::Result<u64> {
        let text = fs::read_to_string(place_of(&self.path()).join("dev"))?;
        let number = text.trim().split_once(':').and_then(|(major, minor)| {
            Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
        });
        number.ok_or_else(|| io::Error::other(format!("{} has no number", self.path().display())))
    }

    /// How many connections a device has: as many as it got first. The driver has a queue for each.
    pub(super) fn connections(self) -> usize {
        fs::read_dir(place_of(&self.path()).join("mq")).map_or(1, Iterator::count).max(1)
    }

    /// Whether this process finds it under its path.
    pub(super) fn has_node(self) -> bool {
        self.number().is_ok_and(|number| is_node(&self.path(), number))
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

/// Whether a block device of this number is there.
pub(super) fn is_node(path: &Path, number: u64) -> bool {
    fs::metadata(path)
        .is_ok_and(|found| found.file_type().is_block_device() && found.rdev() == number)
}

/// Whether what the driver tells is this text. It has none of a device that is attached no more.
fn is_told(told: io::Result<Identity>, identity: &Identity) -> io::Result<bool> {
    let gone = [Errno::NOENT, Errno::NODEV].map(|errno| Some(errno.raw_os_error()));
    match told {
        Ok(told) => Ok(told == *identity),
        Err(error) if gone.contains(&error.raw_os_error()) => Ok(false),
        Err(error) => Err(error),
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
    fn is_ours(&self) -> bool {
        self.0.starts_with(OURS)
    }
}

#[cfg(test)]
mod tests;
