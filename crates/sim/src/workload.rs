//! What users ask: requests of every kind and size, drawn by weight.
//!
//! The weights differ from seed to seed and some are zero (swarm testing): a run without flushes
//! or without small writes reaches states that a balanced mix never does.

#[cfg(test)]
mod tests;

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::random::Random;
use crate::stamp::Version;

/// One request of a user. Addresses are sectors of the array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Reads a range.
    Read(Range<u64>),
    /// Writes a range. Two versions when the memory changes while the write runs.
    Write {
        /// What to write to.
        range: Range<u64>,
        /// What to write.
        versions: Vec<Version>,
        /// Whether it must be durable.
        fua: bool,
    },
    /// Makes durable what was acknowledged.
    Flush,
    /// Gives up a range.
    Discard(Range<u64>),
    /// Zeroes a range.
    WriteZeroes {
        /// What to zero.
        range: Range<u64>,
        /// Whether it must be durable.
        fua: bool,
    },
}

/// How users behave in one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Habits {
    /// Weights of read, write, flush, discard and write-zeroes.
    pub kinds: [u32; 5],
    /// Weights of lengths: one block, some blocks, a chunk, a row, several rows.
    pub lengths: [u32; 5],
    /// One write in so many carries FUA; 0 for none.
    pub fua_one_in: u64,
    /// One write in so many comes from memory that changes meanwhile; 0 for none.
    pub unstable_one_in: u64,
    /// Percentage of requests that go to a small hot part of the array.
    pub hot_percent: u64,
    /// That part is the first of the array.
    #[serde(default)]
    pub in_front: bool,
    /// Percentage of writes that go on where the last one ended: bursts of neighbours, which the
    /// engine writes together.
    pub stream_percent: u64,
    /// Requests in flight at most.
    pub depth: usize,
    /// Now and then they pause for so long that the array counts as clean.
    #[serde(default)]
    pub pauses: bool,
    /// One comes up to a millisecond after the other.
    #[serde(default)]
    pub spaced: bool,
    /// They come one after the other, so slowly that bits are cleared, and so steadily that the array
    /// never counts as clean.
    pub trickle: bool,
}

impl Habits {
    /// Draws habits; each kind but writes may be missing.
    pub fn draw(random: &mut Random) -> Self {
        let mut weight = |most: u64| if random.one_in(4) { 0 } else { random.below(most) as u32 };
        let kinds = [weight(100), 1 + weight(100), weight(20), weight(10), weight(10)];
        let lengths = [1 + weight(100), weight(100), weight(50), weight(30), weight(10)];
        Self {
            kinds,
            lengths,
            fua_one_in: *random.pick(&[0, 2, 10]),
            unstable_one_in: *random.pick(&[0, 0, 3]),
            hot_percent: *random.pick(&[0, 50, 95]),
            stream_percent: *random.clone().pick(&[0, 0, 0, 90]),
            depth: 1 + random.index(*random.clone().pick(&[1, 8, 32])),
            in_front: false,
            pauses: false,
            spaced: false,
            trickle: false,
        }
    }
}

/// Sizes of the array that a user may know of. They only tune what is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Grain {
    /// Sectors of the array.
    pub array_sectors: u64,
    /// Smallest unit of a request.
    pub block_sectors: u64,
    /// A chunk, or what comes closest.
    pub chunk_sectors: u64,
    /// A row, or what comes closest.
    pub row_sectors: u64,
}

/// Draws requests.
#[derive(Debug)]
pub struct Workload {
    random: Random,
    habits: Habits,
    grain: Grain,
    hot_start: u64,
    /// Where the last write ended.
    stream_end: u64,
    versions: u64,
}

/// No request is longer, however long the rows are: 1 MiB.
const MOST_SECTORS: u64 = 2048;

impl Workload {
    /// Requests to an array of this grain.
    pub fn new(mut random: Random, habits: Habits, grain: Grain) -> Self {
        assert!(grain.array_sectors >= grain.block_sectors, "an array holds a block");
        let hot_start = if habits.in_front { 0 } else { random.below(grain.array_sectors) };
        Self { random, habits, grain, hot_start, stream_end: 0, versions: 0 }
    }

    /// Requests in flight at most.
    pub fn depth(&self) -> usize {
        self.habits.depth
    }

    /// The next request.
    pub fn next_ask(&mut self) -> Ask {
        match self.random.weighted(&self.habits.kinds).expect("writes have a weight") {
            0 => Ask::Read(self.range()),
            1 => {
                let (range, fua) = (self.write_range(), self.fua());
                Ask::Write { range, versions: self.new_versions(), fua }
            }
            2 => Ask::Flush,
            3 => Ask::Discard(self.range()),
            _ => Ask::WriteZeroes { range: self.range(), fua: self.fua() },
        }
    }

    /// The next request of users that write nothing.
    pub fn next_read(&mut self) -> Ask {
        Ask::Read(self.range())
    }

    fn new_versions(&mut self) -> Vec<Version> {
        let changes = chance(&mut self.random, self.habits.unstable_one_in);
        let count = if changes { 2 } else { 1 };
        let first = self.versions + 1;
        self.versions += count;
        (first..first + count).map(Version).collect()
    }

    fn fua(&mut self) -> bool {
        chance(&mut self.random, self.habits.fua_one_in)
    }

    fn write_range(&mut self) -> Range<u64> {
        let mut range = self.range();
        let streams = self.habits.stream_percent > 0;
        if streams && self.random.below(100) < self.habits.stream_percent {
            let sectors = range.end - range.start;
            let fits = self.stream_end + sectors <= self.grain.array_sectors;
            let start = if fits { self.stream_end } else { 0 };
            range = start..start + sectors;
        }
        self.stream_end = range.end;
        range
    }

    fn range(&mut self) -> Range<u64> {
        let Grain { array_sectors, block_sectors, .. } = self.grain;
        let blocks = self.length().div_ceil(block_sectors).min(array_sectors / block_sectors);
        let sectors = blocks * block_sectors;
        let start = self.start(sectors) / block_sectors * block_sectors;
        start..start + sectors
    }

    fn length(&mut self) -> u64 {
        let Grain { block_sectors, chunk_sectors, row_sectors, .. } = self.grain;
        let random = &mut self.random;
        let sectors = match random.weighted(&self.habits.lengths).expect("blocks have a weight") {
            0 => block_sectors,
            1 => random.within(1..33) * block_sectors,
            2 => chunk_sectors,
            3 => row_sectors,
            _ => random.within(1..4 * row_sectors + 1),
        };
        sectors.min(MOST_SECTORS)
    }

    /// Where a request of `sectors` sectors begins: anywhere or in the hot part, aligned or not.
    fn start(&mut self, sectors: u64) -> u64 {
        let last = self.grain.array_sectors - sectors;
        let hot = self.random.below(100) < self.habits.hot_percent;
        let start = match hot {
            true => self.hot_start + self.random.below(2 * self.grain.row_sectors),
            false => self.random.below(last + 1),
        };
        let alignment = *self.random.pick(&[1, self.grain.chunk_sectors, self.grain.row_sectors]);
        (start / alignment * alignment).min(last)
    }
}

fn chance(random: &mut Random, one_in: u64) -> bool {
    one_in > 0 && random.one_in(one_in)
}
