//! Which addresses a load touches.

/// Reads or writes, in order or at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    pub(crate) random: bool,
    pub(crate) write: bool,
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

    /// First sector of the next block.
    pub(super) fn next_sector(&mut self) -> u64 {
        let block = if self.pattern.random { self.random_block() } else { self.following_block() };
        block * self.block_sectors
    }

    fn random_block(&mut self) -> u64 {
        // xorshift64, scaled by a multiplication instead of a division.
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        ((u128::from(self.state) * u128::from(self.blocks)) >> 64) as u64
    }

    fn following_block(&mut self) -> u64 {
        let block = self.next;
        self.next = if block + 1 == self.blocks { 0 } else { block + 1 };
        block
    }
}

#[cfg(test)]
mod tests;
