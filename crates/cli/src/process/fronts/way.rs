//! The ways in which an array becomes a block device of this host, and which one a front takes.

use std::fmt;
use std::fs::OpenOptions;

use mdspace_front::address::Endpoint;
use mdspace_front::{nbd_device, ublk};
use rustix::process::geteuid;
use rustix::thread::{CapabilitySet, capabilities};

/// What a block device is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::process) enum Way {
    /// The host's ublk driver.
    Ublk,
    /// The host's nbd driver.
    NbdDevice,
    /// A loop device over a mounted file.
    Loop,
}

impl Way {
    /// The way of a front at this place; none where it is no block device. An error says what is missing.
    pub(super) fn of(endpoint: &Endpoint) -> Result<Option<Self>, String> {
        let way = match endpoint {
            Endpoint::Ublk => has_ublk().map(|()| Self::Ublk),
            Endpoint::NbdDevice => {
                nbd_device::load().map(|()| Self::NbdDevice).map_err(|error| error.to_string())
            }
            Endpoint::Loop => has_loop_devices().map(|()| Self::Loop),
            Endpoint::Block => best([
                (Self::Ublk, &has_ublk),
                (Self::NbdDevice, &has_nbd_driver),
                (Self::Loop, &has_loop_devices),
            ]),
            Endpoint::Nbd(_) | Endpoint::VhostUser(_) | Endpoint::Fuse(_) => return Ok(None),
        };
        way.map(Some)
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ublk => "a device of the kernel's ublk driver",
            Self::NbdDevice => "a device of the kernel's nbd driver",
            Self::Loop => "a loop device",
        })
    }
}

/// Whether this host has a way. An error says what is missing.
type Look<'a> = &'a dyn Fn() -> Result<(), String>;

/// The first of these that this host has. What comes after it is not looked for.
fn best<const N: usize>(ways: [(Way, Look<'_>); N]) -> Result<Way, String> {
    let mut missing = Vec::new();
    for (way, look) in ways {
        match look() {
            Ok(()) => return Ok(way),
            Err(why) => missing.push(why),
        }
    }
    Err(missing.join("; "))
}

fn has_ublk() -> Result<(), String> {
    ublk::is_loaded().map_err(|error| error.to_string())
}

fn has_nbd_driver() -> Result<(), String> {
    nbd_device::is_loaded().map_err(|error| error.to_string())
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
