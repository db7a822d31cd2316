//! Front ends of mdspace: NBD, FUSE and vhost-user to engine requests.
//!
//! - [`Address`]: where a front end answers, as users write it.
//! - [`listener`], [`rights`], [`peer`]: sockets, who may connect to them, and who does.
//! - [`tls`]: who a server is, and whom it lets in.
//! - [`volume`]: what is served: an array on one lane.
//! - [`device`]: a single member, served as it is.
//! - [`nbd`]: the protocol, and its server.
//! - [`fuse`]: the same for FUSE: the array as a file.
//! - [`vhost_user`]: the disk of a virtual machine.
//! - [`host_device`]: a block device of this host as which an array is served.
//! - [`driver_device`]: one of a driver of this host that outlives its process; [`identity`]: whose it is.
//! - [`loop_device`]: a loop device over that file.
//! - [`ublk`]: a device of the host's ublk driver.
//! - [`nbd_device`]: a device of the host's nbd driver.
//!
//! The kernel writes what it holds back of such a device to make room in memory. So a program that serves one says
//! `PR_SET_IO_FLUSHER` before it starts its lanes, and locks its memory: else both may wait for each other.

pub mod address;
mod arrivals;
mod command_ring;
pub mod device;
pub mod driver_device;
pub mod flushes;
pub mod fuse;
pub mod host_device;
pub mod identity;
pub mod listener;
pub mod loop_device;
mod making;
pub mod nbd;
pub mod nbd_device;
mod netlink;
mod partial_writes;
mod passed;
pub mod peer;
mod pieces;
pub mod rights;
mod served_lock;
mod tags;
pub mod tls;
pub mod ublk;
pub mod vhost_user;
pub mod volume;
mod wait;

pub use address::{Address, AddressError};
pub use partial_writes::PartialWrites;
