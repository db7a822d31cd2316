//! The bytes of a disk: durable ones, and the versions above them that a power cut may take.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use crate::random::Random;
use crate::stamp::SECTOR_BYTES;

/// Names one write of the world, in order of submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriteId(pub u64);

/// A point in a disk's order of acknowledged writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Horizon(u64);

/// Names a cache before a disk: that of a server which leads to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CacheId(pub u16);

/// What a disk holds. Bytes live here, not on a heap page each: a disk is a few MiB.
#[derive(Clone)]
pub struct Store {
    durable: Vec<u8>,
    /// By sector, oldest first.
    volatile: BTreeMap<u64, Vec<Version>>,
    /// Acknowledged writes that are not durable yet, by their place in that order.
    acknowledged: BTreeMap<WriteId, Horizon>,
    acknowledged_count: u64,
    /// Writes that lie in a cache before the disk.
    cached: BTreeMap<WriteId, CacheId>,
    /// Blocks of [`ALLOCATION_SECTORS`] that were ever written: where a thin disk has space.
    allocated: BTreeSet<u64>,
}

/// The unit in which a thin disk or a sparse file takes space: 4 KiB.
const ALLOCATION_SECTORS: u64 = 8;

#[derive(Clone)]
struct Version {
    write: WriteId,
    /// What the write has for all its sectors, and where this one's begin.
    written: Rc<[u8]>,
    at: usize,
    /// A flush failed after it was written.
    doomed: bool,
}

/// What a power cut leaves of one write.
#[derive(Clone, Copy)]
enum Fate {
    Survives,
    Vanishes,
    Torn,
}

/// What it leaves of all.
struct Fates<'a> {
    block_sectors: u64,
    random: &'a mut Random,
    of_writes: BTreeMap<WriteId, Fate>,
    /// Blocks of those that are torn, and whether they survive.
    of_blocks: BTreeMap<(WriteId, u64), bool>,
}

impl Store {
    pub(super) fn new(sectors: u64) -> Self {
        Self {
            durable: vec![0; sectors as usize * SECTOR_BYTES],
            volatile: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            acknowledged_count: 0,
            cached: BTreeMap::new(),
            allocated: BTreeSet::new(),
        }
    }

    /// Whether all of `range` has space behind it.
    pub(super) fn has_space(&self, range: &Range<u64>) -> bool {
        blocks(range).all(|block| self.allocated.contains(&block))
    }

    /// Gives up the space behind whole blocks of `range`.
    pub fn free(&mut self, range: &Range<u64>) {
        let whole = range.start.div_ceil(ALLOCATION_SECTORS)..range.end / ALLOCATION_SECTORS;
        for block in whole {
            self.allocated.remove(&block);
        }
    }

    /// Copies what a reader sees from `sector` on into `out`.
    pub fn read(&self, sector: u64, out: &mut [u8]) {
        let start = sector as usize * SECTOR_BYTES;
        out.copy_from_slice(&self.durable[start..start + out.len()]);
        let end = sector + (out.len() / SECTOR_BYTES) as u64;
        for (&at, versions) in self.volatile.range(sector..end) {
            let newest = versions.last().expect("a sector without versions is not kept");
            let offset = (at - sector) as usize * SECTOR_BYTES;
            out[offset..offset + SECTOR_BYTES].copy_from_slice(newest.bytes());
        }
    }

    /// Puts bytes on the platter behind everybody's back: garbage before the first use, a bit flip.
    pub fn overwrite(&mut self, sector: u64, bytes: &[u8]) {
        let start = sector as usize * SECTOR_BYTES;
        self.durable[start..start + bytes.len()].copy_from_slice(bytes);
        let end = sector + (bytes.len() / SECTOR_BYTES) as u64;
        self.allocated.extend(blocks(&(sector..end)));
        let stale: Vec<u64> = self.volatile.range(sector..end).map(|(&at, _)| at).collect();
        for at in stale {
            self.volatile.remove(&at);
        }
    }

    /// Writes whole sectors, not durably.
    pub(super) fn write(&mut self, write: WriteId, sector: u64, bytes: &[u8]) {
        let end = sector + (bytes.len() / SECTOR_BYTES) as u64;
        self.allocated.extend(blocks(&(sector..end)));
        let written: Rc<[u8]> = bytes.into();
        for (sector, at) in (sector..end).zip((0..).step_by(SECTOR_BYTES)) {
            let versions = self.volatile.entry(sector).or_default();
            versions.push(Version { write, written: written.clone(), at, doomed: false });
        }
    }

    pub(super) fn complete(&mut self, write: WriteId) {
        self.acknowledged_count += 1;
        self.acknowledged.insert(write, Horizon(self.acknowledged_count));
    }

    /// The point that a flush submitted now must reach.
    pub fn horizon(&self) -> Horizon {
        Horizon(self.acknowledged_count)
    }

    pub(super) fn flush(&mut self, horizon: Horizon) {
        let acknowledged = std::mem::take(&mut self.acknowledged);
        let covered = |write: &WriteId| acknowledged.get(write).is_some_and(|at| *at <= horizon);
        self.persist(|write| covered(&write));
        self.acknowledged = acknowledged;
        self.acknowledged.retain(|_, at| *at > horizon);
    }

    /// A write lies in a cache before the disk: everybody reads it, and only that cache makes it durable.
    pub fn put_in_cache(&mut self, cache: CacheId, write: WriteId) {
        self.cached.insert(write, cache);
    }

