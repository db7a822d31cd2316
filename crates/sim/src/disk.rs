//! A virtual disk: what it is, what it holds, and what is wrong with it.
//!
//! It keeps, per sector, the durable bytes and the writes since, oldest first. A read sees the newest;
//! a flush makes durable what had completed before it; a power cut keeps any of the rest, torn at
//! the logical block. The model is the honest disk of the ATA and NVMe standards at its worst.

mod faults;
mod store;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use mdspace_engine::backend::{IoError, IoErrorKind, MemberInfo};
use serde::{Deserialize, Serialize};

use crate::random::Random;
use crate::stamp::SECTOR_BYTES;

pub use faults::{Faults, Hang, Healing, Held, Mishap, Persistence};
pub use store::{CacheId, Horizon, Store, WriteId};

/// Which disk of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskIndex(pub u16);

impl std::fmt::Display for DiskIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "d{}", self.0)
    }
}

/// What a disk is, for as long as it lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskSpec {
    /// Size in 512-byte sectors.
    pub sectors: u64,
    /// 512 or 4096; also what a power cut writes whole or not at all.
    pub logical_block_bytes: u32,
    /// Whether seeks cost time, as the disk says.
    pub rotational: bool,
    /// Whether a discarded range reads as zeroes; else it reads as garbage here.
    pub discard_zeroes: bool,
    /// Whether a completed write waits in a volatile cache for a flush.
    pub volatile_cache: bool,
    /// Answers at once, in the submission itself, once in so many I/Os; 0 for never.
    pub instant_one_in: u64,
    /// How long it takes.
    pub latency: Latency,
    /// So many sectors at its beginning take so many times as long.
    pub slow_start: (u64, u32),
    /// Whether it makes a write durable by a flush of all.
    #[serde(default)]
    pub fua_flushes: bool,
}

impl DiskSpec {
    /// A disk of `sectors` sectors with 512-byte blocks, a volatile cache and a modest latency.
    pub fn plain(sectors: u64) -> Self {
        Self {
            sectors,
            logical_block_bytes: 512,
            rotational: false,
            discard_zeroes: true,
            volatile_cache: true,
            instant_one_in: 0,
            latency: Latency::default(),
            slow_start: (0, 1),
            fua_flushes: false,
        }
    }

    /// How long an I/O at a sector takes, of a disk in good health.
    pub fn draw_time(&self, sector: u64, random: &mut Random) -> Duration {
        let (end, factor) = self.slow_start;
        self.latency.draw(random) * if sector < end { factor } else { 1 }
    }

    /// Sectors in a logical block.
    pub fn block_sectors(&self) -> u64 {
        u64::from(self.logical_block_bytes) / SECTOR_BYTES as u64
    }

    /// What the engine is told about it.
    pub fn info(&self, disk: DiskIndex) -> MemberInfo {
        MemberInfo {
            name: disk.to_string(),
            sectors: self.sectors,
            logical_block_bytes: self.logical_block_bytes,
            rotational: self.rotational,
            discard_zeroes: self.discard_zeroes,
            is_sparse: self.discard_zeroes,
        }
    }
}

/// How long a disk takes for one I/O: uniform, with a rare long tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// The least.
    pub least: Duration,
    /// How much more it may be.
    pub spread: Duration,
    /// One I/O in so many takes `tail_factor` times as long; 0 for none.
    pub tail_one_in: u64,
    /// How much longer the long ones take.
    pub tail_factor: u32,
}

impl Default for Latency {
    fn default() -> Self {
        Self {
            least: Duration::from_micros(20),
            spread: Duration::from_micros(80),
            tail_one_in: 100,
            tail_factor: 20,
        }
    }
}

impl Latency {
    /// The longest of all.
    pub fn most(&self) -> Duration {
        let factor = if self.tail_one_in > 0 { self.tail_factor } else { 1 };
        (self.least + self.spread) * factor
    }

    /// How long the next I/O takes.
    pub fn draw(&self, random: &mut Random) -> Duration {
        let spread =
            u64::try_from(self.spread.as_nanos()).expect("a latency of less than centuries");
        let usual = self.least + Duration::from_nanos(random.below(spread + 1));
        match self.tail_one_in > 0 && random.one_in(self.tail_one_in) {
            true => usual * self.tail_factor,
            false => usual,
        }
    }
}

