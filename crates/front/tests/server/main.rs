//! The server on real lanes and sockets: over bytes in memory with both ways to the kernel, and over
//! a real array.

mod array;
mod behaviour;
#[path = "../common/blocking.rs"]
mod blocking;
mod client;
mod memory;
mod vhost_user;
