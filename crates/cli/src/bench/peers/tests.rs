//! What is compared with what.

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
    let side = side(vec![1e6, 2e6, 1e6], vec![5e5, 5e5, 2e5]);
    assert_eq!((side.raw_iops, side.iops, side.above_raw_ns), (1e6, 5e5, 1500.0));
    assert_eq!((side.of_raw.median, side.of_raw.spread), (0.25, [0.2, 0.5]));
}

#[test]
fn the_caveat_stands_with_the_ratios() {
    let one = || side(vec![2e6], vec![1e6]);
    let row = Row {
        name: "RAID6".into(),
        command: String::new(),
        ours: one(),
        md: side(vec![4e5], vec![1e5]),
        ours_over_md: 10.0,
    };
    let report = Report {
        schema: 1,
        machine: "a machine".into(),
        peer: "Linux md",
        caveat: CAVEAT,
        loads: vec![row],
        absent: vec![("paths".into(), "no such module".into())],
        syncs: Vec::new(),
    };
    let text = text(&report);
    assert!(text.contains("10.0") && text.matches(CAVEAT).count() == 2, "{text}");
    assert!(text.contains("not measured: no such module"), "{text}");
}
