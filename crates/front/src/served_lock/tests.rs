use super::*;

#[test]
fn one_process_serves_a_device() {
    let folder = tempfile::tempdir().expect("a folder");
    let lock = |index| ServedLock::take(&format!("nbd{index}"), folder.path()).expect("a file");
    let held = lock(3);
    assert!(held.is_some());
    assert!(lock(3).is_none(), "it is served");
    assert!(lock(4).is_some(), "another one is not");
    drop(held);
    assert!(lock(3).is_some(), "it is served no more");
}

#[test]
fn whose_a_device_is_stays_written_down() {
    let folder = tempfile::tempdir().expect("a folder");
    let recorded = || recorded("ublkb0", folder.path());
    assert_eq!(recorded(), None);
    let lock = ServedLock::take("ublkb0", folder.path()).expect("a file").expect("it is free");
    assert_eq!(recorded(), None, "nothing is written yet");
    for identity in [Identity::of_multipath("a-long-name"), Identity::of_multipath("b")] {
        lock.record(&identity).expect("a file");
        assert_eq!(recorded(), Some(identity));
    }
    drop(lock);
    let again = ServedLock::take("ublkb0", folder.path()).expect("a file");
    assert!(again.is_some());
    assert_eq!(recorded(), Some(Identity::of_multipath("b")), "a lock leaves it as it is");
}
