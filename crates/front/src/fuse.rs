//! FUSE, the kernel's protocol for file systems in user space: an array as one file in a directory.
//!
//! Source: the protocol of `/dev/fuse`, version 7.31 and later (`include/uapi/linux/fuse.h`, whose
//! authors also give it under the BSD licence). All integers are in the machine's byte order.
//!
//! - `wire`: the structures of the protocol.
//! - [`session`]: what each request asks for; decides, and never does I/O.
//! - `ring`: requests and answers through io_uring, where the kernel has that (Linux 6.14).
//! - [`mount`]: the directory: mounted, unmounted, and freed of what a crash left there.
//! - [`server`]: the mount, its lanes, and the programs that have the file open.

mod connection;
pub mod mount;
mod ring;
pub mod server;
pub mod session;
mod wire;

pub use mount::{Mount, MountError};
pub use server::{FuseServer, InUse};
pub use session::Session;
