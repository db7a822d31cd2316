//! What repetitions of one load come to.

use serde::Serialize;

use super::measure::Outcome;

/// Figures of one side, in the units of their names.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Figures {
    pub(super) iops: f64,
    pub(super) mib_s: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    /// Slowest and fastest repetition, as part of the median.
    pub(super) spread: [f64; 2],
}

/// The repetition in the middle, and how far the others lie from it.
pub(super) fn figures(mut outcomes: Vec<Outcome>, block_bytes: usize) -> Figures {
    outcomes.sort_by(|one, other| one.iops().total_cmp(&other.iops()));
    let iops: Vec<f64> = outcomes.iter().map(Outcome::iops).collect();
    let middle = outcomes.len() / 2;
    let median = iops[middle];
    Figures {
        iops: median,
        mib_s: median * block_bytes as f64 / f64::from(1 << 20),
        p50_us: outcomes[middle].percentile_us(0.50),
        p99_us: outcomes[middle].percentile_us(0.99),
        spread: [iops[0] / median, iops[iops.len() - 1] / median],
    }
}

#[cfg(test)]
mod tests;
