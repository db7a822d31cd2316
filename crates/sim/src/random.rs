//! Randomness under a seed: xoshiro256** seeded by splitmix64 (Blackman and Vigna, 2018).
//!
//! Every part of a simulation that decides anything draws from a stream of its own, forked from the
//! run's seed, so that a change in one part disturbs the others as little as possible.

use std::ops::Range;

#[cfg(test)]
mod tests;

/// A stream of numbers that the seed alone determines.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        let mut mixer = seed;
        Self { state: std::array::from_fn(|_| splitmix64(&mut mixer)) }
    }

    /// A stream of its own for a part of the simulation.
    pub fn fork(&mut self) -> Self {
        Self::new(self.next())
    }

    /// The next number, uniform over all 64 bits.
    #[expect(clippy::should_implement_trait, reason = "an endless stream needs no `Option`")]
    pub fn next(&mut self) -> u64 {
        let state = &mut self.state;
        let result = state[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = state[1] << 17;
        state[2] ^= state[0];
        state[3] ^= state[1];
        state[1] ^= state[2];
        state[0] ^= state[3];
        state[2] ^= shifted;
        state[3] = state[3].rotate_left(45);
        result
    }

    /// A number below `bound`, which is not zero. The bias is below 2^-32 for what a simulation asks.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no number below zero");
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `range`, which is not empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    /// An index below `len`, which is not zero.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True once in `n` draws.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// True in half of all draws.
    pub fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }

    /// One of `choices`, each as likely as the others.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.index(choices.len())]
    }

    /// An index drawn by weight, `None` when all weights are zero.
    pub fn weighted(&mut self, weights: &[u32]) -> Option<usize> {
        let total: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
        if total == 0 {
            return None;
        }
        let mut left = self.below(total);
        weights.iter().position(|&weight| {
            let hit = left < u64::from(weight);
            left = left.saturating_sub(u64::from(weight));
            hit
        })
    }

    /// Puts `items` in a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }

    /// Fills `bytes` with what nobody could have meant.
    pub fn garble(&mut self, bytes: &mut [u8]) {
        let mut words = bytes.chunks_exact_mut(8);
        words.by_ref().for_each(|word| word.copy_from_slice(&self.next().to_le_bytes()));
        let rest = words.into_remainder();
        if !rest.is_empty() {
            let noise = self.next().to_le_bytes();
            rest.copy_from_slice(&noise[..rest.len()]);
        }
    }
}

/// One step of splitmix64; also a good mixer of small integers.
pub fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
