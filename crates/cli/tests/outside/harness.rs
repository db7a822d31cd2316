//! What the tests share: the fetched programs, the booted kernel, member images, and the pattern
//! that tells every sector and every version of it apart.

mod guest;
mod images;
mod pattern;
mod tools;

pub(crate) use guest::Guest;
pub(crate) use images::{Images, flip};
pub(crate) use pattern::Pattern;
pub(crate) use tools::{Tools, project};

/// Bytes in a sector.
pub(crate) const SECTOR: usize = 512;

/// Bytes in a MiB.
pub(crate) const MIB: u64 = 1 << 20;