    /// As [`flush`](Self::flush), of what one cache has.
    pub(super) fn flush_of(&mut self, cache: CacheId, horizon: Horizon) {
        let acknowledged = std::mem::take(&mut self.acknowledged);
        let cached = std::mem::take(&mut self.cached);
        let covered = |write: &WriteId| {
            let is_here = cached.get(write).is_none_or(|own| *own == cache);
            is_here && acknowledged.get(write).is_some_and(|at| *at <= horizon)
        };
        self.persist(|write| covered(&write));
        self.acknowledged =
            acknowledged.iter().filter(|(id, _)| !covered(id)).map(|(&id, &at)| (id, at)).collect();
        self.cached =
            cached.iter().filter(|(id, _)| !covered(id)).map(|(&id, &own)| (id, own)).collect();
    }

    /// A cache is gone: what it has will never become durable.
    pub fn lose_cache(&mut self, cache: CacheId) {
        let cached = &self.cached;
        let lost = |version: &&mut Version| cached.get(&version.write) == Some(&cache);
        self.volatile.values_mut().flatten().filter(lost).for_each(|version| version.doomed = true);
    }

    pub(super) fn settle(&mut self, write: WriteId) {
        // A flush that failed meanwhile takes nothing away from a write that promises durability itself.
        let own = self.volatile.values_mut().flatten().filter(|version| version.write == write);
        own.for_each(|version| version.doomed = false);
        self.persist(|other| other == write);
        self.acknowledged.remove(&write);
        self.cached.remove(&write);
    }

    /// Makes durable every version that `covered` names, and drops what lies below it.
    fn persist(&mut self, covered: impl Fn(WriteId) -> bool) {
        let durable = &mut self.durable;
        self.volatile.retain(|&sector, versions| {
            let newest = versions.iter().rposition(|v| covered(v.write) && !v.doomed);
            if let Some(newest) = newest {
                put(durable, sector, versions[newest].bytes());
                versions.drain(..=newest);
            }
            !versions.is_empty()
        });
    }

    /// Whether something that can be read was there when a flush failed.
    pub fn any_doomed(&self) -> bool {
        self.volatile.values().flatten().any(|version| version.doomed)
    }

    pub(super) fn doom(&mut self) {
        self.volatile.values_mut().flatten().for_each(|version| version.doomed = true);
    }

    pub(super) fn cut(&mut self, block_sectors: u64, random: &mut Random) {
        let volatile = std::mem::take(&mut self.volatile);
        let mut fates = Fates::new(block_sectors, random);
        for (sector, versions) in volatile {
            for version in versions {
                if fates.survives(version.write, sector) {
                    put(&mut self.durable, sector, version.bytes());
                }
            }
        }
        self.acknowledged.clear();
        self.cached.clear();
    }

    /// Loses any of what was acknowledged and is not durable: what was there before is read again.
    pub(super) fn reset(&mut self, block_sectors: u64, random: &mut Random) {
        let acknowledged = &self.acknowledged;
        let mut fates = Fates::new(block_sectors, random);
        self.volatile.retain(|&sector, versions| {
            versions.retain(|version| {
                !acknowledged.contains_key(&version.write) || fates.survives(version.write, sector)
            });
            !versions.is_empty()
        });
    }

    /// What a power cut cannot take.
    pub fn durable(&self) -> &[u8] {
        &self.durable
    }

    /// What a power cut may take: by sector, what was written there since it was durable, oldest first.
    pub fn volatile(&self) -> impl Iterator<Item = (u64, Vec<(WriteId, &[u8])>)> {
        self.volatile.iter().map(|(&at, all)| {
            (at, all.iter().map(|version| (version.write, version.bytes())).collect())
        })
    }

    /// Where something was written that is not durable: the first such sector from `sector` on.
    pub fn volatile_from(&self, sector: u64) -> Option<u64> {
        self.volatile.range(sector..).next().map(|(&at, _)| at)
    }

    /// Sectors that a power cut could change now.
    pub fn volatile_sectors(&self) -> usize {
        self.volatile.len()
    }
}

impl Version {
    fn bytes(&self) -> &[u8] {
        &self.written[self.at..self.at + SECTOR_BYTES]
    }
}

impl Fate {
    fn draw(random: &mut Random) -> Self {
        *random.pick(&[Self::Survives, Self::Vanishes, Self::Torn])
    }
}

impl<'a> Fates<'a> {
    fn new(block_sectors: u64, random: &'a mut Random) -> Self {
        Self { block_sectors, random, of_writes: BTreeMap::new(), of_blocks: BTreeMap::new() }
    }

    fn survives(&mut self, write: WriteId, sector: u64) -> bool {
        let Self { block_sectors, random, of_writes, of_blocks } = self;
        match *of_writes.entry(write).or_insert_with(|| Fate::draw(random)) {
            Fate::Survives => true,
            Fate::Vanishes => false,
            Fate::Torn => {
                let block = (write, sector / *block_sectors);
                *of_blocks.entry(block).or_insert_with(|| random.coin())
            }
        }
    }
}

fn blocks(range: &Range<u64>) -> Range<u64> {
    range.start / ALLOCATION_SECTORS..range.end.div_ceil(ALLOCATION_SECTORS)
}

fn put(durable: &mut [u8], sector: u64, bytes: &[u8]) {
    let start = sector as usize * SECTOR_BYTES;
    durable[start..start + SECTOR_BYTES].copy_from_slice(bytes);
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({} bytes, {} volatile sectors)", self.durable.len(), self.volatile.len())
    }
}
