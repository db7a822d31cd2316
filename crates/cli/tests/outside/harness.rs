//! What the tests share: the fetched programs, the booted kernel, member images, and the pattern
//! that tells every sector and every version of it apart.

mod guest;
mod images;
mod model;
mod pattern;
mod tools;
mod write_log;

pub(crate) use guest::Guest;
pub(crate) use images::{Images, flip};
pub(crate) use model::Model;
pub(crate) use pattern::{Pattern, Stream};
pub(crate) use tools::{Tools, project};
pub(crate) use write_log::WriteLog;

/// Bytes in a sector.
pub(crate) const SECTOR: usize = 512;

/// Bytes in a MiB.
pub(crate) const MIB: u64 = 1 << 20;
