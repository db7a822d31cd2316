use super::*;

#[test]
fn one_process_serves_a_device() {
    let folder = tempfile::tempdir().expect("a folder");
    let lock = |index| ServedLock::take(Index(index), folder.path()).expect("a file");
    let held = lock(3);
    assert!(held.is_some());
    assert!(lock(3).is_none(), "it is served");
    assert!(lock(4).is_some(), "another one is not");
    drop(held);
    assert!(lock(3).is_some(), "it is served no more");
}
