//! NBD, the network block device protocol: fixed newstyle handshake, simple and structured replies, extended headers.
//!
//! Source: `doc/proto.md` of the NetworkBlockDevice project (public domain). All integers on the
//! wire are big-endian.
//!
//! This module decides and never does I/O. A [`Session`] is one connection as the server sees it:
//!
//! ```text
//!   bytes received ──▶ Session::poll ──▶ Event::Request ──▶ the caller executes it
//!                                                               │
//!   bytes to send  ◀── Batch         ◀── Session::done, data, extents, failed
//! ```
//!
//! - [`export`]: what is offered: names, sizes, block sizes, abilities.
//! - [`session`]: one connection, its limits, its events.
//! - [`context`]: what a block status may tell.
//! - [`request`]: the requests that survived every check of the protocol.
//! - [`budget`]: memory that all clients of a process share.
//! - [`batch`]: answers that leave together in one send, data uncopied.
//! - [`pairs`]: connections whose other ends the kernel's driver has.
//! - [`broker`], [`membership`]: one address for the arrays of several processes.
//! - [`client`]: the other end, small, for tests and tools.

pub mod batch;
pub mod broker;
pub mod budget;
pub mod client;
mod clients;
mod connection;
pub mod context;
pub mod export;
mod handover;
mod handshake;
pub mod membership;
pub mod pairs;
mod reply;
pub mod request;
pub mod server;
pub mod session;
mod transport;

use mdspace_io::nbd_wire as wire;

pub use batch::{Batch, Data, Piece};
pub use broker::Broker;
pub use budget::Budget;
pub use context::{Context, Contexts, Extent};
pub use export::{BlockSizes, Export, ExportError, Exports, ReadOnlySwitch};
pub use membership::SharedAddress;
pub use pairs::PairServer;
pub use request::{Command, Cookie, Framing, Request};
pub use server::{Keeper, Server, ServerLimits, StillConnected};
pub use session::{Closing, Event, Limits, Misbehaved, Session};
pub use wire::Errno;
