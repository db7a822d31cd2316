use super::*;

/// A RAID6 that rebuilds without space, changed.
fn told(change: impl FnOnce(&mut ArrayReport)) -> Option<String> {
    let mut report = examples::raid6_without_space();
    change(&mut report.array);
    report.array.space_words()
}

#[test]
fn what_waits_for_space_is_named_with_its_place() {
    let told_as = |change: fn(&mut ArrayReport)| told(change).unwrap_or_default();
    assert_eq!(told_as(|_| {}), "the rebuild waits for space below /none");
    let resync: fn(&mut ArrayReport) = |array| array.sync.last_action = "resync".into();
    assert_eq!(told_as(resync), "the resync waits for space below /none");
    let two: fn(&mut ArrayReport) = |array| {
        array.members[0].state.push("lacks_space".into());
        array.members[0].member = "/else/a".into();
    };
    assert_eq!(told_as(two), "the rebuild waits for space below /else and below /none");
    let device: fn(&mut ArrayReport) = |array| array.members[5].major = Some(252);
    assert_eq!(told_as(device), "the rebuild waits for space behind /none/m6");
    let export: fn(&mut ArrayReport) = |array| array.members[5].member = "nbd://far/x".into();
    assert_eq!(told_as(export), "the rebuild waits for space behind nbd://far/x");
}

#[test]
fn where_nothing_waits_what_writes_met_is_told() {
    let found = Some("writes found no space below /none in the last minute".to_owned());
    assert_eq!(told(|array| array.sync.action = "recover".into()), found);
    assert_eq!(told(|array| array.sync.action = "frozen".into()), found);
    assert_eq!(told(|array| array.sync.last_end = None), found);
    assert_eq!(told(|array| array.members[5].state = vec!["faulty".into()]), None);
    assert_eq!(examples::rebuilding_raid6().array.space_words(), None);
}

#[test]
fn a_member_without_space_has_a_word_of_its_own() {
    let array = examples::raid6_without_space().array;
    assert_eq!(array.members[5].state, ["spare", "lacks_space"]);
}
