//! Random numbers that a seed repeats.

use std::ops::Range;

/// SplitMix64, after Steele, Lea and Flood, "Fast splittable pseudorandom number generators".
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `range`.
    pub(crate) fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }

    /// An index below `count`.
    pub(crate) fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.within(0..count as u64)).expect("below a usize")
    }

    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    /// Pieces of `bytes`, in order, mostly short.
    pub(crate) fn split<'a>(&mut self, mut bytes: &'a [u8]) -> Vec<&'a [u8]> {
        let mut pieces = Vec::new();
        while !bytes.is_empty() {
            let longest = self.pick(&[1, 3, 28, 600]).min(bytes.len());
            let (piece, rest) = bytes.split_at(1 + self.index(longest));
            pieces.push(piece);
            bytes = rest;
        }
        pieces
    }
}

/// The seeds of a test: the one asked for by the environment, or `fixed`.
pub(crate) fn seeds(fixed: Range<u64>) -> Range<u64> {
    match std::env::var("MDSPACE_SEED") {
        Ok(seed) => {
            let seed: u64 = seed.parse().expect("MDSPACE_SEED is a number");
            seed..seed + 1
        }
        Err(_) => fixed,
    }
}

/// Runs `body` for each seed; a failure prints the command that replays it.
pub(crate) fn for_each_seed(fixed: Range<u64>, test: &str, body: impl Fn(&mut Random)) {
    for seed in seeds(fixed) {
        let replay = Replay(test, seed);
        body(&mut Random::new(seed));
        std::mem::forget(replay);
    }
}

struct Replay<'a>(&'a str, u64);

impl Drop for Replay<'_> {
    fn drop(&mut self) {
        let Replay(test, seed) = self;
        eprintln!("replay: MDSPACE_SEED={seed} cargo test -p mdspace-front --test nbd {test}");
    }
}
