//! The write-intent bitmap: which chunks of the array may be out of sync.
//!
//! On disk a 256-byte header is followed at once by the bits: bit k is bit k%8 of byte 256 + k/8.
//! Every active member holds a copy. The bits count member sectors, for RAID10 array sectors.

mod dirty_map;
mod lockless;
mod raw;

use std::ops::Range;

use zerocopy::{FromBytes, IntoBytes};

pub use dirty_map::DirtyMap;
pub use lockless::{LOCKLESS_SECTORS_MAX, LOCKLESS_VERSION, LocklessBitmap, LocklessChunks};
pub use raw::{FIELDS, HEADER_BYTES, MAGIC};

use crate::{SECTOR_BYTES, Uuid};
use raw::RawBitmap;

/// Bytes of the unit in which the bitmap is read and written; the header is in the first.
pub const PAGE_BYTES: usize = 4096;
/// Smallest chunk that md accepts, in bytes.
pub const CHUNK_BYTES_MIN: u32 = 512;
/// Largest number of writes left behind on write-mostly members.
pub const WRITE_BEHIND_MAX: u32 = 16383;

/// The bitmap's header (`bitmap_super_s`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitmapSuperblock {
    /// Byte order of the bits.
    pub version: BitmapVersion,
    /// UUID of the array.
    pub uuid: Uuid,
    /// Events of the array when the bitmap was last written.
    pub events: u64,
    /// Events of the array when a bit was last cleared: a member that has seen these may be
    /// re-added by bitmap.
    pub events_cleared: u64,
    /// Sectors that the bits cover.
    pub sync_size_sectors: u64,
    /// See [`BitmapState`].
    pub state: BitmapState,
    /// Bytes that one bit stands for.
    pub chunk_bytes: u32,
    /// Seconds between passes that clear bits.
    pub daemon_sleep_seconds: u32,
    /// Writes that may be left behind on write-mostly members; 0 is none.
    pub write_behind: u32,
    /// Sectors kept for the bitmap; 0 where it was not recorded.
    pub sectors_reserved: u32,
    /// Bytes 68 to 255, nodes and name of a cluster in version 5: kept as found.
    pub padding: [u8; 188],
}

/// The byte order of a bitmap. On a little-endian machine both are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BitmapVersion {
    /// Version 3: that of the machine that wrote it.
    HostEndian,
    /// Version 4: little-endian.
    LittleEndian,
}

impl BitmapVersion {
    /// The number that the header stores.
    pub fn number(self) -> u32 {
        match self {
            BitmapVersion::HostEndian => 3,
            BitmapVersion::LittleEndian => 4,
        }
    }
}

/// State bits of the header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BitmapState(pub u32);

impl BitmapState {
    /// The bits are not to be trusted: all count as set.
    pub const STALE: u32 = 1 << 1;
    /// A write of the bitmap failed.
    pub const WRITE_ERROR: u32 = 1 << 2;
    /// Version 6: no kernel has started the array with this bitmap yet.
    pub const FIRST_USE: u32 = 1 << 3;

    /// The bits are not to be trusted: all count as set.
    pub fn is_stale(self) -> bool {
        self.0 & BitmapState::STALE != 0
    }
}

/// Why bytes are not a bitmap that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BitmapError {
    /// Fewer bytes than a header has.
    #[error("{have} bytes are too few for a bitmap header, 256 are needed")]
    Short {
        /// Bytes given.
        have: usize,
    },
    /// The magic number is another.
    #[error("no bitmap: magic is {found:#010x}, not 0x6d746962")]
    NoMagic {
        /// The number found in its place.
        found: u32,
    },
    /// A version that is not handled.
    #[error("bitmap version {version} ({name}) is not handled; versions 3 and 4 are")]
    Version {
        /// The version found.
        version: u32,
        /// What md calls it.
        name: &'static str,
    },
    /// Version 6, and what it says.
    #[error("bitmap version 6 (llbitmap, Linux 6.18 and later) is not handled; {0}")]
    Lockless(LocklessBitmap),
    /// A value that cannot be.
    #[error("bitmap field {field} is {value}: {reason}")]
    Impossible {
        /// md's name of the field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// Why it cannot be.
        reason: &'static str,
    },
}

impl BitmapSuperblock {
    /// Reads the header that begins at `bytes[0]`. `room_sectors` is what the bitmap may use with
    /// its header, see [`Superblock::bitmap_room`](crate::Superblock::bitmap_room): header and
    /// bits of what passes fit in it.
    pub fn parse(bytes: &[u8], room_sectors: u64) -> Result<BitmapSuperblock, BitmapError> {
        let (raw, _) = RawBitmap::read_from_prefix(bytes)
            .map_err(|_| BitmapError::Short { have: bytes.len() })?;
        if raw.magic.get() != MAGIC {
            return Err(BitmapError::NoMagic { found: raw.magic.get() });
        }
        let bitmap = BitmapSuperblock::from_raw(&raw)?;
        bitmap.validate(room_sectors)?;
        Ok(bitmap)
    }

