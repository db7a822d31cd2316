use super::*;

#[test]
fn sectors_that_were_written_meanwhile_tell_nothing() {
    let bytes = |first: u8, second: u8| [vec![first; 512], vec![second; 512]].concat();
    let same = bytes(1, 2);
    assert_eq!(agrees(&same, &same, &same), Some(true));
    assert_eq!(agrees(&same, &bytes(1, 3), &same), Some(false));
    assert_eq!(agrees(&bytes(1, 2), &bytes(1, 3), &bytes(1, 4)), Some(true));
    assert_eq!(agrees(&bytes(1, 2), &bytes(9, 3), &bytes(1, 4)), Some(false));
    assert_eq!(agrees(&same, &same[..512], &same), Some(false));
}

/// A device of which every compared sector changes between two looks proves nothing by that.
#[test]
fn a_connection_is_not_proven_where_every_sector_was_written_meanwhile() {
    let sector = |byte: u8| vec![byte; 512];
    assert_eq!(agrees(&sector(1), &sector(9), &sector(2)), None);
}

#[test]
fn all_places_of_superblocks_are_compared_on_every_size() {
    for sectors in [1, 8, 271, 272, 273, 4096, 1 << 21] {
        let compared = places(sectors * 512);
        let holds = |sector: u64| compared.iter().any(|place| place.contains(&(sector * 512)));
        let end = compared.last().unwrap().end;
        assert_eq!(end, sectors * 512);
        assert!(holds(0) && (sectors < 9 || holds(8)));
        if let Some(at) = sectors.checked_sub(16) {
            assert!(holds(at & !7), "1.0 on {sectors}");
        }
        if let Some(at) = (sectors & !127).checked_sub(128) {
            assert!(holds(at), "0.90 on {sectors}");
        }
        assert!(compared.iter().all(|place| place.start.is_multiple_of(4096)));
    }
}

#[test]
fn without_a_connection_to_compare_with_there_is_no_proof() {
    let questions = Questions::default();
    assert!(questions.ask(|| {}).is_err());
    questions.connected();
    let leave = || assert!(questions.disconnected());
    assert!(questions.ask(leave).is_err());
}

#[test]
fn the_last_lane_that_is_connected_no_more_is_told_from_the_others() {
    let questions = Questions::default();
    questions.connected();
    questions.connected();
    assert!(!questions.disconnected());
    assert!(questions.disconnected());
}
