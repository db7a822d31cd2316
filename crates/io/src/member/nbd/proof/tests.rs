use super::*;

#[test]
fn sectors_that_were_written_meanwhile_tell_nothing() {
    let bytes = |first: u8, second: u8| [vec![first; 512], vec![second; 512]].concat();
    let same = bytes(1, 2);
    assert!(!differs(&same, &same, &same));
    assert!(differs(&same, &bytes(1, 3), &same));
    assert!(!differs(&bytes(1, 2), &bytes(1, 3), &bytes(1, 4)));
    assert!(differs(&bytes(1, 2), &bytes(9, 3), &bytes(1, 4)));
    assert!(differs(&same, &same[..512], &same));
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
