use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};

use super::*;

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("our own");
}

/// A folder that lies in another one, both ours alone.
fn nested() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let temp = tempfile::tempdir().expect("a temporary folder");
    let parent = temp.path().join("parent");
    let own = parent.join("own");
    make(&own).expect("room");
    (temp, parent, own)
}

#[test]
fn a_directory_that_is_ours_alone_is_safe_and_one_that_is_missing_is_told() {
    let (_temp, parent, own) = nested();
    assert_eq!(check(&own), Ok(true));
    assert_eq!(check(&parent.join("none")), Ok(false));
    assert_eq!(check(&parent.join("none/below")), Ok(false));
}

#[test]
fn a_directory_is_as_safe_as_the_way_to_it() {
    let (_temp, parent, own) = nested();
    for (mode, safe) in [(0o777, false), (0o1777, true), (0o757, false), (0o700, true)] {
        chmod(&parent, mode);
        assert_eq!(check(&own).is_ok(), safe, "{mode:o}");
        assert_eq!(make(&own).is_ok(), safe, "{mode:o}");
    }
    chmod(&own, 0o1777);
    assert!(check(&own).is_err(), "of a directory itself, sticky or not");
    if rustix::process::geteuid().is_root() {
        chmod(&own, 0o700);
        chown(&parent, Some(12_345), None).expect("root may");
        let why = check(&own).expect_err("its owner may rename it");
        assert!(why.contains("another user") && why.contains("parent"), "{why}");
    }
}

#[test]
fn a_link_is_followed_on_the_way_only_and_only_if_it_is_ours() {
    let (temp, parent, own) = nested();
    let (link, last) = (temp.path().join("link"), temp.path().join("last"));
    symlink("parent/../parent", &link).expect("a link");
    symlink(&own, &last).expect("a link");
    assert_eq!(check(&link.join("own")), Ok(true));
    assert_eq!(check(&last), Err("it is a link".into()));
    symlink("circle", temp.path().join("circle")).expect("a link");
    assert!(check(&temp.path().join("circle/own")).is_err());
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::lchown(&link, Some(12_345), None).expect("root may");
        assert!(check(&link.join("own")).is_err_and(|why| why.contains("a link on its way")));
    }
    fs::write(parent.join("file"), "").expect("room");
    assert!(check(&parent.join("file")).is_err() && check(&parent.join("file/own")).is_err());
}
