//! Devices of the host's drivers that a process of ours serves, and that stay when it is gone: of the ublk driver and of
//! the nbd driver.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::host_device::HostDevice;
use crate::identity::Identity;
use crate::making::Held;
use crate::{nbd_device, ublk};

/// One that this process serves.
pub trait DriverDevice: HostDevice {
    /// Whose it is.
    fn identity(&self) -> &Identity;

    /// Sees to it that it is served, and that its node has its rights. An error says why not.
    fn keep(&self) -> Result<(), String>;

    /// Has the driver send no more requests, where no other process does, as long as this one answers those under way.
    fn stop(&self) -> io::Result<()> {
        Ok(())
    }

    /// Takes no more requests, and waits until those under way have ended, but no longer than `patience`. The device
    /// waits for another process then, if it was not stopped. One who has more patience may ask again.
    fn close(&self, patience: Duration) -> Result<(), UnderWay>;

    /// Takes it away, once it is [closed](Self::close), where no [`stop`] did. What programs have not written yet is lost.
    fn take_away(&self) -> io::Result<()>;
}

/// Why there is no device, with whichever driver.
#[derive(Debug, thiserror::Error)]
pub enum NoDevice {
    /// No process here could open one.
    #[error(
        "there is no {0} for this process, as in a container with a /dev of its own: serve it with loop, or over NBD"
    )]
    NoNode(PathBuf),
    /// Another process makes one.
    #[error("another program holds the lock of {0}: see `lslocks`, then try again")]
    Held(PathBuf),
    /// A process serves it that has no lock here.
    #[error(
        "{0} is served by a process that is not seen here, as of another container: close its front there"
    )]
    Served(PathBuf),
    /// A crash left one that is not what it would be now.
    #[error(
        "{0} was left by a crash, is in use, and has another size, other blocks or another right to write: unmount it first"
    )]
    Differs(PathBuf),
}

impl From<Held> for NoDevice {
    fn from(Held(lock): Held) -> Self {
        Self::Held(lock)
    }
}

/// Requests had not ended when patience ran out.
#[derive(Debug, thiserror::Error)]
#[error("requests of {0} have not ended")]
pub struct UnderWay(pub String);

/// Whether this is a device of ours, or a partition of one, that no process serves: who opens it waits for its array.
/// `folder` has the locks of all processes that serve devices.
pub fn is_left(device: &Path, folder: &Path) -> bool {
    nbd_device::is_left(device, folder) || ublk::is_left(device, folder)
}

/// Whether a process serves this device of ours.
pub fn is_served(device: &Path, folder: &Path) -> bool {
    nbd_device::is_served(device, folder) || ublk::is_served(device, folder)
}

/// Ends what a crash left of an array, and no front goes on with; gives the devices that are in use, and stay.
pub fn release_left(identity: &Identity, folder: &Path) -> Vec<PathBuf> {
    let of_nbd = match nbd_device::is_loaded() {
        Ok(()) => nbd_device::release_left(identity, folder),
        Err(_) => Vec::new(),
    };
    ublk::release_left(identity, folder).into_iter().chain(of_nbd).collect()
}

/// Whether a device is that array's. Also where the system does not say: who believes that it is another one's leaves it
/// attached. As long as a process has it open its number is no other one's.
pub fn is_of(device: &Path, identity: &Identity, folder: &Path) -> bool {
    match nbd_device::Index::of(device) {
        Some(index) => index.is_of(identity),
        None => ublk::is_of(device, identity, folder),
    }
}

/// Has the driver end a device, for a process that does not serve it: what is under way there ends, and what programs
/// that have it open ask for fails.
pub fn stop(device: &Path) -> io::Result<()> {
    match nbd_device::Index::of(device) {
        Some(index) => nbd_device::disconnect(index).map_err(io::Error::other),
        None => ublk::stop(device),
    }
}

/// Tells the kernel what suits a new device: of the nbd driver short discards, of the ublk driver an early look at old
/// requests.
///
/// For a process that does not serve the device: the kernel first waits until all that is under way there has ended.
pub fn tune(device: &Path) -> io::Result<()> {
    match nbd_device::Index::of(device) {
        Some(index) => nbd_device::shorten_discards(index),
        None => ublk::look_early(device),
    }
}

/// The front, as users write it, that goes on with such a device.
pub fn front_of(device: &Path) -> &'static str {
    if ublk::is_device(device) { "ublk" } else { "nbd-device" }
}
