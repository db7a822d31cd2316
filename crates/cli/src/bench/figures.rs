//! What repetitions of one load come to.

use serde::Serialize;

use super::measure::Outcome;

/// Figures of one side, in the units of their names.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Figures {
    pub(super) iops: f64,
    pub(super) mib_s: f64,
    /// Latencies; absent where a loop has no requests that could wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) p50_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) p99_us: Option<f64>,
    /// The part of the time in which the threads had the CPUs that they wanted; the rest is not
    /// counted.
    pub(super) cpu_share: f64,
    /// Slowest and fastest repetition, as part of the median.
    pub(super) spread: [f64; 2],
}

/// The repetition in the middle, how far the others lie from it, and latencies by the median of all.
pub(super) fn figures(mut outcomes: Vec<Outcome>, block_bytes: usize) -> Figures {
    outcomes.sort_by(|one, other| one.iops().total_cmp(&other.iops()));
    let iops: Vec<f64> = outcomes.iter().map(Outcome::iops).collect();
    let middle = outcomes.len() / 2;
    let median = iops[middle];
    Figures {
        iops: median,
        mib_s: median * block_bytes as f64 / f64::from(1 << 20),
        cpu_share: cpu_share(&outcomes),
        spread: [iops[0] / median, iops[iops.len() - 1] / median],
        p50_us: median_percentile_us(&mut outcomes, 0.50),
        p99_us: median_percentile_us(&mut outcomes, 0.99),
    }
}

/// The part of the time of all repetitions in which the threads had the CPUs that they wanted.
pub(super) fn cpu_share<'a>(outcomes: impl IntoIterator<Item = &'a Outcome>) -> f64 {
    let mut all = Outcome::default();
    for outcome in outcomes {
        all.delayed += outcome.delayed;
        all.whole += outcome.whole;
    }
    all.cpu_share()
}

/// The median of what repetitions have as this percentile; none where nothing was timed.
fn median_percentile_us(outcomes: &mut [Outcome], share: f64) -> Option<f64> {
    let found: Option<Vec<f64>> =
        outcomes.iter_mut().map(|outcome| outcome.percentile_us(share)).collect();
    found.map(|found| Ratio::of(found).median)
}

/// How one side compares with another, or a rate: the middle of its repetitions.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Ratio {
    pub(super) median: f64,
    /// Smallest and largest of the repetitions.
    pub(super) spread: [f64; 2],
}

impl Ratio {
    /// The median of repetitions, of which there is at least one.
    pub(super) fn of(mut ratios: Vec<f64>) -> Self {
        ratios.sort_by(f64::total_cmp);
        Self { median: ratios[ratios.len() / 2], spread: [ratios[0], ratios[ratios.len() - 1]] }
    }

    /// How neighbours in time compare.
    pub(super) fn of_pairs<T>(one: &[T], other: &[T], of: fn(&T, &T) -> f64) -> Self {
        Self::of(one.iter().zip(other).map(|(one, other)| of(one, other)).collect())
    }
}

/// `one` over `other`, repetition by repetition: those were neighbours in time.
pub(super) fn ratio(one: &[Outcome], other: &[Outcome]) -> Ratio {
    Ratio::of_pairs(one, other, |one, other| one.iops() / other.iops())
}

#[cfg(test)]
mod tests;
