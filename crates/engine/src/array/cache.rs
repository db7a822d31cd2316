//! The stripe cache: blocks of parity rows that were just used, so that the next write need not read
//! them.
//!
//! A *stripe* here is what md means by it: one unit (`stripe_size`) of a row on every member. Who
//! writes to a row *takes* its stripes out, under an exclusive claim, and puts back what he knows when
//! all his writes have landed: a round that fails has nothing to put back, and nobody ever changes a
//! block that stands in here. Degraded reads copy lost blocks from here. What is not written in rounds
//! (resync, repair, discard) is dropped under the same claims.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;

use smallvec::SmallVec;

use crate::memory::Buffer;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU32, Ordering};

use super::plan::Place;

/// `stripe_cache_size` unless it is set: md's default.
pub(super) const DEFAULT_SIZE: u32 = 256;

/// The key of [`StripeCache::active`].
pub(super) const ACTIVE: &str = "stripe_cache_active";

/// Shards of the cache; at least two stripes go to each.
const SHARDS: usize = 8;

/// What is known of one stripe: the blocks of some places, each as long as the unit.
pub type Stripe = SmallVec<[(Place, Buffer); 4]>;

/// Which stripe: the row and the number of the unit in the chunk.
type Key = (u64, u32);

/// The stripes of one array, shared by its lanes.
pub struct StripeCache {
    presence: Presence,
    shards: Box<[Shard]>,
}

/// How many stripes there are of each fingerprint. Every write looks here first; only those that find
/// or leave something write here, so that the others meet in no cache line.
struct Presence(Box<[AtomicU32]>);

/// A power of two. A model has few, so that different stripes meet in one.
const FINGERPRINTS: usize = if cfg!(feature = "model") { 4 } else { 4096 };

#[repr(align(128))]
struct Shard(Mutex<Table>);

struct Table {
    most: usize,
    stripes: BTreeMap<Key, (u64, Stripe)>,
    /// By the time of their last use.
    ages: BTreeMap<u64, Key>,
    clock: u64,
    /// Memory of all blocks.
    bytes: usize,
}

impl Default for StripeCache {
    fn default() -> Self {
        Self::new(DEFAULT_SIZE)
    }
}

impl StripeCache {
    /// Holds at most `size` stripes.
    pub fn new(size: u32) -> Self {
        let shard = |index| {
            let (stripes, ages) = (BTreeMap::new(), BTreeMap::new());
            Shard(Mutex::new(Table { most: share(size, index), stripes, ages, clock: 0, bytes: 0 }))
        };
        Self { presence: Presence::new(), shards: (0..SHARDS).map(shard).collect() }
    }

    /// Stripes that it holds.
    pub fn active(&self) -> usize {
        self.shards.iter().map(|shard| shard.0.lock().stripes.len()).sum()
    }

    /// Memory of its blocks, in bytes.
    pub fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.0.lock().bytes).sum()
    }

    /// Holds at most `size` stripes from now on.
    pub fn resize(&self, size: u32) {
        for (index, shard) in self.shards.iter().enumerate() {
            let mut table = shard.0.lock();
            table.most = share(size, index);
            while let Some((key, _)) = table.evict() {
                self.presence.leave(key);
            }
        }
    }

    /// False: there is nothing of a stripe that the caller's claim covers.
    #[inline]
    pub fn may_hold(&self, row: u64, unit: u32) -> bool {
        self.presence.may_hold((row, unit))
    }

    /// Takes a stripe out, if it is there. The caller's claim covers it.
    pub fn take(&self, row: u64, unit: u32) -> Option<Stripe> {
        if !self.may_hold(row, unit) {
            return None;
        }
        let stripe = self.shard(row, unit).lock().take((row, unit))?;
        self.presence.leave((row, unit));
        Some(stripe)
    }

    /// Copies the bytes `at` of one block, if it is there. The caller's claim covers the stripe.
    pub fn read(
        &self,
        row: u64,
        unit: u32,
        place: Place,
        at: Range<usize>,
        out: &mut [u8],
    ) -> bool {
        if !self.may_hold(row, unit) {
            return false;
        }
        let mut table = self.shard(row, unit).lock();
        let Some(block) = table.block((row, unit), place) else { return false };
        out.copy_from_slice(&block[at]);
        true
    }

    /// Keeps a stripe, of which nothing stands in here, and gives those that must go for it. The
    /// caller's claim covers it.
    pub fn put(&self, row: u64, unit: u32, stripe: Stripe) -> SmallVec<[Stripe; 1]> {
        self.presence.enter((row, unit));
        let mut evicted = SmallVec::new();
        let mut table = self.shard(row, unit).lock();
        table.put((row, unit), stripe);
        while let Some((key, old)) = table.evict() {
            self.presence.leave(key);
            evicted.push(old);
        }
        evicted
    }

    /// Forgets some stripes of a row. The caller's claim covers them.
    pub fn forget(&self, row: u64, units: Range<u32>) {
        units.for_each(|unit| drop(self.take(row, unit)));
    }

    /// Forgets everything that stands in here now.
    pub fn clear(&self) {
        for shard in &self.shards {
            let mut table = shard.0.lock();
            std::mem::take(&mut table.stripes).into_keys().for_each(|key| self.presence.leave(key));
            (table.ages, table.bytes) = Default::default();
        }
    }

    fn shard(&self, row: u64, unit: u32) -> &Mutex<Table> {
        &self.shards[(row as usize ^ unit as usize) % SHARDS].0
    }
}

