//! Version 6, llbitmap of Linux 6.18 and later: a byte for each chunk. It is told and not served.

use std::fmt;

use zerocopy::FromBytes;

use super::raw::{MAGIC, RawBitmap};
use super::{BitmapError, BitmapState};
use crate::SECTOR_BYTES;

/// The version that the header stores.
pub const LOCKLESS_VERSION: u32 = 6;
/// Sectors that hold every bitmap of this version: the kernel makes chunks larger rather than have
/// more of them.
pub const LOCKLESS_SECTORS_MAX: u64 = (STATES_AT as u64 + CHUNKS_MAX) / SECTOR_BYTES;

/// First byte of the chunks' states.
const STATES_AT: usize = 1024;
const CHUNKS_MAX: u64 = 128 << 10;
/// Sectors of the smallest chunk that the kernel makes.
const CHUNK_SECTORS_MIN: u32 = 128;
/// What a chunk's byte says, by its value; the last one stands for all other values.
const WORDS: [&str; 9] = [
    "unwritten",
    "clean",
    "dirty",
    "need sync",
    "syncing",
    "need sync unwritten",
    "syncing unwritten",
    "clean unwritten",
    "in no known state",
];

/// What an llbitmap says of its chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocklessBitmap {
    /// Events of the array when the header was last written.
    pub events: u64,
    /// State bits of the header.
    pub state: BitmapState,
    /// Chunks, and in which states they are. None before the first start: the kernel makes them then.
    pub chunks: Option<LocklessChunks>,
}

/// The chunks of an llbitmap that was in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocklessChunks {
    /// Sectors of a chunk.
    pub chunk_sectors: u32,
    counts: [u32; WORDS.len()],
}

impl LocklessBitmap {
    /// Reads the bitmap that begins at `bytes[0]`: all that its room has, up to
    /// [`LOCKLESS_SECTORS_MAX`]. A count is of the bytes on this member, which may be behind the kernel's:
    /// it clears bytes in memory first.
    pub fn parse(bytes: &[u8]) -> Result<LocklessBitmap, BitmapError> {
        let impossible =
            |field, value, reason| Err(BitmapError::Impossible { field, value, reason });
        let (raw, _) = RawBitmap::read_from_prefix(bytes)
            .map_err(|_| BitmapError::Short { have: bytes.len() })?;
        if raw.magic.get() != MAGIC {
            return Err(BitmapError::NoMagic { found: raw.magic.get() });
        }
        if raw.version.get() != LOCKLESS_VERSION {
            let version = raw.version.get();
            return Err(BitmapError::Version { version, name: super::version_name(version) });
        }
        let state = BitmapState(raw.state.get());
        let bitmap = LocklessBitmap { events: raw.events.get(), state, chunks: None };
        if state.0 & BitmapState::FIRST_USE != 0 {
            return Ok(bitmap);
        }
        let (chunk, sectors) = (raw.chunksize.get(), raw.sync_size.get());
        if chunk < CHUNK_SECTORS_MIN || !chunk.is_power_of_two() {
            let reason = "a chunk of version 6 is a power of two of at least 128 sectors";
            return impossible("chunksize", chunk.into(), reason);
        }
        let chunks = sectors.div_ceil(chunk.into());
        let states = usize::try_from(chunks.min(CHUNKS_MAX + 1)).unwrap_or(usize::MAX);
        let states = bytes.get(STATES_AT..STATES_AT.saturating_add(states));
        let Some(states) = states.filter(|_| (1..=CHUNKS_MAX).contains(&chunks)) else {
            let reason = "its chunks do not fit in the room for the bitmap";
            return impossible("sync_size", sectors, reason);
        };
        let mut counts = [0; WORDS.len()];
        for state in states {
            counts[usize::from(*state).min(WORDS.len() - 1)] += 1;
        }
        Ok(LocklessBitmap {
            chunks: Some(LocklessChunks { chunk_sectors: chunk, counts }),
            ..bitmap
        })
    }
}

impl LocklessChunks {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.counts.iter().copied().map(u64::from).sum()
    }

    /// Each state by its name, and how many chunks are in it.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u32)> + '_ {
        WORDS.into_iter().zip(self.counts)
    }
}

impl fmt::Display for LocklessBitmap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(chunks) = self.chunks else {
            return f.write_str("no kernel has started the array with it yet");
        };
        write!(f, "of its {} chunks", chunks.total())?;
        let counts = chunks.counts().filter(|(_, count)| *count > 0);
        for (index, (word, count)) in counts.enumerate() {
            write!(f, "{} {count} {word}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
