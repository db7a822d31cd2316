//! Where redundancy agrees, as the members' records say.
//!
//! A bit of the bitmap is durable before the first write of its chunk, and is cleared only when every member has
//! what was written there. A superblock says clean only after a flush, with no write under way. So, whatever
//! ended the process, copies and parity agree wherever neither marks it.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::disk::Disk;
use crate::stamp::SECTOR_BYTES;

use super::RawSuperblock;

/// What may disagree, in sectors as resync counts them.
#[derive(Debug)]
pub(super) struct Marks {
    /// Below, all agrees, whatever a bitmap says.
    pub(super) agrees_to: u64,
    /// Those of the members, if all of them have one.
    pub(super) bitmaps: Vec<RawBitmap>,
}

impl Marks {
    /// Whether redundancy agrees there.
    pub(super) fn agrees(&self, sector: u64) -> bool {
        let is_marked = |bitmap: &RawBitmap| bitmap.marks(sector);
        sector < self.agrees_to || !self.bitmaps.is_empty() && !self.bitmaps.iter().any(is_marked)
    }
}

/// The bitmap of one member (`bitmap_super_t`, little-endian: u64 at byte 24 its events, at 40 the sectors that it
/// covers, u32 at 52 bytes a chunk, bits from byte 256 on).
#[derive(Debug)]
pub(super) struct RawBitmap {
    chunk_sectors: u64,
    chunks: u64,
    marked: BTreeSet<u64>,
}

const BITMAP_MAGIC: u32 = 0x6d74_6962;
const BITMAP_HEADER_BYTES: usize = 256;

impl RawBitmap {
    pub(super) fn find(disk: &Disk, superblock: &RawSuperblock) -> Option<Self> {
        let start = superblock.bitmap_sector?;
        let mut header = [0; SECTOR_BYTES];
        disk.store.read(start, &mut header);
        let u32_at =
            |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("4 bytes"));
        let u64_at =
            |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("8 bytes"));
        let sectors = u64_at(40);
        let chunk_sectors = u64::from(u32_at(52)) / SECTOR_BYTES as u64;
        // One of an earlier update tells nothing.
        if u32_at(0) != BITMAP_MAGIC || chunk_sectors == 0 || u64_at(24) < superblock.events {
            return None;
        }
        let chunks = sectors.div_ceil(chunk_sectors);
        let bytes = BITMAP_HEADER_BYTES + chunks.div_ceil(8) as usize;
        let mut bits = vec![0; bytes.next_multiple_of(SECTOR_BYTES)];
        disk.store.read(start, &mut bits);
        let is_set = |chunk: &u64| {
            bits[BITMAP_HEADER_BYTES + (*chunk / 8) as usize] >> (*chunk % 8) & 1 == 1
        };
        Some(Self { chunk_sectors, chunks, marked: (0..chunks).filter(is_set).collect() })
    }

    fn marks(&self, sector: u64) -> bool {
        self.marked.contains(&(sector / self.chunk_sectors))
    }
}

/// Where a member's bitmap lies, and what it is.
pub fn bitmap_of(disk: &Disk, superblock: &RawSuperblock) -> Option<(u64, Vec<u8>)> {
    let start = superblock.bitmap_sector?;
    let chunks = RawBitmap::find(disk, superblock)?.chunks;
    let mut bytes =
        vec![0; (BITMAP_HEADER_BYTES + chunks.div_ceil(8) as usize).next_multiple_of(SECTOR_BYTES)];
    disk.store.read(start, &mut bytes);
    Some((start, bytes))
}

/// Sectors of the device that its bad-block log names: entries of 64 bits, the length in the low 10.
pub(super) fn listed_as_bad(disk: &Disk, superblock: &RawSuperblock) -> Vec<Range<u64>> {
    let Some(log) = &superblock.bad_block_log else { return Vec::new() };
    let mut bytes = vec![0; (log.end - log.start) as usize * SECTOR_BYTES];
    disk.store.read(log.start, &mut bytes);
    let entries =
        bytes.chunks_exact(8).map(|entry| u64::from_le_bytes(entry.try_into().expect("8 bytes")));
    let entries = entries.take_while(|entry| *entry != u64::MAX);
    entries.map(|entry| entry >> 10..(entry >> 10) + (entry & 0x3ff)).collect()
}
