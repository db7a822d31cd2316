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
