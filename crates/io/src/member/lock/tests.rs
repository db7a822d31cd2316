use super::*;

/// A file that is open twice.
fn twice() -> (File, File) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let other = file.reopen().expect("once more");
    (file.into_file(), other)
}

#[test]
fn a_mark_that_writes_are_over_is_seen_beside_the_lock_and_ends_with_its_file() {
    let (file, other) = twice();
    assert!(bytes(&file, Bytes::ALL, false).expect("a lock"));
    assert!(!are_writes_over(&other).expect("an answer"), "a lock is no mark");
    mark_writes_over(&file).expect("marked");
    assert!(are_writes_over(&other).expect("an answer"));
    assert!(!bytes(&other, Bytes::ALL, false).expect("an answer"), "it keeps others out still");
    let kept = file.try_clone().expect("the same open file");
    drop(file);
    assert!(are_writes_over(&other).expect("an answer"), "whoever has it");
    drop(kept);
    assert!(!are_writes_over(&other).expect("an answer"));
}

#[test]
fn a_lock_that_others_may_share_is_no_mark() {
    let (file, other) = twice();
    assert!(bytes(&file, Bytes::ALL, true).expect("a lock"));
    assert!(!are_writes_over(&other).expect("an answer"));
}
