//! Tables that can be measured, and verdicts that can be trusted.

use super::*;

fn change(spread: [f64; 2]) -> Ratio {
    Ratio { median: (spread[0] + spread[1]) / 2.0, spread }
}

#[test]
fn every_row_is_something_that_bench_run_takes() {
    for table in TABLES {
        for row in (table.rows)() {
            for sets in [&row.baseline, &row.treatment] {
                let args = parse(&format!("{} {sets}", row.words()));
                let in_flight = u32::from(args.lanes) * u32::from(args.iodepth);
                assert_eq!(in_flight, u32::from(row.jobs) * u32::from(row.iodepth));
            }
            assert!(!row.published.is_empty() && !row.bound.is_empty());
        }
    }
}

#[test]
fn a_change_counts_only_when_all_repetitions_agree() {
    assert_eq!(Verdict::new(&change([1.01, 1.5]), 2, 2, 1.0), Verdict::Faster);
    assert_eq!(Verdict::new(&change([0.5, 0.99]), 2, 2, 0.9), Verdict::Slower);
    assert_eq!(Verdict::new(&change([0.99, 1.5]), 2, 2, 1.0), Verdict::NoDifference);
}

/// Repetitions of a second.
fn outcomes(requests: [u64; 5]) -> Vec<Outcome> {
    let second = Duration::from_secs(1);
    let outcome = |requests| Outcome { requests, elapsed: second, ..Outcome::default() };
    requests.map(outcome).into()
}

#[test]
fn a_change_that_is_small_beside_the_noise_or_different_each_time_is_looked_at_again() {
    let steady = outcomes([100, 101, 99, 100, 102]);
    let restless = outcomes([100, 130, 99, 85, 110]);
    let faster = |than: &[Outcome], percent: u64| {
        than.iter()
            .map(|outcome| Outcome { requests: outcome.requests * percent, ..outcome.clone() })
            .collect::<Vec<_>>()
    };
    assert!(!is_doubtful(&faster(&steady, 100), &faster(&steady, 105)));
    assert!(!is_doubtful(&faster(&steady, 100), &faster(&steady, 90)));
    assert!(is_doubtful(&faster(&restless, 100), &faster(&restless, 108)));
    assert!(is_doubtful(&faster(&restless, 100), &faster(&restless, 92)));
    assert!(!is_doubtful(&faster(&restless, 100), &faster(&restless, 170)));
    assert!(is_doubtful(&steady, &faster(&restless, 170)));
    assert!(!is_doubtful(&restless, &steady), "they do not agree in the first place");
}

#[test]
fn more_threads_than_cpus_are_judged_by_what_they_wrote_only() {
    assert_eq!(Verdict::new(&change([2.0, 3.0]), 3, 2, 1.0), Verdict::Oversubscribed);
}

#[test]
fn a_row_measured_beside_others_work_is_not_judged() {
    assert_eq!(Verdict::new(&change([0.2, 0.6]), 2, 2, 0.3), Verdict::Busy);
}

#[test]
fn what_the_host_took_from_a_worker_counts_as_well() {
    let second = Duration::from_secs(1);
    let ran = || vec![Outcome { whole: second, delayed: second / 10, ..Outcome::default() }; 5];
    let mut taken = Taken { outcomes: [ran(), ran()], ..Taken::default() };
    assert_eq!(taken.cpu_share(2), 0.9);
    taken.stolen = second * 4;
    assert_eq!(taken.cpu_share(2), 0.6);
}

#[test]
fn every_row_that_is_told_as_a_part_of_the_limit_has_one() {
    for table in TABLES.iter().filter(|table| table.of_limit) {
        for row in (table.rows)() {
            let args = parse(&format!("{} {}", row.words(), row.treatment));
            assert!(Bare::raid5_write(&args, 1).is_some(), "{}", row.name);
        }
    }
}

#[test]
fn a_stress_with_an_error_a_mismatch_or_no_write_is_not_good() {
    let good = Stress { command: String::new(), requests: 9, errors: 0, mismatch_sectors: 0 };
    assert!(good.is_good());
    assert!(!Stress { errors: 1, ..good.clone() }.is_good());
    assert!(!Stress { mismatch_sectors: 8, ..good.clone() }.is_good());
    assert!(!Stress { requests: 0, ..good }.is_good());
}
