//! Front ends of mdspace: NBD to engine requests.
//!
//! - [`Address`]: where a front end answers, as users write it.
//! - [`listener`], [`peer`]: sockets, and who connects to them.
//! - [`nbd`]: the protocol.

pub mod address;
pub mod listener;
pub mod nbd;
pub mod peer;

pub use address::{Address, AddressError};
