//! Which addresses a load touches.

use std::fmt;

/// Reads, writes or both, in order or at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    pub(crate) random: bool,
    /// Of a hundred requests, so many read.
    pub(crate) reads_percent: u8,
}

impl Pattern {
    pub(crate) const fn read(random: bool) -> Self {
        Self { random, reads_percent: 100 }
    }

    pub(crate) const fn write(random: bool) -> Self {
        Self { random, reads_percent: 0 }
    }
}

/// fio's word for a pattern, without the mix.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [["read", "write", "rw"], ["randread", "randwrite", "randrw"]];
        let mix = match self.reads_percent {
            100 => 0,
            0 => 1,
            _ => 2,
        };
        f.write_str(words[usize::from(self.random)][mix])
    }
}

/// What a load asks for next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) sector: u64,
    pub(super) write: bool,
}

/// The addresses of one lane's load over a space of whole blocks.
#[derive(Clone, Debug)]
pub(super) struct Addresses {
    pattern: Pattern,
    block_sectors: u64,
    blocks: u64,
    next: u64,
    state: u64,
}

impl Addresses {
    /// Blocks of `block_sectors` in `sectors`. Lanes start apart from each other.
    pub(super) fn new(
        pattern: Pattern,
        block_sectors: u64,
        sectors: u64,
        lane: u64,
        lanes: u64,
    ) -> Self {
        let blocks = (sectors / block_sectors).max(1);
        // Any odd number does; each lane has its own.
        let state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(2 * lane + 1);
        Self { pattern, block_sectors, blocks, next: blocks / lanes * lane, state }
    }

    /// The next block, and what to do with it.
    pub(super) fn next(&mut self) -> Target {
        let block = match self.pattern.random {
            true => self.random_below(self.blocks),
            false => self.following_block(),
        };
        let write = match self.pattern.reads_percent {
            0 => true,
            100 => false,
            percent => self.random_below(100) >= u64::from(percent),
        };
        Target { sector: block * self.block_sectors, write }
    }

    fn random_below(&mut self, end: u64) -> u64 {
        // xorshift64, scaled by a multiplication instead of a division.
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        ((u128::from(self.state) * u128::from(end)) >> 64) as u64
    }

    fn following_block(&mut self) -> u64 {
        let block = self.next;
        self.next = if block + 1 == self.blocks { 0 } else { block + 1 };
        block
    }
}

#[cfg(test)]
mod tests;
