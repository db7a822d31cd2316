//! What must agree after any crash: redundancy outside of what the bitmap marks.
//!
//! A bit of the bitmap is durable before the first write of its chunk, and is cleared only when every
//! member has what was written there. So, whatever a crash left, copies and parity agree in every chunk
//! that no bitmap marks, on all members that count.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::disk::{Disk, DiskIndex};
use crate::stamp::SECTOR_BYTES;
use crate::world::World;

use super::{RawArray, RawSuperblock};

/// The bitmap of one member (`bitmap_super_t`, little-endian: u64 at byte 40 the sectors that it covers,
/// u32 at 52 bytes a chunk, bits from byte 256 on).
struct RawBitmap {
    chunk_sectors: u64,
    marked: BTreeSet<u64>,
}

const BITMAP_MAGIC: u32 = 0x6d74_6962;
const BITMAP_HEADER_BYTES: usize = 256;

impl RawArray<'_> {
    /// Sectors whose redundancy disagrees though nothing marks them, as resync counts them. None where
    /// that cannot be said: a member is missing, or nothing says which writes were under way.
    pub fn unmarked_mismatches(world: &World, disks: &[DiskIndex], sectors: u64) -> Vec<u64> {
        let Ok((array, agrees_to)) = RawArray::find(world, disks) else { return Vec::new() };
        let members = array.slots.iter().map(|(disk, _)| *disk);
        let bitmaps: Option<Vec<RawBitmap>> =
            members.clone().map(|disk| world.disk(disk, RawBitmap::find)).collect();
        let bitmaps = bitmaps.unwrap_or_default();
        if bitmaps.is_empty() && agrees_to == 0 {
            return Vec::new();
        }
        let listed: Vec<Range<u64>> =
            members.flat_map(|disk| world.disk(disk, listed_as_bad)).collect();
        // A sector that a member lists it does not hold. Where it lies for the others is not worth
        // the trouble.
        if !listed.is_empty() {
            return Vec::new();
        }
        let is_marked = |sector: u64| match bitmaps.is_empty() {
            true => sector >= agrees_to,
            false => bitmaps
                .iter()
                .any(|bitmap| bitmap.marked.contains(&(sector / bitmap.chunk_sectors))),
        };
        array.wrong_sectors(sectors).into_iter().filter(|sector| !is_marked(*sector)).collect()
    }
}

impl RawBitmap {
    fn find(disk: &Disk) -> Option<Self> {
        let superblock = RawSuperblock::find(disk)?;
        let start = superblock.bitmap_sector?;
        let mut header = [0; SECTOR_BYTES];
        disk.store.read(start, &mut header);
        let u32_at =
            |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("4 bytes"));
        let sectors = u64::from_le_bytes(header[40..48].try_into().expect("8 bytes"));
        let chunk_sectors = u64::from(u32_at(52)) / SECTOR_BYTES as u64;
        if u32_at(0) != BITMAP_MAGIC || chunk_sectors == 0 {
            return None;
        }
        let chunks = sectors.div_ceil(chunk_sectors);
        let bytes = BITMAP_HEADER_BYTES + chunks.div_ceil(8) as usize;
        let mut bits = vec![0; bytes.next_multiple_of(SECTOR_BYTES)];
        disk.store.read(start, &mut bits);
        let is_set = |chunk: &u64| {
            bits[BITMAP_HEADER_BYTES + (*chunk / 8) as usize] >> (*chunk % 8) & 1 == 1
        };
        Some(Self { chunk_sectors, marked: (0..chunks).filter(is_set).collect() })
    }
}

/// Sectors of the device that its bad-block log names: entries of 64 bits, the length in the low 10.
fn listed_as_bad(disk: &Disk) -> Vec<Range<u64>> {
    let log = RawSuperblock::find(disk).and_then(|superblock| superblock.bad_block_log);
    let Some(log) = log else { return Vec::new() };
    let mut bytes = vec![0; (log.end - log.start) as usize * SECTOR_BYTES];
    disk.store.read(log.start, &mut bytes);
    let entries =
        bytes.chunks_exact(8).map(|entry| u64::from_le_bytes(entry.try_into().expect("8 bytes")));
    let entries = entries.take_while(|entry| *entry != u64::MAX);
    entries.map(|entry| entry >> 10..(entry >> 10) + (entry & 0x3ff)).collect()
}