impl Presence {
    fn new() -> Self {
        Self((0..FINGERPRINTS).map(|_| AtomicU32::new(0)).collect())
    }

    /// False: nothing stands there. Whoever put something of this row back did so under a claim before
    /// the caller's, which orders the two.
    #[inline]
    fn may_hold(&self, key: Key) -> bool {
        self.count(key).load(Ordering::Relaxed) > 0
    }

    fn enter(&self, key: Key) {
        self.count(key).fetch_add(1, Ordering::Relaxed);
    }

    fn leave(&self, key: Key) {
        self.count(key).fetch_sub(1, Ordering::Relaxed);
    }

    #[inline]
    fn count(&self, key: Key) -> &AtomicU32 {
        &self.0[(spread(key) >> 32) as usize & (FINGERPRINTS - 1)]
    }
}

impl Table {
    fn take(&mut self, key: Key) -> Option<Stripe> {
        let (age, stripe) = self.stripes.remove(&key)?;
        self.ages.remove(&age);
        self.bytes -= bytes_of(&stripe);
        Some(stripe)
    }

    /// A block that is used now and stays.
    fn block(&mut self, key: Key, place: Place) -> Option<&Buffer> {
        let (age, stripe) = self.stripes.get_mut(&key)?;
        self.ages.remove(age);
        self.clock += 1;
        self.ages.insert(self.clock, key);
        *age = self.clock;
        stripe.iter().find(|(known, _)| *known == place).map(|(_, block)| block)
    }

    fn put(&mut self, key: Key, stripe: Stripe) {
        self.clock += 1;
        self.bytes += bytes_of(&stripe);
        self.ages.insert(self.clock, key);
        let known = self.stripes.insert(key, (self.clock, stripe));
        assert!(known.is_none(), "a stripe is taken out before another is put in its place");
    }

    /// Takes out the oldest stripe, if there are too many.
    fn evict(&mut self) -> Option<(Key, Stripe)> {
        if self.stripes.len() <= self.most {
            return None;
        }
        let (_, &oldest) = self.ages.first_key_value()?;
        Some((oldest, self.take(oldest)?))
    }
}

/// How many of `size` stripes one shard holds.
fn share(size: u32, shard: usize) -> usize {
    size as usize / SHARDS + usize::from(shard < size as usize % SHARDS)
}

fn bytes_of(stripe: &Stripe) -> usize {
    stripe.iter().map(|(_, block)| block.capacity()).sum()
}

/// Spreads keys by the golden ratio: the upper half is worth the most.
fn spread((row, unit): Key) -> u64 {
    (row << 20 ^ u64::from(unit)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Which stripes a lane wrote to not long ago. Only those that are written again are worth a place in
/// the cache: a write anywhere in a large array has nothing to gain from it, and should pay nothing.
#[derive(Default)]
pub(super) struct Recent(Vec<u64>);

/// Least stripes that are remembered; a power of two.
const RECENT_MIN: usize = 1024;

impl Recent {
    /// Whether the stripe was written to lately. It was, from now on.
    pub(super) fn touch(&mut self, row: u64, unit: u32, cache_size: u32) -> bool {
        let wanted = (cache_size as usize).next_power_of_two().max(RECENT_MIN);
        if self.0.len() != wanted {
            self.0 = vec![0; wanted];
        }
        // Never 0, which stands for nothing.
        let key = spread((row, unit)) | 1;
        let slot = (key >> 32) as usize & (wanted - 1);
        std::mem::replace(&mut self.0[slot], key) == key
    }
}