    /// The header's 256 bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let raw = RawBitmap {
            magic: MAGIC.into(),
            version: self.version.number().into(),
            uuid: self.uuid.0,
            events: self.events.into(),
            events_cleared: self.events_cleared.into(),
            sync_size: self.sync_size_sectors.into(),
            state: self.state.0.into(),
            chunksize: self.chunk_bytes.into(),
            daemon_sleep: self.daemon_sleep_seconds.into(),
            write_behind: self.write_behind.into(),
            sectors_reserved: self.sectors_reserved.into(),
            rest: self.padding,
        };
        let mut bytes = [0; HEADER_BYTES];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }

    /// Checks every value, and that header and bits fit in `room_sectors`.
    pub fn validate(&self, room_sectors: u64) -> Result<(), BitmapError> {
        let impossible =
            |field, value, reason| Err(BitmapError::Impossible { field, value, reason });
        let chunk = self.chunk_bytes;
        if chunk < CHUNK_BYTES_MIN || !chunk.is_power_of_two() {
            let reason = "a chunk is a power of two of at least 512 bytes";
            return impossible("chunksize", chunk.into(), reason);
        }
        if self.daemon_sleep_seconds == 0 || self.daemon_sleep_seconds > i32::MAX as u32 {
            let reason = "out of range for seconds of sleep";
            return impossible("daemon_sleep", self.daemon_sleep_seconds.into(), reason);
        }
        if self.write_behind > WRITE_BEHIND_MAX {
            return impossible("write_behind", self.write_behind.into(), "at most 16383");
        }
        if self.on_disk_bytes().div_ceil(SECTOR_BYTES) > room_sectors {
            let reason = "its bits at this chunk size do not fit in the room for the bitmap";
            return impossible("sync_size", self.sync_size_sectors, reason);
        }
        Ok(())
    }

    /// Whether the bits speak for an array of this UUID at these events. If not, every bit counts
    /// as set.
    pub fn speaks_for(&self, set_uuid: Uuid, events: u64) -> bool {
        self.uuid == set_uuid && self.events >= events && !self.state.is_stale()
    }

    /// Sectors that one bit stands for.
    pub fn chunk_sectors(&self) -> u64 {
        u64::from(self.chunk_bytes) / SECTOR_BYTES
    }

    /// Bits in use.
    pub fn chunks(&self) -> u64 {
        self.sync_size_sectors.div_ceil(self.chunk_sectors().max(1))
    }

    /// The chunks that these sectors of the covered space touch, at most [`chunks`](Self::chunks).
    pub fn chunks_of(&self, sectors: Range<u64>) -> Range<u64> {
        let chunk = self.chunk_sectors().max(1);
        let end = sectors.end.div_ceil(chunk).min(self.chunks());
        (sectors.start / chunk).min(end)..end
    }

    /// The sectors of the covered space that these chunks stand for.
    pub fn sectors_of(&self, chunks: Range<u64>) -> Range<u64> {
        let sector =
            |chunk: u64| chunk.saturating_mul(self.chunk_sectors()).min(self.sync_size_sectors);
        sector(chunks.start)..sector(chunks.end)
    }

    /// Bytes of header and bits.
    pub fn on_disk_bytes(&self) -> u64 {
        on_disk_bytes(self.chunks())
    }

    /// The pages that hold header and bits, each [`PAGE_BYTES`] long.
    pub fn pages(&self) -> u64 {
        self.on_disk_bytes().div_ceil(PAGE_BYTES as u64)
    }

    /// Bytes of a page that are in use, in whole sectors; only the last page may have fewer than
    /// [`PAGE_BYTES`].
    pub fn page_bytes(&self, page: u64) -> usize {
        let start = page.saturating_mul(PAGE_BYTES as u64);
        let used = self.on_disk_bytes().saturating_sub(start).min(PAGE_BYTES as u64);
        (used.div_ceil(SECTOR_BYTES) * SECTOR_BYTES) as usize
    }

    /// One page as it lies on disk: bits, and on page 0 the header before them.
    pub fn encode_page(&self, map: &DirtyMap, page: u64) -> [u8; PAGE_BYTES] {
        let mut bytes = map.encode_page(page);
        if page == 0 {
            bytes[..HEADER_BYTES].copy_from_slice(&self.encode());
        }
        bytes
    }

    fn from_raw(raw: &RawBitmap) -> Result<BitmapSuperblock, BitmapError> {
        let version = match raw.version.get() {
            3 => BitmapVersion::HostEndian,
            4 => BitmapVersion::LittleEndian,
            version => return Err(BitmapError::Version { version, name: version_name(version) }),
        };
        Ok(BitmapSuperblock {
            version,
            uuid: Uuid(raw.uuid),
            events: raw.events.get(),
            events_cleared: raw.events_cleared.get(),
            sync_size_sectors: raw.sync_size.get(),
            state: BitmapState(raw.state.get()),
            chunk_bytes: raw.chunksize.get(),
            daemon_sleep_seconds: raw.daemon_sleep.get(),
            write_behind: raw.write_behind.get(),
            sectors_reserved: raw.sectors_reserved.get(),
            padding: raw.rest,
        })
    }
}

/// Bytes of a bitmap of so many chunks, header included.
pub(crate) fn on_disk_bytes(chunks: u64) -> u64 {
    HEADER_BYTES as u64 + chunks.div_ceil(8)
}

fn version_name(version: u32) -> &'static str {
    match version {
        5 => "clustered",
        LOCKLESS_VERSION => "llbitmap, Linux 6.18 and later",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests;
