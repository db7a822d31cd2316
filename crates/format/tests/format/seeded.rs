use std::ops::Range;

/// A small generator of random numbers (splitmix64): the same seed gives the same run everywhere.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(crate) fn below(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(0..n) == 0
    }

    pub(crate) fn pick<T: Clone>(&mut self, among: &[T]) -> T {
        among[self.below(0..among.len() as u64) as usize].clone()
    }

    pub(crate) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.next() as u8)
    }
}

/// Runs a test for seeds 0, 1, ... A failure prints its seed and how to run it alone.
pub(crate) fn for_seeds(test: &'static str, seeds: u64, run: impl Fn(&mut Random)) {
    let alone = std::env::var("MDSPACE_SEED").ok().map(|seed| seed.parse().expect("a number"));
    for seed in alone.map_or(0..seeds, |seed: u64| seed..seed + 1) {
        let _replay = Replay { test, seed };
        run(&mut Random(seed));
    }
}

struct Replay {
    test: &'static str,
    seed: u64,
}

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Replay { test, seed } = self;
            eprintln!(
                "seed {seed}: MDSPACE_SEED={seed} cargo test -p mdspace-format --test format {test}"
            );
        }
    }
}
