//! vhost-user-blk: an array as the disk of a virtual machine, over memory that both share.
//!
//! Source: "Vhost-user Protocol" of the QEMU project (`docs/interop/vhost-user.rst`), and sections 2.7 and 5.2 of
//! "Virtual I/O Device (VIRTIO) Version 1.2" (OASIS). The crates `vhost`, `virtio-queue` and `vm-memory` know the
//! messages and the rings. What is decided here:
//!
//! ```text
//!   control socket ──▶ server (a thread) ──▶ device ──▶ orders to the lanes
//!   rings in guest memory ◀──▶ ring (a lane each) ◀──▶ the array
//! ```
//!
//! - [`server`]: the socket, its one client at a time, and the lanes.
//! - `device`: what the client's messages ask for, as orders to its rings.
//! - `ring`: one ring on its lane: requests in, answers out.
//! - `request`, `chain`: the requests that survived every check.
//! - `disk`: what the guest is told of the disk.
//! - `record`: which requests are under way, kept where a later process of ours finds it.
//! - `memory`, `guard`: guest memory, and what happens when it is taken away.
//! - `message`: whether a message is there as a whole.
//! - `padded`: a message that the crate does not take from User-Mode Linux.
//! - [`client`]: the other end, small, for tests.

mod chain;
pub mod client;
mod device;
mod disk;
mod event;
mod guard;
mod memory;
mod message;
mod padded;
mod record;
mod request;
mod ring;
pub mod server;

pub use server::{Keeper, Server, StillConnected};
