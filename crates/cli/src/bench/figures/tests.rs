//! The median of repetitions.

use std::time::Duration;

use super::*;

fn repetition(requests: u64) -> Outcome {
    let latencies_ns = (1..=100).map(|at| at * requests * 10).collect();
    Outcome { requests, elapsed: Duration::from_secs(1), latencies_ns, ..Outcome::default() }
}

#[test]
fn the_repetition_in_the_middle_stands_for_all() {
    let figures = figures(vec![repetition(300), repetition(100), repetition(200)], 1 << 20);
    assert_eq!((figures.iops, figures.mib_s), (200.0, 200.0));
    assert_eq!(figures.spread, [0.5, 1.5]);
    assert_eq!((figures.p50_us, figures.p99_us), (Some(102.0), Some(200.0)));
}

#[test]
fn a_ratio_compares_neighbours_in_time_and_not_the_best_with_the_worst() {
    let one = [repetition(200), repetition(20), repetition(2000)];
    let other = [repetition(100), repetition(10), repetition(500)];
    let ratio = ratio(&one, &other);
    assert_eq!((ratio.median, ratio.spread), (2.0, [2.0, 4.0]));
}

/// One bad repetition in five does not move a median.
#[test]
fn the_cpu_share_is_that_of_all_repetitions_together() {
    let repetition = |delayed| Outcome {
        delayed: Duration::from_secs(delayed),
        whole: Duration::from_secs(4),
        ..repetition(100)
    };
    let outcomes = [repetition(0), repetition(2), repetition(1), repetition(0)];
    assert_eq!(cpu_share(&outcomes), 0.8125);
    assert_eq!(figures(outcomes.into(), 1).cpu_share, 0.8125);
}

#[test]
fn time_without_a_cpu_counts_only_where_the_members_went_on() {
    let seconds = Duration::from_secs;
    let (elapsed, delayed, whole) = (seconds(1), seconds(3), seconds(4));
    let mut outcome = Outcome { elapsed, delayed, whole, ..repetition(100) };
    assert_eq!((outcome.iops(), outcome.cpu_share()), (100.0, 0.25));
    outcome.count_whole();
    assert_eq!((outcome.iops(), outcome.cpu_share()), (25.0, 0.25));
}
