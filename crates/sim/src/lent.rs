//! Memory that the simulated users lend: it knows when it must not be touched any more, and it can
//! change while a write runs, as a guest's memory does.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ops::Range;

use mdspace_engine::memory::{Sink, Source};

use crate::random::Random;
use crate::stamp::{SECTOR_BYTES, Version, stamp, stamp_range};

#[cfg(test)]
mod tests;

/// Memory that a read fills. After the read was answered nobody may write to it: its owner reads it.
pub struct LentSink {
    bytes: RefCell<Vec<u8>>,
    answered: Cell<bool>,
}

impl LentSink {
    /// Memory for `sectors` sectors, full of noise.
    pub fn new(sectors: u64, random: &mut Random) -> Self {
        let mut bytes = vec![0; sectors as usize * SECTOR_BYTES];
        random.garble(&mut bytes);
        Self { bytes: RefCell::new(bytes), answered: Cell::new(false) }
    }

    /// Takes the bytes: the read was answered.
    pub fn take(&self) -> Vec<u8> {
        self.answered.set(true);
        self.bytes.take()
    }
}

impl Sink for LentSink {
    fn len(&self) -> usize {
        self.bytes.borrow().len()
    }

    fn fill(&self, range: Range<usize>, fill: &mut dyn FnMut(&mut [u8])) {
        assert!(!self.answered.get(), "a read that was answered still writes to its memory");
        fill(&mut self.bytes.borrow_mut()[range]);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Memory that a write takes from and that nobody changes meanwhile.
pub struct LentSource(Vec<u8>);

impl LentSource {
    /// What `version` writes from `sector` on.
    pub fn new(sector: u64, sectors: u64, version: Version) -> Self {
        let mut bytes = vec![0; sectors as usize * SECTOR_BYTES];
        stamp_range(sector, version, &mut bytes);
        Self(bytes)
    }
}

impl Source for LentSource {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn stable(&self) -> Option<&[u8]> {
        Some(&self.0)
    }

    fn take(&self, offset: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.0[offset..offset + out.len()]);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Memory that changes while a write runs: every look at a sector shows any of its versions.
pub struct ShiftingSource {
    sector: u64,
    sectors: u64,
    versions: Vec<Version>,
    random: RefCell<Random>,
}

impl ShiftingSource {
    /// What any of `versions` writes from `sector` on.
    pub fn new(sector: u64, sectors: u64, versions: Vec<Version>, random: Random) -> Self {
        Self { sector, sectors, versions, random: RefCell::new(random) }
    }
}

impl Source for ShiftingSource {
    fn len(&self) -> usize {
        self.sectors as usize * SECTOR_BYTES
    }

    fn stable(&self) -> Option<&[u8]> {
        None
    }

    fn take(&self, offset: usize, out: &mut [u8]) {
        assert!(offset.is_multiple_of(SECTOR_BYTES), "the engine takes whole sectors");
        let first = self.sector + (offset / SECTOR_BYTES) as u64;
        for (sector, bytes) in (first..).zip(out.chunks_exact_mut(SECTOR_BYTES)) {
            stamp(sector, *self.random.borrow_mut().pick(&self.versions), bytes);
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl std::fmt::Debug for LentSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LentSink({} bytes)", self.len())
    }
}
