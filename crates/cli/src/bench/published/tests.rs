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

#[test]
fn more_threads_than_cpus_are_judged_by_what_they_wrote_only() {
    assert_eq!(Verdict::new(&change([2.0, 3.0]), 3, 2, 1.0), Verdict::Oversubscribed);
}

#[test]
fn a_row_measured_beside_others_work_is_not_judged() {
    assert_eq!(Verdict::new(&change([0.2, 0.6]), 2, 2, 0.3), Verdict::Busy);
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
