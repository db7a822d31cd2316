use super::*;

#[test]
fn the_time_of_lone_reads_is_learnt_and_unlearnt() {
    let reads = LoneReads::default();
    assert!(!reads.are_slow(), "nothing is known");
    reads.note(Duration::from_micros(90));
    assert!(reads.are_slow());
    (0..8).for_each(|_| reads.note(Duration::from_micros(10)));
    assert!(!reads.are_slow());
    (0..8).for_each(|_| reads.note(Duration::from_micros(90)));
    assert!(reads.are_slow());
}

#[test]
fn the_first_lone_round_is_timed_and_then_one_in_so_many() {
    let reads = LoneReads::default();
    let timed = (0..4 * TIMED).filter(|_| reads.counts_and_times());
    assert_eq!(timed.collect::<Vec<_>>(), [0, TIMED, 2 * TIMED, 3 * TIMED]);
}
