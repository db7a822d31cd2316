//! Which device of the nbd driver it is, and whose.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::host_device::{is_node, number_of, place_of};
use crate::identity::Identity;

/// N of `/dev/nbdN`.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Index(pub u32);

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

    /// Its name in `/dev`.
    pub(super) fn name(self) -> String {
        format!("nbd{}", self.0)
    }

    pub(super) fn path(self) -> PathBuf {
        Path::new("/dev").join(self.name())
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
        Ok(Identity::from(text.trim_end_matches('\n').to_owned()))
    }

    pub(super) fn number(self) -> io::Result<u64> {
        number_of(&self.path())
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

/// Whether what the driver tells is this text. It has none of a device that is attached no more.
fn is_told(told: io::Result<Identity>, identity: &Identity) -> io::Result<bool> {
    let gone = [Errno::NOENT, Errno::NODEV].map(|errno| Some(errno.raw_os_error()));
    match told {
        Ok(told) => Ok(told == *identity),
        Err(error) if gone.contains(&error.raw_os_error()) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
