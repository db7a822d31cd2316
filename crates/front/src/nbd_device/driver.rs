//! Orders to the host's nbd driver.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::identity::Identity;
use crate::nbd::Export;
use crate::netlink::{Attributes, Family};

use super::NbdDeviceError;
use super::index::Index;

const FAMILY: &str = "nbd";
const VERSION: u8 = 1;

/// `NBD_CMD_*`.
mod command {
    pub(super) const CONNECT: u8 = 1;
    pub(super) const DISCONNECT: u8 = 2;
    pub(super) const RECONFIGURE: u8 = 3;
}

/// `NBD_ATTR_*`.
mod attribute {
    /// N of `/dev/nbdN`: 4 bytes.
    pub(super) const INDEX: u16 = 1;
    /// 8 bytes, as all that follow but for the last three.
    pub(super) const SIZE_BYTES: u16 = 2;
    pub(super) const BLOCK_SIZE_BYTES: u16 = 3;
    /// Seconds.
    pub(super) const TIMEOUT: u16 = 4;
    /// The transmission flags of `doc/proto.md`.
    pub(super) const SERVER_FLAGS: u16 = 5;
    /// One attribute [`SOCKET`] for each connection.
    pub(super) const SOCKETS: u16 = 7;
    /// Seconds.
    pub(super) const DEAD_CONN_TIMEOUT: u16 = 8;
    /// Text.
    pub(super) const BACKEND_IDENTIFIER: u16 = 10;
    /// `NBD_SOCK_ITEM`: holds [`DESCRIPTOR`].
    pub(super) const SOCKET: u16 = 1;
    /// `NBD_SOCK_FD`: 4 bytes.
    pub(super) const DESCRIPTOR: u16 = 1;
}

/// How long requests wait for another process when theirs is gone, in seconds. After that they fail.
const DEAD_CONNECTION_TIMEOUT_S: u64 = 600;

/// The driver, to be asked.
pub(super) struct Driver(Family);

impl Driver {
    /// The kernel loads it, where it can.
    pub(super) fn find() -> Result<Self, NbdDeviceError> {
        Family::find(FAMILY, VERSION).map(Self).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => NbdDeviceError::NoDriver,
            _ => NbdDeviceError::Ask(error),
        })
    }

    /// Makes a device of these connections, whose other ends serve an export with such transmission flags.
    pub(super) fn connect(
        &self,
        identity: &Identity,
        export: &Export,
        flags: u16,
        sockets: &[OwnedFd],
    ) -> Result<Index, NbdDeviceError> {
        let block_bytes = export.block_sizes.minimum();
        let attributes = waiting(Attributes::default())
            .u64(attribute::SIZE_BYTES, export.size_bytes)
            .u64(attribute::BLOCK_SIZE_BYTES, block_bytes.into())
            .u64(attribute::SERVER_FLAGS, flags.into())
            .text(attribute::BACKEND_IDENTIFIER, identity.as_str());
        let told = self.0.ask(command::CONNECT, &with_sockets(attributes, sockets));
        let told = told.map_err(|error| refused(error, block_bytes))?;
        let index = told.find(attribute::INDEX);
        let index = index.and_then(|index| Some(u32::from_ne_bytes(index.try_into().ok()?)));
        Ok(Index(index.ok_or_else(|| io::Error::other("it does not say which"))?))
    }

    /// Gives a device connections. The driver takes each in place of one that is dead, and closes those that it has no
    /// place for.
    pub(super) fn give(
        &self,
        index: Index,
        identity: &Identity,
        sockets: &[OwnedFd],
    ) -> io::Result<()> {
        let attributes = waiting(Attributes::default())
            .u32(attribute::INDEX, index.0)
            .text(attribute::BACKEND_IDENTIFIER, identity.as_str());
        self.0.ask(command::RECONFIGURE, &with_sockets(attributes, sockets)).map(drop)
    }

    /// Ends a device.
    pub(super) fn disconnect(&self, index: Index) -> io::Result<()> {
        let attributes = Attributes::default().u32(attribute::INDEX, index.0);
        self.0.ask(command::DISCONNECT, &attributes).map(drop)
    }
}

/// Why the driver gives no device.
fn refused(error: io::Error, block_bytes: u32) -> NbdDeviceError {
    let is_invalid = error.kind() == io::ErrorKind::InvalidInput;
    match is_invalid && block_bytes as usize > rustix::param::page_size() {
        true => NbdDeviceError::Block(block_bytes),
        false => error.into(),
    }
}

/// Each request takes as long as it takes, and waits for another process when this one is gone.
fn waiting(attributes: Attributes) -> Attributes {
    attributes
        .u64(attribute::TIMEOUT, 0)
        .u64(attribute::DEAD_CONN_TIMEOUT, DEAD_CONNECTION_TIMEOUT_S)
}

fn with_sockets(attributes: Attributes, sockets: &[OwnedFd]) -> Attributes {
    let list = sockets.iter().fold(Attributes::default(), |list, socket| {
        let descriptor = socket.as_raw_fd().cast_unsigned();
        let one = Attributes::default().u32(attribute::DESCRIPTOR, descriptor);
        list.nest(attribute::SOCKET, &one)
    });
    attributes.nest(attribute::SOCKETS, &list)
}

#[cfg(test)]
mod tests;
