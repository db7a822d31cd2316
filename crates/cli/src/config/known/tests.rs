use super::*;

fn named<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(name, uuid)| (name.to_owned(), uuid.to_owned())).collect()
}

#[test]
fn who_is_missing_is_told_by_name_and_by_what_it_is() {
    let names = ["a", "b", "c", "d"].map(str::to_owned);
    let uuids = named([("a", "1"), ("b", "2"), ("c", "3")]);
    let mut known = KnownMembers::new(Some("array".to_owned()), &names, &uuids);
    let present = named([("a", "1"), ("moved", "2")]);
    let missing = |known: &KnownMembers, array| {
        known.missing(array, &present).into_keys().collect::<Vec<_>>().concat()
    };
    assert_eq!(missing(&known, "array"), "cd");
    assert_eq!(missing(&known, "another"), "");
    known.note("e".to_owned());
    assert!(known.forget(&["other", "d"], None) && !known.forget(&["d"], None));
    assert_eq!(missing(&known, "array"), "ce");
    assert!(known.forget(&[], Some("3")));
    assert_eq!(missing(&known, "array"), "e");
}
