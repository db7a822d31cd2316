//! md's on-disk formats: bytes to types and back.
//!
//! Nothing here reads or writes a device, and no input makes it panic: a superblock, a bitmap or
//! a bad-block log comes in as bytes and leaves as a validated type or as an error that names
//! the field, its value and the reason.
//!
//! | module | on disk | source |
//! |---|---|---|
//! | [`superblock`] | `mdp_superblock_1`, metadata 1.0, 1.1, 1.2 | Linux `md_p.h` |
//! | [`bitmap`] | write-intent bitmap, versions 3 and 4 | Linux `md-bitmap.h` |
//! | [`bad_blocks`] | bad-block log | Linux `md.c`, `badblocks.h` |
//! | [`layout`] | mdadm's words for layouts | mdadm `maps.c` |
//! | [`placement`] | where the parts lie on a new member | mdadm `super1.c` |
//! | [`new_array`] | the first superblocks and bitmap of an array | mdadm `super1.c` |
//!
//! A sector is 512 bytes everywhere. Every number on disk is little-endian.
#![forbid(unsafe_code)]

pub mod bad_blocks;
pub mod bitmap;
mod features;
mod field;
pub mod layout;
mod level;
mod metadata_version;
pub mod new_array;
pub mod placement;
mod role;
pub mod superblock;
mod timestamp;
mod uuid;

pub use bad_blocks::{BadBlockLog, BadBlocks};
pub use bitmap::{BitmapSuperblock, DirtyMap};
pub use features::{Features, Unsupported};
pub use field::Field;
pub use level::{Level, UnknownLevel};
pub use metadata_version::{MetadataVersion, SuperblockPlace};
pub use role::Role;
pub use superblock::{Superblock, SuperblockError};
pub use timestamp::Timestamp;
pub use uuid::{InvalidUuid, Uuid};

/// Bytes in a sector, the unit of every position and length on disk.
pub const SECTOR_BYTES: u64 = 512;

/// The largest device, member or array, in sectors: its length in bytes is a file offset of Linux, at most
/// 2^63 - 1.
pub const MAX_SECTORS: u64 = (1 << 54) - 1;
