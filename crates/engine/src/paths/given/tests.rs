use super::super::identity::tests::{identity, said};
use super::*;

fn given(all: &[(u8, u64)]) -> Given {
    let mut given = Given::default();
    let all = all.iter().map(|&(device, events)| said(device, events).expect("a superblock"));
    all.for_each(|said| given.add(said));
    given
}

fn says(device: u8, events: u64) -> Identity {
    identity(said(device, events), 1, 2)
}

#[test]
fn a_device_may_say_what_its_user_has_written_and_nothing_else() {
    let given = given(&[(7, 10), (8, 3), (8, 4)]);
    for (device, events) in [(7, 10), (8, 3), (8, 4)] {
        assert!(given.explains(&says(device, events)), "{device} {events}");
    }
    assert!(!given.explains(&says(8, 5)), "another program has written that");
    assert!(!given.explains(&says(8, 2)), "a copy of an earlier day");
    assert!(!given.explains(&says(9, 3)), "another device");
    assert!(!given.explains(&identity(None, 1, 2)));
}

#[test]
fn once_an_update_is_durable_the_device_says_none_before_it() {
    let (mut given, mut known) = (given(&[(7, 10), (8, 1), (7, 11), (7, 12)]), says(7, 9));
    given.is_durable(said(7, 11).expect("a superblock"), Some(&mut known));
    assert_eq!(known.superblock, said(7, 11));
    assert!(!given.explains(&says(7, 10)));
    for (device, events) in [(8, 1), (7, 11), (7, 12)] {
        assert!(given.explains(&says(device, events)), "{device} {events}");
    }
}

#[test]
fn what_was_not_read_yet_is_not_forgotten() {
    let mut given = given(&[(8, 3), (9, 1)]);
    given.read(&says(7, 9));
    assert!(given.explains(&says(8, 3)), "it had not landed when it was read");
    given.read(&says(8, 3));
    assert!(!given.explains(&says(8, 3)));
    assert!(given.explains(&says(9, 1)));
    given.read(&says(9, 1));
    assert!(!given.explains(&says(9, 1)));
}

/// A first block, each of whose sectors holds one byte.
fn block(sectors: [u8; 8]) -> Vec<u8> {
    sectors.iter().flat_map(|&byte| [byte; SECTOR_BYTES]).collect()
}

#[test]
fn a_first_block_may_have_in_each_sector_what_it_had_or_what_was_written_there_since() {
    let mut known = FirstBlock::default();
    assert!(known.explains(&block([9; 8])), "it was never read");
    known.read(&block([1; 8]));
    assert!(known.explains(&block([1; 8])) && !known.explains(&block([2; 8])));
    known.add(&(2..4), Some(&[[2; SECTOR_BYTES], [3; SECTOR_BYTES]].concat()));
    known.add(&(7..20), Some(&[4; 13 * SECTOR_BYTES]));
    for (third, fourth, last) in [(1, 1, 1), (2, 1, 4), (2, 3, 1), (1, 3, 4)] {
        assert!(known.explains(&block([1, 1, third, fourth, 1, 1, 1, last])));
    }
    for wrong in [[2, 1, 1, 1, 1, 1, 1, 1], [1, 1, 3, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 4, 4]] {
        assert!(!known.explains(&block(wrong)), "{wrong:?}");
    }
    // What was there before may be there again: it was not flushed.
    known.read(&block([1, 1, 2, 3, 1, 1, 1, 4]));
    assert!(known.explains(&block([1; 8])));
}

#[test]
fn of_a_first_block_that_is_written_often_the_newest_contents_are_known() {
    let mut known = FirstBlock::default();
    known.read(&block([1; 8]));
    let all = 10..10 + CONTENTS_KEPT as u8 + 5;
    all.clone().for_each(|byte| known.add(&(0..1), Some(&[byte; SECTOR_BYTES])));
    assert!(known.explains(&block([all.end - 1, 1, 1, 1, 1, 1, 1, 1])));
    assert!(!known.explains(&block([all.start, 1, 1, 1, 1, 1, 1, 1])));
    // What a discard leaves is not known before it is read.
    known.add(&(0..8), None);
    assert!(known.explains(&block([9; 8])));
    known.read(&block([9; 8]));
    assert!(known.explains(&block([9; 8])) && !known.explains(&block([1; 8])));
}
