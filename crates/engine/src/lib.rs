//! What an md array is and does: every level, every member state, every decision.
#![forbid(unsafe_code)]

pub mod array;
pub mod assembly;
pub mod backend;
pub mod balance;
#[cfg(any(test, feature = "contract"))]
pub mod contract;
pub mod create;
mod erase;
pub mod geometry;
pub mod lane;
pub mod memory;
pub mod neighbours;
pub mod paths;
pub mod ranges;
pub mod request;
mod signal;
pub mod status;
pub mod sync;
pub mod time;
