//! The superblock's bytes: `mdp_superblock_1` of Linux `md_p.h`, little-endian throughout.

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::field::fields_lie_at;

/// Byte 0, u32: the first four bytes of every md superblock.
pub const MAGIC: u32 = 0xa92b_4efc;
/// Byte 4, u32: the major version of metadata 1.0, 1.1 and 1.2.
pub const MAJOR_VERSION: u32 = 1;
/// Bytes of the fixed part; the roles follow.
pub const FIXED_BYTES: usize = 256;
/// Bytes of a superblock with as many roles as there may be, and of the area kept for it.
pub const AREA_BYTES: usize = 4096;
/// Most roles that fit (u16 each) in the area behind the fixed part.
pub const MAX_ROLES: usize = (AREA_BYTES - FIXED_BYTES) / 2;
/// Byte 208, u64: the value of `resync_offset` that means in sync.
pub const RESYNC_NONE: u64 = u64::MAX;

/// The first 256 bytes, in their order on disk.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawSuperblock {
    /// Byte 0, u32: [`MAGIC`].
    pub(super) magic: U32,
    /// Byte 4, u32: [`MAJOR_VERSION`].
    pub(super) major_version: U32,
    /// Byte 8, u32: feature bits.
    pub(super) feature_map: U32,
    /// Byte 12, u32: zero.
    pub(super) pad0: U32,
    /// Byte 16, 16 bytes: UUID of the array.
    pub(super) set_uuid: [u8; 16],
    /// Byte 32, 32 bytes: name of the array, padded with zeros.
    pub(super) set_name: [u8; 32],
    /// Byte 64, u64: creation; low 40 bits seconds, high 24 bits microseconds.
    pub(super) ctime: U64,
    /// Byte 72, i32: level.
    pub(super) level: I32,
    /// Byte 76, u32: layout, its meaning given by the level.
    pub(super) layout: U32,
    /// Byte 80, u64: sectors used of each member; 0 for linear and RAID0.
    pub(super) size: U64,
    /// Byte 88, u32: sectors of a chunk.
    pub(super) chunksize: U32,
    /// Byte 92, u32: slots of the array.
    pub(super) raid_disks: U32,
    /// Byte 96, i32: sectors from the superblock to the bitmap. With PPL: i16 offset, u16 size.
    pub(super) bitmap_offset: I32,
    /// Byte 100, u32: level after the reshape.
    pub(super) new_level: U32,
    /// Byte 104, u64: array sector that the reshape has reached.
    pub(super) reshape_position: U64,
    /// Byte 112, i32: slots that the reshape adds.
    pub(super) delta_disks: I32,
    /// Byte 116, u32: layout after the reshape.
    pub(super) new_layout: U32,
    /// Byte 120, u32: sectors of a chunk after the reshape.
    pub(super) new_chunk: U32,
    /// Byte 124, i32: sectors by which the reshape moves `data_offset`.
    pub(super) new_offset: I32,
    /// Byte 128, u64: first sector of data.
    pub(super) data_offset: U64,
    /// Byte 136, u64: sectors that data may use.
    pub(super) data_size: U64,
    /// Byte 144, u64: sector of this superblock.
    pub(super) super_offset: U64,
    /// Byte 152, u64: sectors rebuilt so far; on a journal, sector of the journal's tail.
    pub(super) recovery_offset: U64,
    /// Byte 160, u32: index of this member in `dev_roles`.
    pub(super) dev_number: U32,
    /// Byte 164, u32: read errors corrected by rewriting.
    pub(super) cnt_corrected_read: U32,
    /// Byte 168, 16 bytes: UUID of this member.
    pub(super) device_uuid: [u8; 16],
    /// Byte 184, u8: bit 0 write-mostly, bit 1 failfast.
    pub(super) devflags: u8,
    /// Byte 185, u8: log2 of the sectors in a unit of the bad-block log.
    pub(super) bblog_shift: u8,
    /// Byte 186, u16: sectors of the bad-block log.
    pub(super) bblog_size: U16,
    /// Byte 188, i32: sectors from the superblock to the bad-block log.
    pub(super) bblog_offset: I32,
    /// Byte 192, u64: last update, as `ctime`.
    pub(super) utime: U64,
    /// Byte 200, u64: number of the update.
    pub(super) events: U64,
    /// Byte 208, u64: sectors known in sync; [`RESYNC_NONE`] when clean.
    pub(super) resync_offset: U64,
    /// Byte 216, u32: checksum, computed with 0 here.
    pub(super) sb_csum: U32,
    /// Byte 220, u32: roles that follow the fixed part.
    pub(super) max_dev: U32,
    /// Byte 224, u32: logical block of the array in bytes (Linux 6.19 and later), else 0.
    pub(super) logical_block_size: U32,
    /// Byte 228, 28 bytes: zero.
    pub(super) pad3: [u8; 28],
}

fields_lie_at! {
    RawSuperblock {
        magic 0 4, major_version 4 4, feature_map 8 4, pad0 12 4, set_uuid 16 16,
        set_name 32 32, ctime 64 8, level 72 4, layout 76 4, size 80 8, chunksize 88 4,
        raid_disks 92 4, bitmap_offset 96 4, new_level 100 4, reshape_position 104 8,
        delta_disks 112 4, new_layout 116 4, new_chunk 120 4, new_offset 124 4,
        data_offset 128 8, data_size 136 8, super_offset 144 8, recovery_offset 152 8,
        dev_number 160 4, cnt_corrected_read 164 4, device_uuid 168 16, devflags 184 1,
        bblog_shift 185 1, bblog_size 186 2, bblog_offset 188 4, utime 192 8, events 200 8,
        resync_offset 208 8, sb_csum 216 4, max_dev 220 4, logical_block_size 224 4,
        pad3 228 28,
    }
}

const _: () = assert!(size_of::<RawSuperblock>() == FIXED_BYTES);

/// md's checksum over a superblock's fixed part and roles, whose `sb_csum` counts as 0.
///
/// The bytes are summed as little-endian u32 (a last half word as u16) into 64 bits; the result
/// is the sum of both halves, cut to 32 bits.
pub(super) fn checksum(superblock: &[u8]) -> u32 {
    let stored = offset_of!(RawSuperblock, sb_csum);
    let mut sum = 0u64;
    for (index, word) in superblock.chunks(4).enumerate() {
        if index * 4 != stored {
            let mut bytes = [0u8; 4];
            bytes[..word.len()].copy_from_slice(word);
            sum += u64::from(u32::from_le_bytes(bytes));
        }
    }
    (sum as u32).wrapping_add((sum >> 32) as u32)
}
