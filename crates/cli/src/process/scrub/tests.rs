use super::*;

#[test]
fn a_place_is_kept_for_its_array_alone_and_forgotten_at_the_end() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let file = folder.path().join("data.scrub");
    assert_eq!(kept_place(&file, "one"), None);
    keep_place(&file, "one", 4096).expect("room");
    assert_eq!(kept_place(&file, "one"), Some(4096));
    assert_eq!(kept_place(&file, "other"), None);
    keep_place(&file, "one", 0).expect("room");
    assert!(!file.exists());
    keep_place(&file, "one", 0).expect("nothing to forget");
}

#[test]
fn what_nobody_wrote_there_is_no_place() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let file = folder.path().join("data.scrub");
    for text in ["", "one", "one ", "one -1", "one 99999999999999999999999", "one 1 2", "\u{0}"] {
        fs::write(&file, text).expect("room");
        assert_eq!(kept_place(&file, "one"), None, "{text:?}");
    }
}
