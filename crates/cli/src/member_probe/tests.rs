use std::path::PathBuf;
use std::process::Command;

use super::*;

fn run_dir() -> (tempfile::TempDir, RunDir) {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let run_dir = RunDir::open_at(temp.path().join("run")).expect("a new directory");
    (temp, run_dir)
}

fn member(folder: &Path, bytes: u64) -> PathBuf {
    let path = folder.join("member");
    File::create(&path).and_then(|file| file.set_len(bytes)).expect("a file");
    path
}

#[test]
fn an_empty_member_is_no_question() {
    let (temp, run_dir) = run_dir();
    let member = member(temp.path(), 8 << 20);
    assert!(check(&[&member], &run_dir, false, &Purpose::new_member("cannot create")).is_ok());
}

#[test]
fn a_file_system_is_named_and_without_a_terminal_refused() {
    let Some(mkfs) = crate::doctor::find_program("mkfs.ext4") else { return };
    let (temp, run_dir) = run_dir();
    let member = member(temp.path(), 8 << 20);
    let made = Command::new(mkfs).args(["-q", "-L", "precious"]).arg(&member).status();
    assert!(made.expect("mkfs runs").success());
    let failure = check(&[&member], &run_dir, false, &Purpose::new_member("cannot create"))
        .expect_err("it is full");
    assert!(failure.why.contains("ext4"), "{failure}");
    assert!(failure.why.contains("precious"), "{failure}");
    assert!(check(&[&member], &run_dir, true, &Purpose::new_member("cannot create")).is_ok());
}

#[test]
fn what_is_in_use_is_refused_whatever_the_answer() {
    let (temp, run_dir) = run_dir();
    let member = member(temp.path(), 8 << 20);
    let _held = hold(&member, OpenMode::RUN, &Purpose::known("x")).expect("a free file");
    let failure = check(&[&member], &run_dir, true, &Purpose::new_member("cannot create"))
        .expect_err("it is held");
    assert!(failure.why.contains("in use"), "{failure}");
    assert!(
        check(&[temp.path()], &run_dir, true, &Purpose::known("x")).is_err(),
        "a directory is no member"
    );
    let nothing = temp.path().join("nothing");
    let failure = check(&[&nothing], &run_dir, true, &Purpose::new_member("cannot create"))
        .expect_err("nothing is there");
    assert!(failure.cure.contains("truncate"), "{failure}");
}
