//! The ways in which an array becomes a block device of this host, and which one a front takes.

use std::fmt;
use std::fs::OpenOptions;

use mdspace_front::address::Endpoint;
use mdspace_front::nbd_device::{self, NbdDeviceError};
use rustix::process::geteuid;
use rustix::thread::{CapabilitySet, capabilities};

/// What a block device is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The host's nbd driver.
    NbdDevice,
    /// A loop device over a mounted file.
    Loop,
}

impl Way {
    /// The way of a front at this place; none where it is no block device. An error says what is missing.
    pub(super) fn of(endpoint: &Endpoint) -> Result<Option<Self>, String> {
        let words = |error: NbdDeviceError| error.to_string();
        let way = match endpoint {
            Endpoint::NbdDevice => nbd_device::load().map_err(words).map(|()| Self::NbdDevice),
            Endpoint::Loop => has_loop_devices().map(|()| Self::Loop),
            Endpoint::Block => best(nbd_device::is_loaded().map_err(words), has_loop_devices),
            Endpoint::Nbd(_) | Endpoint::VhostUser(_) | Endpoint::Fuse(_) => return Ok(None),
        };
        way.map(Some)
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NbdDevice => "a device of the kernel's nbd driver",
            Self::Loop => "a loop device",
        })
    }
}

/// The best of those that this host has.
fn best(
    nbd_device: Result<(), String>,
    of_loop: impl FnOnce() -> Result<(), String>,
) -> Result<Way, String> {
    match nbd_device {
        Ok(()) => Ok(Way::NbdDevice),
        Err(no_driver) => match of_loop() {
            Ok(()) => Ok(Way::Loop),
            Err(no_loop) => Err(format!("{no_driver}; {no_loop}")),
        },
    }
}

fn may_mount() -> bool {
    capabilities(None).is_ok_and(|own| own.effective.contains(CapabilitySet::SYS_ADMIN))
}

fn has_loop_devices() -> Result<(), String> {
    // The file below is mounted. Who is not root has a program of root do that.
    if geteuid().is_root() && !may_mount() {
        return Err("a loop device needs root with CAP_SYS_ADMIN".into());
    }
    let control = "/dev/loop-control";
    let opened = OpenOptions::new().read(true).write(true).open(control);
    opened.map(drop).map_err(|error| {
        format!("{control}: {error}; a loop device needs root, and the module `loop`")
    })
}

#[cfg(test)]
mod tests;
