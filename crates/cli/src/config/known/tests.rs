use super::*;

const ARRAY: Uuid = Uuid([9; 16]);

fn uuid(number: u8) -> Uuid {
    Uuid([number; 16])
}

#[test]
fn who_is_missing_is_told_by_name_and_by_what_it_is() {
    let members = [("a", Some(1)), ("b", Some(2)), ("c", Some(3)), ("d", None)];
    let members = members.map(|(name, number)| (name.to_owned(), number.map(uuid)));
    let mut known = KnownMembers::new(Some(ARRAY), members);
    let there = BTreeMap::from([("a".to_owned(), uuid(1)), ("moved".to_owned(), uuid(2))]);
    let missing = |known: &KnownMembers, array| {
        known.missing(array, &there).into_keys().collect::<Vec<_>>().concat()
    };
    assert_eq!(missing(&known, ARRAY), "cd");
    assert_eq!(missing(&known, uuid(8)), "");
    known.note("e".to_owned());
    assert!(known.forget(&["other", "d"], None) && !known.forget(&["d"], None));
    assert_eq!(missing(&known, ARRAY), "ce");
    assert!(known.forget(&[], Some(uuid(3))));
    assert_eq!(missing(&known, ARRAY), "e");
    assert_eq!(known.unidentified(), ["e"]);
    known.identify("e", uuid(2));
    assert_eq!(missing(&known, ARRAY), "");
}
