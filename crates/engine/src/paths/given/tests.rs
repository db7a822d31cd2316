use super::super::identity::tests::{identity, said};
use super::*;

fn given(all: &[(u8, u64)], known: &Identity) -> Given {
    let mut given = Given::default();
    let all = all.iter().map(|&(device, events)| said(device, events).expect("a superblock"));
    all.for_each(|said| given.add(said, Some(known)));
    given
}

#[test]
fn a_device_may_say_what_its_user_has_written_and_nothing_else() {
    let known = identity(said(7, 9), 1, 2);
    let given = given(&[(7, 10), (8, 3), (8, 4)], &known);
    assert!(given.explains(&identity(said(8, 3), 1, 2)));
    assert!(given.explains(&identity(said(8, 5), 1, 2)));
    assert!(!given.explains(&identity(said(8, 2), 1, 2)), "a copy of an earlier day");
    assert!(!given.explains(&identity(said(9, 3), 1, 2)), "another device");
    assert!(!given.explains(&identity(None, 1, 2)));
    assert!(!given.explains(&known), "an update tells nothing new");
}

#[test]
fn what_was_not_read_yet_is_not_forgotten() {
    let known = identity(said(7, 9), 1, 2);
    let mut given = given(&[(8, 3), (9, 1)], &known);
    given.read(&known);
    assert!(given.explains(&identity(said(8, 3), 1, 2)), "it had not landed when it was read");
    given.read(&identity(said(8, 3), 1, 2));
    assert!(!given.explains(&identity(said(8, 3), 1, 2)));
    assert!(given.explains(&identity(said(9, 1), 1, 2)));
    given.read(&identity(said(9, 2), 1, 2));
    assert!(!given.explains(&identity(said(9, 2), 1, 2)));
}
