use std::os::unix::fs::PermissionsExt;

use super::*;

fn run_dir() -> (tempfile::TempDir, RunDir) {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let run_dir = RunDir::open_at(temp.path().join("run")).expect("a new directory");
    (temp, run_dir)
}

fn name(text: &str) -> ArrayName {
    text.parse().expect("a good name")
}

#[test]
fn an_array_runs_exactly_while_its_lock_is_held() {
    let (_temp, run_dir) = run_dir();
    let lock = run_dir.try_lock(&name("b")).expect("a lock file");
    assert!(lock.is_some());
    assert!(run_dir.try_lock(&name("b")).expect("a lock file").is_none());
    let _other = run_dir.try_lock(&name("a")).expect("a lock file");
    assert_eq!(run_dir.running().expect("a list"), [name("a"), name("b")]);
    drop(lock);
    assert_eq!(run_dir.running().expect("a list"), [name("a")]);
    run_dir.wait_until_gone(&name("b")).expect("a free lock");
}

#[test]
fn a_directory_that_others_may_write_is_refused() {
    let (_temp, run_dir) = run_dir();
    let path = run_dir.path().to_owned();
    assert!(RunDir::open_at(path.clone()).is_ok());
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).expect("own directory");
    assert!(RunDir::open_at(path.clone()).is_err());
    let link = path.with_file_name("link");
    std::os::unix::fs::symlink(&path, &link).expect("a link");
    assert!(RunDir::open_at(link).is_err());
}

#[test]
fn a_path_too_long_for_a_socket_is_refused() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let failure = RunDir::open_at(temp.path().join("x".repeat(100))).expect_err("too long");
    assert!(failure.why.contains("too long"), "{failure}");
}
