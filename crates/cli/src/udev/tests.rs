use super::*;

const ARRAY: &str = "01234567:89abcdef:01234567:89abcdef";
const DASHED: &str = "01234567-89ab-cdef-0123-456789abcdef";

fn name(word: &str) -> ArrayName {
    word.parse().expect("a name")
}

#[test]
fn an_entry_is_where_udevs_rule_looks_until_the_array_is_left_to_md() {
    let folder = tempfile::tempdir().expect("room");
    assert!(keep_from_md(folder.path(), ARRAY, &name("data")).expect("room"), "it is new");
    assert!(!keep_from_md(folder.path(), ARRAY, &name("data")).expect("room"), "it is there");
    let path = folder.path().join("by-uuid").join(DASHED);
    assert_eq!(fs::read_to_string(&path).expect("it is there"), "data\n");
    assert_eq!(kept_from_md(folder.path(), &name("data")), [DASHED]);
    assert!(kept_from_md(folder.path(), &name("other")).is_empty());
    assert!(leave_to_md(folder.path(), ARRAY).expect("it goes"));
    assert!(!path.exists());
    assert!(!leave_to_md(folder.path(), ARRAY).expect("nothing to do"));
}

#[test]
fn an_array_that_was_renamed_is_kept_from_md_for_its_new_name() {
    let folder = tempfile::tempdir().expect("room");
    keep_from_md(folder.path(), ARRAY, &name("old")).expect("room");
    keep_from_md(folder.path(), ARRAY, &name("new")).expect("room");
    assert!(kept_from_md(folder.path(), &name("old")).is_empty());
    assert_eq!(kept_from_md(folder.path(), &name("new")), [DASHED]);
}

#[test]
fn udev_is_told_of_no_file() {
    let file = tempfile::NamedTempFile::new().expect("room");
    look_again(file.path()).expect("nothing to do");
    assert!(look_again(Path::new("/dev/null/none")).is_err());
}
