//! `bench fronts` runs, and prints each row or why not. What it measures is not asserted: times are no test.

use crate::harness::Mdspace;

/// Every front over its rival, reads and writes.
const ROWS: usize = 14;

#[test]
fn bench_fronts_prints_each_row_or_says_why_not() {
    let mdspace = Mdspace::new();
    let printed = mdspace.succeed(&["bench", "fronts", "--quick", "--runtime=0.1", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&printed).expect("one object");
    let rows = report["rows"].as_array().expect("a list");
    assert_eq!(rows.len(), ROWS, "{printed}");
    for row in rows {
        let absent = row["absent"].as_array().expect("a list");
        let is_compared = row["times"]["median"].as_f64().is_some_and(|times| times > 0.0);
        assert_ne!(is_compared, !absent.is_empty(), "{row}");
        // What this host always has: an NBD server of ours, fio, and nbdkit.
        let front = row["front"].as_str().expect("a name");
        assert!(is_compared || !front.starts_with("NBD"), "{row}");
    }
}
