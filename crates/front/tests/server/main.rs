//! The server on real lanes and sockets, with both ways to the kernel, over bytes in memory.

mod behaviour;
mod client;
mod memory;
