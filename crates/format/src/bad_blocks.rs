//! The bad-block log: ranges of a member that must not be read.
//!
//! On disk a table of little-endian u64: bits 10 to 63 the first unit, bits 0 to 9 the number of
//! units, 1 to 512. All ones end the table. A unit is `1 << shift` sectors, and position 0 is the
//! first sector of the device, not of its data. (Linux `md.c`, `badblocks.h`.)

mod log;

use std::ops::Range;

use crate::SECTOR_BYTES;

pub use log::BadBlockLog;

/// Most units in one entry, on disk.
pub const ENTRY_UNITS_MAX: u64 = 512;
/// The entry that ends the table; the rest of the log is filled with it.
pub const END: u64 = u64::MAX;

const ENTRY_BYTES: usize = 8;
const COUNT_BITS: u32 = 10;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
const SHIFT_MAX: u8 = 9;
/// Largest device, and what the 54 bits of an entry can reach: 8 EiB.
const SECTORS_MAX: u64 = 1 << (u64::BITS - COUNT_BITS);

/// The bad ranges of one member: sectors of the device, in order, merged, apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BadBlocks {
    ranges: Vec<Range<u64>>,
}

/// Why bytes are not a bad-block log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadBlocksError {
    /// A unit that is too large.
    #[error("bad-block log has units of 2^{shift} sectors, at most 2^9 can be")]
    Shift {
        /// log2 of the sectors in a unit.
        shift: u8,
    },
    /// An entry that cannot be.
    #[error("bad-block log entry {index} is {entry:#x}: {reason}")]
    Entry {
        /// Its number in the table.
        index: usize,
        /// Its value.
        entry: u64,
        /// Why it cannot be.
        reason: &'static str,
    },
}

/// More ranges than the log on disk has room for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the bad-block log is full: {needed} entries are needed and {room} fit; replace the member"
)]
pub struct BadBlockLogFull {
    /// Entries needed.
    pub needed: usize,
    /// Entries that fit.
    pub room: usize,
}

impl BadBlocks {
    /// No bad range.
    pub fn new() -> BadBlocks {
        BadBlocks::default()
    }

    /// Reads the log in `bytes`, with units of `1 << shift` sectors.
    pub fn parse(bytes: &[u8], shift: u8) -> Result<BadBlocks, BadBlocksError> {
        BadBlockLog::parse(bytes, shift).map(|log| log.blocks())
    }

    /// The log's bytes for a place of `size_sectors`. Ranges grow to whole units.
    pub fn encode(&self, size_sectors: u16, shift: u8) -> Result<Vec<u8>, BadBlockLogFull> {
        let length = usize::from(size_sectors) * SECTOR_BYTES as usize;
        let room = length / ENTRY_BYTES;
        let needed = self.entry_count(shift);
        if needed > room as u64 {
            let needed = usize::try_from(needed).unwrap_or(usize::MAX);
            return Err(BadBlockLogFull { needed, room });
        }
        let mut bytes = vec![0xff; length];
        for (slot, entry) in bytes.chunks_exact_mut(ENTRY_BYTES).zip(self.entries(shift)) {
            slot.copy_from_slice(&entry.to_le_bytes());
        }
        Ok(bytes)
    }

    /// Whether no range is bad.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The bad ranges in order.
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// The first bad range that shares a sector with `sectors`, cut to it.
    pub fn first_in(&self, sectors: Range<u64>) -> Option<Range<u64>> {
        let index = self.ranges.partition_point(|bad| bad.end <= sectors.start);
        let bad = self.ranges.get(index)?;
        let common = bad.start.max(sectors.start)..bad.end.min(sectors.end);
        (!common.is_empty()).then_some(common)
    }

    /// Marks a range bad.
    ///
    /// # Panics
    ///
    /// If it reaches beyond 8 EiB, where no device does.
    pub fn add(&mut self, sectors: Range<u64>) {
        assert!(sectors.end <= SECTORS_MAX, "bad range {sectors:?} is on no device");
        if sectors.is_empty() {
            return;
        }
        // Those that touch the new range, its neighbours included, melt into it.
        let first = self.ranges.partition_point(|bad| bad.end < sectors.start);
        let last = self.ranges.partition_point(|bad| bad.start <= sectors.end);
        let touched = &self.ranges[first..last];
        let start = touched.first().map_or(sectors.start, |bad| bad.start.min(sectors.start));
        let end = touched.last().map_or(sectors.end, |bad| bad.end.max(sectors.end));
        self.ranges.splice(first..last, std::iter::once(start..end));
    }

    /// Marks a range good again, once it has been written.
    pub fn remove(&mut self, sectors: Range<u64>) {
        if sectors.is_empty() {
            return;
        }
        let first = self.ranges.partition_point(|bad| bad.end <= sectors.start);
        let last = self.ranges.partition_point(|bad| bad.start < sectors.end);
        let Some((head, tail)) =
            self.ranges[first..last].first().zip(self.ranges[first..last].last())
        else {
            return;
        };
        let rest = [head.start..sectors.start, sectors.end..tail.end];
        self.ranges.splice(first..last, rest.into_iter().filter(|range| !range.is_empty()));
    }

    fn entries(&self, shift: u8) -> impl Iterator<Item = u64> + '_ {
        self.units(shift).flat_map(|units| {
            let starts = (units.start..units.end).step_by(ENTRY_UNITS_MAX as usize);
            starts.map(move |start| start << COUNT_BITS | (units.end - start).min(ENTRY_UNITS_MAX))
        })
    }

    fn entry_count(&self, shift: u8) -> u64 {
        let counts =
            self.units(shift).map(|units| (units.end - units.start).div_ceil(ENTRY_UNITS_MAX));
        counts.fold(0, u64::saturating_add)
    }

    fn units(&self, shift: u8) -> impl Iterator<Item = Range<u64>> + '_ {
        let unit = 1u64 << shift.min(SHIFT_MAX);
        self.ranges.iter().map(move |bad| bad.start / unit..bad.end.div_ceil(unit))
    }
}

fn parse_entry(entry: u64, shift: u8) -> Result<Range<u64>, &'static str> {
    let (first, count) = (entry >> COUNT_BITS, entry & COUNT_MASK);
    if count == 0 {
        return Err("an entry has at least one unit");
    }
    // No overflow: 54 bits of position and 10 of count, shifted by at most 9.
    let (start, end) = (first << shift, (first + count) << shift);
    if end > SECTORS_MAX {
        return Err("the range reaches beyond 8 EiB");
    }
    Ok(start..end)
}

#[cfg(test)]
mod tests;
