//! The server on real lanes and sockets: over bytes in memory with both ways to the kernel, and over
//! a real array.

mod array;
mod behaviour;
#[path = "../common/blocking.rs"]
mod blocking;
#[path = "../common/certificates.rs"]
mod certificates;
mod client;
mod copies;
mod memory;
mod tls;
mod vhost_user;
