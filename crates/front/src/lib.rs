//! Front ends of mdspace: NBD to engine requests.
//!
//! - [`Address`]: where a front end answers, as users write it.
//! - [`listener`], [`peer`]: sockets, and who connects to them.
//! - [`volume`]: what is served: an array on one lane.
//! - [`device`]: a single member, served as it is.
//! - [`nbd`]: the protocol, and its server.

pub mod address;
pub mod device;
pub mod listener;
pub mod nbd;
pub mod peer;
pub mod volume;

pub use address::{Address, AddressError};
