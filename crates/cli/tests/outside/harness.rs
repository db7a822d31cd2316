//! What the tests share: the fetched programs, the booted kernel, member images, and the pattern
//! that tells every sector and every version of it apart.

mod guest;
mod images;
mod mdspace;
mod model;
mod nbd;
mod pattern;
mod tools;
mod wait;
mod write_log;

pub(crate) use guest::Guest;
pub(crate) use images::{Images, flip, path_text};
pub(crate) use mdspace::{Done, Mdspace, UNDECIDABLE};
pub(crate) use model::Model;
pub(crate) use nbd::{Nbd, Reply, Request};
pub(crate) use pattern::{Pattern, Stream, seed};
pub(crate) use tools::{Tools, project};
pub(crate) use wait::until;
pub(crate) use write_log::WriteLog;

/// Bytes in a sector.
pub(crate) const SECTOR: usize = 512;

/// Bytes in a MiB.
pub(crate) const MIB: u64 = 1 << 20;
