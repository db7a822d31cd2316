use std::collections::BTreeSet;

use super::table;

#[test]
fn every_case_has_one_line() {
    let lines = table();
    let cases: BTreeSet<_> = lines.iter().filter_map(|line| line.rsplit_once('\t')).collect();
    let cases: BTreeSet<_> = cases.into_iter().map(|(case, _)| case).collect();
    assert_eq!((lines.len(), cases.len()), (1120, 1120));
}

#[test]
fn a_write_that_only_doubted_parity_would_hold_ends_the_doubt_first_or_fails() {
    let of = |case: &str| {
        let lines = table();
        let line = lines.iter().find(|line| line.starts_with(case)).expect("such a case");
        line.rsplit_once('\t').map(|(_, verdict)| verdict.to_owned()).expect("a verdict")
    };
    assert_eq!(of("row\tout\tkept\ttook\t-\t"), "answer");
    assert_eq!(of("row\tout\tkept\ttook\tdoubt, rec"), "record (end doubt), ask again");
    assert_eq!(of("row\tout\tkept\tbad\tdoubt, parity not"), "error (doubt)");
    assert_eq!(of("mirror\trefused\tbad\t-\t-"), "error (doubt)");
    assert_eq!(of("mirror\tunfilled\tgone\t-\t-"), "broken");
}
