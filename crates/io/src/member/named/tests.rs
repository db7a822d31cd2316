use std::io::ErrorKind;

use super::*;

#[test]
fn a_device_or_a_long_file_is_no_text() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("text");
    std::fs::write(&path, "words").expect("a file");
    assert_eq!(read_text(&path).expect("a text"), "words");
    File::create(&path).and_then(|file| file.set_len(TEXT_BYTES_MAX + 1)).expect("a hole");
    assert!(read_text(&path).is_err_and(|error| error.to_string().contains("1 MiB")));
    File::create(&path).and_then(|file| file.set_len(TEXT_BYTES_MAX)).expect("a hole");
    assert!(read_text(&path).is_ok());
    assert!(read_text(Path::new("/dev/zero")).is_err());
    assert!(open_to_look(Path::new("/dev/zero")).is_err());
    assert!(open_to_look(folder.path()).is_err());
    let none = open_to_look(&folder.path().join("none"));
    assert!(none.is_err_and(|error| error.kind() == ErrorKind::NotFound));
}

#[test]
fn a_pipe_that_nobody_writes_to_is_not_waited_for() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.is_ok_and(|made| made.success()));
    assert!(read_text(&path).is_err_and(|error| error.to_string().contains("regular")));
    assert!(open_regular(&path).is_err());
}

#[test]
fn an_identity_stays_with_the_file_and_not_with_its_name() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (name, link) = (folder.path().join("name"), folder.path().join("link"));
    let file = File::create(&name).expect("a file");
    let identity = Identity::of(&file).expect("it is open");
    std::os::unix::fs::symlink(&name, &link).expect("a link");
    assert_eq!(Identity::of_name(&link).expect("a file"), identity);
    assert_eq!(identity.to_string().parse(), Ok(identity));
    std::fs::rename(&name, folder.path().join("moved")).expect("a name");
    File::create(&name).expect("another file");
    assert_ne!(Identity::of_name(&link).expect("a file"), identity);
    assert!("1:2".parse::<Identity>().is_err());
}
