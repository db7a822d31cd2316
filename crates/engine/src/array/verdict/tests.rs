//! The verdict against a table of every column of two copies, and of two data blocks and parity.

use super::SlotEnd::{Bad, Gone, Healed, Hidden, Kept, Out, Refused, Took, Unfilled};
use super::*;

/// Tab-separated: level, slots, doubt, and what is to be done. Made by an independent model of who may be
/// believed, which was explored exhaustively.
const TABLE: &str = include_str!("table.tsv");

fn end_of(word: &str) -> Option<SlotEnd> {
    let ends = [Took, Healed, Unfilled, Refused, Bad, Gone, Out, Kept];
    ends.into_iter().find(|end| format!("{end:?}").to_lowercase() == word)
}

/// The verdict in the table's words.
fn words(column: &Column<'_>) -> String {
    let verdict = column.verdict();
    let names = if column.data_count.is_none() { ["A", "B", ""] } else { ["D", "other", "P"] };
    let of = |end: SlotEnd| {
        let places = (0..column.ends.len()).filter(|&at| column.ends[at] == end);
        places.map(|at| names[at]).collect::<Vec<_>>().join("+")
    };
    let mut parts = Vec::new();
    let mut part = |text: String, is_there: bool| is_there.then(|| parts.push(text));
    let records = verdict.outcome == Outcome::Record;
    part(format!("list {}", of(Refused)), records && !of(Refused).is_empty());
    part(format!("unlist {}", of(Healed)), records && !of(Healed).is_empty());
    let takes_out = matches!(verdict.outcome, Outcome::Record | Outcome::Error);
    part(format!("{} out", of(Gone)), takes_out && !of(Gone).is_empty());
    part("end doubt".to_owned(), verdict.end_doubt);
    part("doubt may end".to_owned(), verdict.may_end_doubt && !verdict.end_doubt);
    match verdict.outcome {
        Outcome::Answer if verdict.may_end_doubt => "answer (doubt may end first)".to_owned(),
        Outcome::Answer => "answer".to_owned(),
        Outcome::Record => format!("record ({}), ask again", parts.join(", ")),
        Outcome::Error if parts.is_empty() => "error (doubt)".to_owned(),
        Outcome::Error => format!("error (doubt, {})", parts.join(", ")),
        Outcome::Broken => "broken".to_owned(),
    }
}

#[test]
fn the_verdict_is_that_of_the_whole_table() {
    let mut rows = 0;
    for line in TABLE.lines() {
        let cells: Vec<&str> = line.split('\t').collect();
        let [level, first, second, third, doubt, wanted] = cells[..] else { panic!("{line}") };
        let ends: Vec<SlotEnd> = [first, second, third].into_iter().filter_map(end_of).collect();
        let is_row = level == "row";
        assert_eq!(ends.len(), if is_row { 3 } else { 2 }, "{line}");
        let both = is_row && matches!(ends[1], Took | Healed | Refused);
        let column = Column {
            ends: &ends,
            data_count: is_row.then_some(2),
            written: Places::first(if both { 2 } else { 1 }),
            was_held: Places::default(),
            in_doubt: doubt.starts_with("doubt"),
            parity_right: doubt != "doubt, parity not sent",
        };
        assert_eq!(words(&column), wanted, "{line}");
        rows += 1;
    }
    assert_eq!(rows, 1120);
}

/// Two data blocks, P and Q: as many may be lost as there are parities that took the write.
#[test]
fn with_two_parities_two_data_blocks_are_held_by_both_and_one_by_either() {
    let column = |ends: &[SlotEnd], written: usize| {
        let column = Column {
            ends,
            data_count: Some(2),
            written: Places::first(written),
            was_held: Places::default(),
            in_doubt: false,
            parity_right: true,
        };
        column.verdict().outcome
    };
    assert_eq!(column(&[Out, Out, Took, Took], 2), Outcome::Answer);
    assert_eq!(column(&[Out, Out, Took, Refused], 2), Outcome::Error);
    assert_eq!(column(&[Out, Bad, Took, Bad], 2), Outcome::Error);
    assert_eq!(column(&[Out, Took, Took, Bad], 2), Outcome::Answer);
    assert_eq!(column(&[Out, Took, Bad, Took], 1), Outcome::Answer);
    assert_eq!(column(&[Out, Took, Gone, Took], 1), Outcome::Record);
    assert_eq!(column(&[Out, Gone, Gone, Took], 1), Outcome::Broken);
}

/// A missing block that only this write's parity holds is not given up for an answer.
#[test]
fn a_write_that_would_lose_a_block_beside_it_is_an_error() {
    for (parity, held, lost) in
        [(Took, Outcome::Answer, Outcome::Answer), (Refused, Outcome::Record, Outcome::Error)]
    {
        let ends = [Took, Out, parity];
        let column = |was_held| Column {
            ends: &ends,
            data_count: Some(2),
            written: Places::of(0),
            was_held,
            in_doubt: false,
            parity_right: true,
        };
        assert_eq!(column(Places::default()).verdict().outcome, held);
        assert_eq!(column(Places::of(1)).verdict().outcome, lost);
    }
}

/// After a restart a block that memory alone lists is read as it was: new parity may fit what was computed for it.
#[test]
fn doubt_does_not_end_over_a_block_that_memory_alone_lists() {
    let verdict = |ends: &[SlotEnd]| {
        let column = Column {
            ends,
            data_count: Some(2),
            written: Places::of(0),
            was_held: Places::default(),
            in_doubt: true,
            parity_right: true,
        };
        column.verdict()
    };
    assert!(verdict(&[Took, Bad, Took, Took]).may_end_doubt);
    assert_eq!(verdict(&[Took, Hidden, Took, Took]).outcome, Outcome::Answer);
    assert!(!verdict(&[Took, Hidden, Took, Took]).may_end_doubt);
    assert!(verdict(&[Out, Bad, Took, Took]).end_doubt);
    assert_eq!(verdict(&[Out, Hidden, Took, Took]).outcome, Outcome::Error);
}
