//! Rows that can be measured.

use super::*;

#[test]
fn every_row_is_something_that_bench_run_takes() {
    let plans = [published_plans(), floor_plans("/tmp/member")].concat();
    for plan in &plans {
        let args = parse(&format!("--multipath=expected {}", plan.words));
        assert!(args.rw.random && plan.lanes > 0 && plan.paths > 0, "{}", plan.name);
    }
    assert!(plans.len() >= 18);
}
