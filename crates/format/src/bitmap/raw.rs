//! The bitmap header's bytes: `bitmap_super_s` of Linux `md-bitmap.h`, little-endian.

use std::mem::size_of;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::field::fields_lie_at;

/// Byte 0, u32: "bitm" in ASCII.
pub const MAGIC: u32 = 0x6d74_6962;
/// Bytes of the header; the bits follow at once.
pub const HEADER_BYTES: usize = 256;

/// The header, in its order on disk.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawBitmap {
    /// Byte 0, u32: [`MAGIC`].
    pub(super) magic: U32,
    /// Byte 4, u32: 3 host-endian, 4 little-endian, 5 clustered, 6 llbitmap.
    pub(super) version: U32,
    /// Byte 8, 16 bytes: UUID of the array.
    pub(super) uuid: [u8; 16],
    /// Byte 24, u64: events of the array at the last write.
    pub(super) events: U64,
    /// Byte 32, u64: events of the array when a bit was last cleared.
    pub(super) events_cleared: U64,
    /// Byte 40, u64: sectors covered.
    pub(super) sync_size: U64,
    /// Byte 48, u32: state bits.
    pub(super) state: U32,
    /// Byte 52, u32: bytes that one bit stands for.
    pub(super) chunksize: U32,
    /// Byte 56, u32: seconds between passes that clear bits.
    pub(super) daemon_sleep: U32,
    /// Byte 60, u32: writes that may be left behind.
    pub(super) write_behind: U32,
    /// Byte 64, u32: sectors kept for the bitmap.
    pub(super) sectors_reserved: U32,
    /// Byte 68, 188 bytes: u32 nodes and 64 bytes of cluster name in version 5, else zero.
    pub(super) rest: [u8; 188],
}

fields_lie_at! {
    RawBitmap {
        magic 0 4, version 4 4, uuid 8 16, events 24 8, events_cleared 32 8, sync_size 40 8,
        state 48 4, chunksize 52 4, daemon_sleep 56 4, write_behind 60 4, sectors_reserved 64 4,
        rest 68 188,
    }
}

const _: () = assert!(size_of::<RawBitmap>() == HEADER_BYTES);
