//! What is compared with what.

use crate::bench::workload::parse;

use super::samples::Samples;
use super::*;

#[test]
fn every_row_of_the_table_is_a_load_that_bench_run_takes() {
    for shape in &SHAPES {
        for load in shape.loads {
            let args = parse(&format!("{} {} {}", shape.array, load.words, load.lost));
            assert!(args.fail.iter().all(|slot| *slot < args.raid_devices));
        }
    }
}

#[test]
fn every_selector_is_one_that_bench_run_takes() {
    for selector in SELECTORS {
        assert!(parse(&format!("--multipath={selector} {RANDOM_READ}")).rw.random);
    }
}

#[test]
fn a_side_is_judged_by_its_own_raw_member() {
    let side = Samples { raw: vec![1e6, 2e6, 1e6], array: vec![5e5, 5e5, 2e5] }.side();
    assert_eq!((side.raw_iops, side.iops, side.above_raw_ns), (1e6, 5e5, 1500.0));
    assert_eq!((side.of_raw.median, side.of_raw.spread), (0.25, [0.2, 0.5]));
}

#[test]
fn the_caveat_stands_with_the_ratios() {
    let row = LoadSamples {
        name: "RAID6".into(),
        words: String::new(),
        ours: Samples { raw: vec![2e6, 2e6, 2e6], array: vec![1e6, 8e5, 1e6] },
        md: Samples { raw: vec![4e5, 4e5, 4e5], array: vec![1e5, 4e4, 2e5] },
    };
    let row = row.row();
    let report = Report {
        schema: 2,
        machine: "a machine".into(),
        peer: "Linux md",
        caveat: CAVEAT,
        loads: vec![row],
        absent: vec![("paths".into(), "no such module".into())],
        syncs: Vec::new(),
    };
    let text = text::report(&report);
    assert!(text.contains("10.0 5.0-20.0") && text.matches(CAVEAT).count() == 2, "{text}");
    assert!(text.contains("not measured: no such module"), "{text}");
}