/// What a disk is asked to do, with the bytes of a write.
#[derive(Debug)]
pub enum Effect<'a> {
    /// Read `range` into `out`.
    Read(Range<u64>, &'a mut [u8]),
    /// Write these bytes to `range`.
    Write(Range<u64>, &'a [u8]),
    /// Give up `range`.
    Discard(Range<u64>),
    /// Make durable what had completed at the horizon.
    Flush(Horizon),
    /// The same, of what one cache has.
    FlushOf(CacheId, Horizon),
}

/// A disk.
#[derive(Debug)]
pub struct Disk {
    /// What it is.
    pub spec: DiskSpec,
    /// What is wrong with it.
    pub faults: Faults,
    /// What it holds.
    pub store: Store,
    /// Sectors that were not written since it could not read them, refused a write of them, or came to its
    /// array: they may hold the right bytes, but nothing says so.
    disowned: BTreeSet<u64>,
    /// Where its data were read or written last.
    last_used: u64,
    /// Sectors of which a write failed last: they read as old or new, and may change once more without power.
    half_written: BTreeSet<u64>,
}

impl Disk {
    /// A disk full of zeroes.
    pub fn new(spec: DiskSpec) -> Self {
        let store = Store::new(spec.sectors);
        Self {
            spec,
            faults: Faults::default(),
            store,
            disowned: BTreeSet::new(),
            last_used: 0,
            half_written: BTreeSet::new(),
        }
    }

    /// Where users or sync tasks are now.
    pub fn last_used(&self) -> u64 {
        self.last_used
    }

    /// Makes it as good as new, but for what it holds.
    pub fn mend(&mut self) {
        self.disowned.extend(self.faults.unreadable(0..self.spec.sectors));
        self.faults = Faults::default();
    }

    /// Sectors of which a write failed, and none went well since.
    pub fn half_written(&self) -> impl Iterator<Item = u64> {
        self.half_written.iter().copied()
    }

    /// One that holds the same, with nothing wrong about it.
    pub fn copy(&self) -> Self {
        Self { store: self.store.clone(), ..Self::new(self.spec.clone()) }
    }

    /// It is added to an array: what it holds from an earlier time counts for nothing.
    pub fn disown_all(&mut self) {
        self.disowned.extend(0..self.spec.sectors);
    }

    /// Whether what a sector holds counts.
    pub fn owns(&self, sector: u64) -> bool {
        !self.disowned.contains(&sector)
    }

    /// Does one I/O now, as far as the faults let it. `id` names it if it writes.
    pub fn perform(
        &mut self,
        id: WriteId,
        effect: Effect<'_>,
        random: &mut Random,
    ) -> Result<(), IoError> {
        if let Effect::Read(range, _) | Effect::Write(range, _) = &effect
            && range.start >= self.spec.slow_start.0
        {
            self.last_used = range.start;
        }
        match effect {
            Effect::Read(range, out) => self.read(range, out, random),
            Effect::Write(range, bytes) => self.write(id, range, bytes, random),
            Effect::Discard(range) => self.discard(id, range, random),
            Effect::Flush(horizon) => self.flush(|store| store.flush(horizon)),
            Effect::FlushOf(cache, horizon) => self.flush(|store| store.flush_of(cache, horizon)),
        }
    }

    fn read(
        &mut self,
        range: Range<u64>,
        out: &mut [u8],
        random: &mut Random,
    ) -> Result<(), IoError> {
        if let Err(error) = self.faults.read(&range) {
            if error.kind == IoErrorKind::Medium {
                self.disowned.extend(self.faults.unreadable(range));
            }
            // It leaves anything in the buffer.
            random.garble(out);
            return Err(error);
        }
        self.store.read(range.start, out);
        Ok(())
    }

    fn write(
        &mut self,
        id: WriteId,
        range: Range<u64>,
        bytes: &[u8],
        random: &mut Random,
    ) -> Result<(), IoError> {
        if let Err(error) = self.faults.write(&range, self.store.has_space(&range)) {
            if error.kind == IoErrorKind::Medium || error.kind == IoErrorKind::Other {
                self.write_some_blocks(id, range.start, bytes, random);
                self.half_written.extend(range.clone());
                self.disowned.extend(range);
            }
            return Err(error);
        }
        for sector in range.clone() {
            self.disowned.remove(&sector);
            self.half_written.remove(&sector);
        }
        match self.faults.mishap() {
            None => self.store.write(id, range.start, bytes),
            Some(Mishap::Lost) => {}
            Some(Mishap::Misdirected(by)) => {
                let last = self.spec.sectors - (range.end - range.start);
                self.store.write(id, (range.start + by) % (last + 1), bytes);
            }
            Some(Mishap::Flipped) => self.write_flipped(id, range.start, bytes, random),
        }
        Ok(())
    }

    /// A failed write may have written any of its blocks.
    fn write_some_blocks(&mut self, id: WriteId, sector: u64, bytes: &[u8], random: &mut Random) {
        let block_sectors = self.spec.block_sectors();
        let blocks = bytes.chunks(self.spec.logical_block_bytes as usize);
        for (index, block) in (0..).zip(blocks) {
            if random.coin() {
                self.store.write(id, sector + index * block_sectors, block);
            }
        }
    }

    fn write_flipped(&mut self, id: WriteId, sector: u64, bytes: &[u8], random: &mut Random) {
        let mut flipped = bytes.to_vec();
        let at = random.index(flipped.len());
        flipped[at] ^= 1 << random.below(8);
        self.store.write(id, sector, &flipped);
    }

    fn discard(
        &mut self,
        id: WriteId,
        range: Range<u64>,
        random: &mut Random,
    ) -> Result<(), IoError> {
        let mut bytes = vec![0; (range.end - range.start) as usize * SECTOR_BYTES];
        if !self.spec.discard_zeroes {
            random.garble(&mut bytes);
        }
        self.faults.write(&range, true)?;
        self.store.write(id, range.start, &bytes);
        if self.spec.discard_zeroes {
            self.store.free(&range);
        }
        Ok(())
    }

    fn flush(&mut self, flush: impl FnOnce(&mut Store)) -> Result<(), IoError> {
        if let Err(error) = self.faults.flush() {
            // What waited for this flush will never become durable: a later one does not save it.
            self.store.doom();
            return Err(error);
        }
        flush(&mut self.store);
        Ok(())
    }

    /// Notes that the write `id` was acknowledged; `fua` when that made it durable.
    pub fn acknowledge(&mut self, id: WriteId, fua: bool) {
        self.store.complete(id);
        if fua || !self.spec.volatile_cache {
            self.store.settle(id);
        }
    }

    /// It starts anew by itself. What was not durable is lost or not, and its next flush says so.
    pub fn reset(&mut self, random: &mut Random) {
        self.store.reset(self.spec.block_sectors(), random);
        self.faults.flush_errors += 1;
    }

    /// Takes the power away. What was not durable survives or not.
    pub fn cut_power(&mut self, random: &mut Random) {
        self.store.cut(self.spec.block_sectors(), random);
    }
}
