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
