use super::*;

/// A helper that says in a file what it is asked, and ends with `status`. It hands nothing over.
fn helper(folder: &Path, status: u8) -> PathBuf {
    let path = folder.join("helper");
    let text = format!("#!/bin/sh\necho \"$@\" >> {}/asked\nexit {status}\n", folder.display());
    // By another process: a program that a test beside this one starts at that moment would have it open to write, and
    // the kernel runs no such file.
    let write = r#"printf %s "$1" >"$0" && chmod 700 "$0""#;
    let written = Command::new("sh").arg("-c").arg(write).arg(&path).arg(text).status();
    assert!(written.expect("sh runs").success());
    path
}

fn asked(folder: &Path) -> Vec<String> {
    let asked = fs::read_to_string(folder.join("asked")).expect("it was asked");
    asked.lines().map(str::to_owned).collect()
}

/// It answers nobody, and hangs in the way of all who look there.
#[test]
fn a_mount_whose_descriptor_does_not_come_is_unmounted() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("place");
    let error = Mount::by_helper(&place, &helper(folder.path(), 0)).expect_err("nothing came");
    assert!(error.to_string().contains("did not hand it over"), "{error}");
    let asked = asked(folder.path());
    let place = place.display().to_string();
    assert!(asked.len() == 2 && asked[0].ends_with(&place), "{asked:?}");
    assert_eq!(asked[1], format!("-u -z -q -- {place}"));
}

#[test]
fn what_the_helper_did_not_mount_stays_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("place");
    let error = Mount::by_helper(&place, &helper(folder.path(), 1)).expect_err("it refused");
    assert!(matches!(error, MountError::Refused { .. }), "{error}");
    assert_eq!(asked(folder.path()).len(), 1);
}
