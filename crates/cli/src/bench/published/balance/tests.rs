//! A table that can be measured, and that says what was measured.

use super::*;

#[test]
fn every_row_is_something_that_bench_run_takes() {
    for bench in BENCHES {
        for load in bench.loads {
            for policy in POLICIES {
                let words = format!("{} {} --set read_policy={policy}", bench.array, load.words);
                let args = parse(&words);
                assert_eq!(args.lanes, 1, "one lane gives what the policy is given");
            }
        }
    }
}

#[test]
fn the_table_shows_random_loads_in_ios_and_streams_in_bytes() {
    let figures = |iops: f64, kib: f64| Figures {
        iops,
        mib_s: iops * kib / 1024.0,
        p50_us: None,
        p99_us: None,
        cpu_share: 1.0,
        spread: [1.0, 1.0],
    };
    let row = |random: bool, errors| Row {
        name: "row".into(),
        published: "208 K",
        command: String::new(),
        random,
        members: 4096.0,
        policies: [1024.0, 2048.0, 3072.0, 4096.0].map(|iops| figures(iops, 128.0)).into(),
        of_members: 1.0,
        of_best: 1.33,
        errors,
    };
    let rows = vec![row(true, 0), row(false, 1)];
    let text = MeasuredBalance { head: HEAD, rows }.text();
    let line = |nth: usize| text.lines().filter(|line| line.starts_with("row")).nth(nth).unwrap();
    assert!(line(0).ends_with("4096      1024      2048      3072      4096       100 %    133 %"));
    assert!(line(1).contains("512       128       256       384       512"), "{text}");
    assert!(line(1).ends_with("WRONG: errors"));
}
