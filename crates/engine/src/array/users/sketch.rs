//! How long requests took, in buckets that grow with the time: within an eighth of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets of each doubling.
const FINE_BITS: u32 = 3;

/// Shorter times are in the first bucket, times from 137 s on in the last.
const LEAST_BITS: u32 = 7;
const DOUBLINGS: usize = 30;

const BUCKETS: usize = DOUBLINGS << FINE_BITS;

/// Times that one lane counts; others may read.
pub(super) struct Sketch(Box<[AtomicU64]>);

impl Default for Sketch {
    fn default() -> Self {
        Self((0..BUCKETS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Sketch {
    pub(super) fn note(&self, took: Duration) {
        let count = &self.0[bucket(took.as_nanos() as u64)];
        // One writer: a plain add.
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

fn bucket(nanos: u64) -> usize {
    let bits = nanos.max(1 << LEAST_BITS).ilog2();
    let fine = (nanos.max(1 << LEAST_BITS) >> (bits - FINE_BITS)) as usize & ((1 << FINE_BITS) - 1);
    ((bits - LEAST_BITS) as usize * (1 << FINE_BITS) + fine).min(BUCKETS - 1)
}

/// The longest time of a bucket.
fn longest(bucket: usize) -> Duration {
    let bits = (bucket >> FINE_BITS) as u32 + LEAST_BITS;
    let fine = (bucket & ((1 << FINE_BITS) - 1)) as u64 + 1;
    Duration::from_nanos((1 << bits) + (fine << (bits - FINE_BITS)))
}

/// Times, counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::array) struct Histogram(Box<[u64]>);

impl Default for Histogram {
    fn default() -> Self {
        Self(vec![0; BUCKETS].into_boxed_slice())
    }
}

impl Histogram {
    /// What a lane has counted.
    pub(super) fn of(sketch: &Sketch) -> Self {
        let mut counted = Self::default();
        counted.add(sketch);
        counted
    }

    pub(super) fn add(&mut self, sketch: &Sketch) {
        for (sum, count) in self.0.iter_mut().zip(&sketch.0) {
            *sum += count.load(Ordering::Relaxed);
        }
    }

    /// What was counted since it was `before`.
    pub(in crate::array) fn less(&self, before: &Self) -> Self {
        let counts = self.0.iter().zip(&before.0).map(|(now, then)| now.saturating_sub(*then));
        Self(counts.collect())
    }

    /// Times counted.
    pub(in crate::array) fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The time that this share of all take at most; zero of none.
    pub(in crate::array) fn quantile(&self, share: f64) -> Duration {
        let wanted = (self.count() as f64 * share).ceil() as u64;
        let mut seen = 0;
        let reached = |count: &u64| {
            seen += count;
            seen >= wanted.max(1)
        };
        self.0.iter().position(reached).map_or(Duration::ZERO, longest)
    }
}
