//! The server on real lanes and sockets: over bytes in memory with both ways to the kernel, and over
//! a real array.

mod array;
mod behaviour;
mod client;
mod memory;
