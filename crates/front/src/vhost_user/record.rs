//! Which requests are under way, in memory that the front end keeps for us (`VHOST_USER_PROTOCOL_F_INFLIGHT_SHMFD`).
//!
//! A later process of ours that gets this memory begins the same requests again, in the order in which they came. The
//! layout is the protocol's own for split rings, so that any server can go on; numbers are in the machine's order:
//!
//! ```text
//! ring:       0 features u64 · 8 version u16 = 1 · 10 descriptors u16 · 12 last head u16 · 14 used index u16 · 16 descriptors
//! descriptor: 0 under way u8 · 6 next u16 · 8 number u64                               16 bytes each
//! ```
//!
//! What the memory says was written by others too: it is checked as a guest's is.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{MemfdFlags, SealFlags};
use vm_memory::{Bytes, VolatileMemory, VolatileMemoryError, VolatileSlice};

use super::memory::{MemoryError, Shared};

const VERSION: u16 = 1;
const HEADER_BYTES: usize = 16;
const DESCRIPTOR_BYTES: usize = 16;
/// Rings begin at multiples of this.
const ALIGN_BYTES: usize = 64;

/// Offsets in a ring's part, in bytes.
const VERSION_AT: usize = 8;
const SIZE_AT: usize = 10;
const LAST_HEAD_AT: usize = 12;
const USED_AT: usize = 14;
/// Offsets in a descriptor's part.
const NEXT_AT: usize = 6;
const NUMBER_AT: usize = 8;

/// The memory of all rings of a client.
#[derive(Debug)]
pub(super) struct Records {
    shared: Shared,
    size: u16,
    rings: u16,
}

/// The part of one ring. One lane writes it.
#[derive(Debug)]
pub(super) struct Record {
    records: Arc<Records>,
    start: usize,
    /// The number of the last request.
    last: u64,
}

/// What a ring goes on with.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Left {
    /// Heads of the requests that were under way, the oldest first.
    pub(super) heads: Vec<u16>,
    /// The first entry of the available ring that was not taken.
    pub(super) next_available: u16,
}

/// Why the memory is no record.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadRecord {
    #[error("the record is shorter than its rings")]
    Short,
    #[error("the record has another version or size")]
    Other,
    #[error("the record cannot be read: {0}")]
    Access(#[from] VolatileMemoryError),
}

/// Bytes of the parts of so many rings of so many descriptors.
pub(super) fn bytes_of(rings: u16, size: u16) -> usize {
    usize::from(rings) * ring_bytes(size)
}

fn ring_bytes(size: u16) -> usize {
    (HEADER_BYTES + usize::from(size) * DESCRIPTOR_BYTES).next_multiple_of(ALIGN_BYTES)
}

/// A new file for a record, of zeroes. It cannot be shortened.
pub(super) fn new_file(bytes: usize) -> rustix::io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("requests under way", flags)?;
    rustix::fs::ftruncate(&file, bytes as u64)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file.into())
}

impl Records {
    /// Maps what a front end kept: `rings` parts of `size` descriptors from `offset` on.
    pub(super) fn map(
        file: File,
        offset: u64,
        rings: u16,
        size: u16,
    ) -> Result<Records, MemoryError> {
        let bytes = bytes_of(rings, size) as u64;
        Ok(Records { shared: Shared::map(file, offset, bytes)?, size, rings })
    }

    /// Whether some of it was taken away.
    pub(super) fn is_lost(&self) -> bool {
        self.shared.is_lost()
    }
}

impl Record {
    /// The part of ring `index`, whose available and used entries stand at `used` in guest memory. A new part begins
    /// there; one that was kept says what is left to do.
    pub(super) fn open(
        records: &Arc<Records>,
        index: usize,
        size: u16,
        used: u16,
    ) -> Result<(Record, Option<Left>), BadRecord> {
        if index >= usize::from(records.rings) || size > records.size {
            return Err(BadRecord::Short);
        }
        let start = index * ring_bytes(records.size);
        let mut record = Record { records: records.clone(), start, last: 0 };
        let left = match record.load::<u16>(VERSION_AT)? {
            0 => {
                record.store(SIZE_AT, records.size)?;
                record.store(USED_AT, used)?;
                record.store(VERSION_AT, VERSION)?;
                None
            }
            VERSION if record.load::<u16>(SIZE_AT)? == records.size => {
                Some(record.left(size, used)?)
            }
            _ => return Err(BadRecord::Other),
        };
        Ok((record, left))
    }

    /// What was under way. An answer that the guest has, but that was not noted here, is noted.
    fn left(&mut self, size: u16, used: u16) -> Result<Left, BadRecord> {
        if self.load::<u16>(USED_AT)? != used {
            let last = self.load::<u16>(LAST_HEAD_AT)?;
            if last >= size {
                return Err(BadRecord::Other);
            }
            self.store(descriptor_at(last), 0_u8)?;
            self.store(USED_AT, used)?;
        }
        let mut heads = Vec::new();
        for head in 0..size {
            if self.load::<u8>(descriptor_at(head))? == 1 {
                heads.push((self.load::<u64>(descriptor_at(head) + NUMBER_AT)?, head));
            }
        }
        heads.sort_unstable();
        self.last = heads.last().map_or(0, |(number, _)| *number);
        let heads: Vec<u16> = heads.into_iter().map(|(_, head)| head).collect();
        // Each head at most once: there are no more than descriptors.
        let next_available = used.wrapping_add(heads.len() as u16);
        Ok(Left { heads, next_available })
    }

    /// A request begins.
    pub(super) fn begin(&mut self, head: u16) -> Result<(), VolatileMemoryError> {
        self.last = self.last.wrapping_add(1);
        self.store(descriptor_at(head) + NUMBER_AT, self.last)?;
        self.store(descriptor_at(head), 1_u8)
    }

    /// Its answer is about to be told to the guest.
    pub(super) fn end(&self, head: u16) -> Result<(), VolatileMemoryError> {
        let last: u16 = self.load(LAST_HEAD_AT)?;
        self.store(descriptor_at(head) + NEXT_AT, last)?;
        self.store(LAST_HEAD_AT, head)
    }

    /// The guest has it: its used ring's index is `used`.
    pub(super) fn ended(&self, head: u16, used: u16) -> Result<(), VolatileMemoryError> {
        self.store(descriptor_at(head), 0_u8)?;
        self.store(USED_AT, used)
    }

    /// Whether some of it was taken away.
    pub(super) fn is_lost(&self) -> bool {
        self.records.is_lost()
    }

    fn slice(&self) -> Result<VolatileSlice<'_>, VolatileMemoryError> {
        self.records.shared.map_of().get_slice(self.start, ring_bytes(self.records.size))
    }

    /// Stores in the order of the program: a process that is killed has done all before, and none behind.
    fn store<T: vm_memory::AtomicAccess>(
        &self,
        at: usize,
        value: T,
    ) -> Result<(), VolatileMemoryError> {
        self.slice()?.store(value, at, Ordering::Release)
    }

    fn load<T: vm_memory::AtomicAccess>(&self, at: usize) -> Result<T, VolatileMemoryError> {
        self.slice()?.load(at, Ordering::Acquire)
    }
}

/// Where a descriptor's part begins.
fn descriptor_at(head: u16) -> usize {
    HEADER_BYTES + usize::from(head) * DESCRIPTOR_BYTES
}

#[cfg(test)]
mod tests;
