use super::*;

pub(in super::super) fn said(device: u8, events: u64) -> Option<Said> {
    Some(Said { set: Uuid([1; 16]), device: Uuid([device; 16]), events, digest: events })
}

pub(in super::super) fn identity(superblock: Option<Said>, first: u8, second: u8) -> Identity {
    let blocks = [vec![first; SECTOR_BYTES], vec![second; SECTOR_BYTES]].concat();
    Identity { sectors: 2048, superblock, blocks }
}

#[test]
fn yesterdays_copy_of_a_device_is_another_device() {
    let (today, copy) = (identity(said(7, 9), 1, 2), identity(said(7, 5), 1, 3));
    let Compared::Other(why) = copy.compare(&today, &today) else { panic!("they are the same") };
    assert!(why.contains("event count 5") && why.contains("event count 9"), "{why}");
    assert!(copy.is_older_than(&today) && !today.is_older_than(&copy));
    assert!(copy.contradicts_last(&today, false).is_some());
    // It may be the newest of several.
    assert_eq!(today.contradicts_last(&copy, false), None);
    assert!(today.contradicts_last(&copy, true).is_some());
    assert_eq!(today.contradicts_last(&today, true), None);
}

#[test]
fn what_is_written_meanwhile_tells_nothing_and_what_stands_still_does() {
    let now = |first, second| identity(said(7, 9), first, second);
    assert_eq!(now(1, 2).compare(&now(1, 2), &now(1, 2)), Compared::Same);
    assert_eq!(now(1, 3).compare(&now(1, 2), &now(1, 4)), Compared::Same);
    assert_eq!(now(8, 3).compare(&now(1, 2), &now(3, 4)), Compared::Unclear);
    assert!(matches!(now(8, 3).compare(&now(1, 2), &now(1, 4)), Compared::Other(_)));
    // A superblock that was written between the two.
    let none = identity(None, 1, 2);
    assert_eq!(now(1, 2).compare(&none, &now(1, 2)), Compared::Unclear);
    assert!(matches!(now(1, 2).compare(&none, &none), Compared::Other(_)));
    assert!(matches!(none.compare(&now(1, 2), &now(1, 2)), Compared::Other(_)));
}

/// What stands still beside a superblock may never have been written: it does not tell today from yesterday.
#[test]
fn while_its_superblock_is_updated_no_copy_is_taken_for_a_device() {
    let at = |events| identity(said(7, events), events as u8, 0);
    assert!(matches!(at(5).compare(&at(8), &at(9)), Compared::Other(_)), "an older one");
    assert!(matches!(at(10).compare(&at(8), &at(9)), Compared::Other(_)), "a newer one");
    assert_eq!(at(8).compare(&at(8), &at(9)), Compared::Unclear, "maybe one of the last update");
    assert_eq!(at(9).compare(&at(9), &at(9)), Compared::Same);
}

/// A superblock tells the device by itself.
#[test]
fn a_first_block_that_one_path_cannot_read_is_not_compared() {
    let cut =
        |one: &Identity| Identity { blocks: one.blocks[SECTOR_BYTES..].to_vec(), ..one.clone() };
    let (today, copy) = (identity(said(7, 9), 1, 2), identity(said(7, 5), 1, 3));
    assert_eq!(cut(&today).compare(&today, &today), Compared::Same);
    assert_eq!(today.compare(&cut(&today), &today), Compared::Same);
    assert!(matches!(cut(&copy).compare(&today, &today), Compared::Other(_)));
    assert!(matches!(copy.compare(&cut(&today), &cut(&today)), Compared::Other(_)));
}

/// A check falls into an update: what it reads of the superblock is neither the old one nor the new one.
#[test]
fn what_is_read_in_the_middle_of_an_update_is_no_other_device() {
    let (before, after) = (identity(said(7, 9), 1, 2), identity(said(7, 10), 1, 3));
    let half = identity(None, 1, 2);
    assert!(matches!(half.compare(&before, &after), Compared::Unclear));
    assert!(matches!(half.compare(&after, &after), Compared::Other(_)));
    let longer = Identity { sectors: 4096, ..half };
    assert!(matches!(longer.compare(&before, &after), Compared::Other(_)));
}

#[test]
fn other_devices_are_told_by_their_uuids_and_sizes() {
    let (one, other) = (identity(said(7, 9), 1, 2), identity(said(8, 9), 1, 2));
    assert!(matches!(one.compare(&other, &other), Compared::Other(_)));
    assert!(one.contradicts_last(&other, false).is_some() && !one.is_older_than(&other));
    let longer = Identity { sectors: 4096, ..one.clone() };
    assert!(longer.contradicts_last(&one, false).is_some());
    assert!(identity(None, 0, 0).is_blank());
    assert!(!identity(None, 0, 1).is_blank() && !identity(said(7, 1), 0, 0).is_blank());
}
