//! The search finds each broken rule, and what it prints shows it again.

use std::collections::BTreeSet;

use super::crash::Piece;
use super::*;
use crate::disk::WriteId;
use crate::model::Model;

/// A small scope around a few operations on one array.
fn scope(shape: &str, alphabet: &[Operation], longest: usize) -> Scope {
    let shapes = vec![shape.parse().expect("one of the arrays")];
    Scope { shapes, alphabet: alphabet.to_vec(), longest, ..Scope::reduced() }
}

/// The whole engine passes, and with the rule broken the search says why it does not.
fn finds(rule: Rule, scope: &Scope) -> Finding {
    let whole = scope.search(1);
    assert!(whole.finding.is_none(), "{}", whole.finding.expect("just seen"));
    assert!(whole.distinct > 0, "{whole:?}");
    let found = scope.clone().with_broken(Some(rule)).search(1).finding;
    let finding = found.unwrap_or_else(|| panic!("{} lives", rule.name()));
    let address: Address = finding.address().parse().expect("it was just printed");
    assert_eq!(address.judge(Some(rule), false), Err(finding.reason.clone()), "{finding}");
    finding
}

#[test]
fn a_write_before_its_intent_is_found() {
    finds(Rule::IntentIsDurableFirst, &scope("raid5x3", &[Operation::Row], 1));
}

#[test]
fn a_write_before_the_array_is_dirty_is_found() {
    finds(Rule::ArrayIsDirtyFirst, &scope("raid1x3", &[Operation::Write], 1));
}

#[test]
fn a_clean_mark_without_a_flush_is_found() {
    finds(Rule::CleanIsFlushed, &scope("raid6x4", &[Operation::Write], 1));
}

#[test]
fn bits_that_are_cleared_without_a_flush_are_found() {
    finds(Rule::ClearingIsFlushed, &scope("raid5x3", &[Operation::Trickle], 1));
}

#[test]
fn a_member_that_is_filled_before_every_lane_writes_to_it_is_found() {
    finds(Rule::AdoptedBeforeCopy, &scope("raid5x3", &[Operation::Add], 1));
}

#[test]
fn two_writes_of_a_row_at_once_are_found() {
    let overlapping = scope("raid5x3", &[Operation::Write, Operation::Row], 2);
    let overlapping = Scope { overlapping: 2, schedules: 4, ..overlapping };
    finds(Rule::RoundsAreClaimed, &overlapping);
}

#[test]
fn a_filled_member_that_is_called_in_sync_without_a_flush_is_found() {
    finds(Rule::FilledIsFlushed, &scope("raid10x4", &[Operation::Fail, Operation::Add], 2));
}

#[test]
fn an_address_reads_back_as_it_was_printed() {
    let name = "raid10x4/write+flush,fail/1/3/kill/0210";
    let address: Address = name.parse().unwrap();
    assert_eq!(address.fates, [0, 2, 1, 0]);
    let again = Finding {
        scenario: address.scenario,
        at: Some(At {
            moment: address.moment,
            crash: address.crash,
            fates: address.fates,
            words: Vec::new(),
        }),
        reason: String::new(),
    };
    assert_eq!(again.address(), name);
    assert!("raid7x4/write/0/0/cut/".parse::<Address>().is_err());
    assert!("raid5x3/wash/0/0/cut/".parse::<Address>().is_err());
}

#[test]
fn sequences_hold_nothing_that_plainly_does_nothing() {
    use Operation::{Fail, Flush, Return, Write};
    let all = Sequence::all(2, &[Write, Flush, Fail, Return], true);
    let words: Vec<String> = all.iter().map(Sequence::to_string).collect();
    let expected = [
        "write,write",
        "write+write",
        "write,flush",
        "write+flush",
        "write,fail",
        "write+fail",
        "fail,write",
        "fail+write",
        "fail,flush",
        "fail+flush",
        "fail,return",
        "fail+return",
    ];
    assert_eq!(words, expected);
}

/// Two sectors of three disks, each written once.
fn three_disks() -> Leftovers {
    let piece = |index: u64| {
        let (disk, sector) = (index as usize / 2, index % 2);
        let writes = vec![(WriteId(index), vec![1; 512])];
        Piece { disk, sectors: sector..sector + 1, writes }
    };
    Leftovers {
        base: vec![vec![0; 1024]; 3],
        pieces: (0..6).map(piece).collect(),
        model: Model::zeroes(1),
        at_risk: BTreeSet::new(),
    }
}

#[test]
fn all_subsets_are_looked_at_where_they_are_few() {
    let left = three_disks();
    let fates: BTreeSet<_> = left.all_fates(64).into_iter().collect();
    assert_eq!(fates.len(), 64);
    let images: BTreeSet<_> = fates.iter().map(|fates| left.image(fates)).collect();
    assert_eq!(images.len(), 64);
    let names: BTreeSet<_> = fates.iter().map(|fates| left.name(left.base_name(), fates)).collect();
    assert_eq!(names.len(), 64);
}

#[test]
fn where_subsets_are_many_each_column_is_mixed_and_each_prefix_is_there() {
    let left = three_disks();
    let fates: BTreeSet<_> = left.all_fates(63).into_iter().collect();
    for mixture in 0..8_u8 {
        for rest in 0..2 {
            let column: Vec<u8> = (0..3).flat_map(|disk| [mixture >> disk & 1, rest]).collect();
            assert!(fates.contains(&column), "{column:?}");
        }
    }
    assert!(fates.contains(&vec![1, 1, 1, 0, 0, 0]));
    assert!(!fates.contains(&vec![1, 0, 0, 1, 0, 0]));
}
