use super::*;

/// Whoever may read a folder may lock it for as long as he likes.
#[test]
fn a_folder_that_another_user_holds_keeps_nothing_from_being_made() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.sock");
    let _holder = Making::begin_within(&path, Duration::ZERO).expect("the folder is held");
    let own = rustix::process::geteuid().as_raw();
    let begin_as = |user| Making::begin_as(user, &path, Duration::ZERO).is_ok();
    assert!(!begin_as(own), "it is this user's process");
    assert!(begin_as(own + 1), "that process is another user's");
}

/// The kernel skips a lock in its list where one before it is given back meanwhile.
#[test]
fn a_lock_of_this_user_is_seen_while_others_come_and_go() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.sock");
    let _holder = Making::begin_within(&path, Duration::ZERO).expect("the folder is held");
    let ended = std::sync::atomic::AtomicBool::new(false);
    let others: Vec<_> = (0..4).map(|_| tempfile::tempdir().expect("a folder")).collect();
    thread::scope(|scope| {
        for other in &others {
            scope.spawn(|| {
                let other = other.path().join("a.sock");
                while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                    drop(Making::begin_within(&other, Duration::ZERO));
                }
            });
        }
        let missed =
            (0..2_000).filter(|_| Making::begin_within(&path, Duration::ZERO).is_ok()).count();
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(missed, 0);
    });
}
