use std::fs;
use std::os::unix::fs::MetadataExt;

use super::*;

#[test]
fn a_file_is_seen_as_the_system_tells_of_it() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.as_file().set_len(4096).expect("a hole");
    let told = fs::metadata(file.path()).expect("it is there");
    let seen = Seen::of(file.as_file()).expect("it is open");
    assert_eq!(Some(seen), Seen::at(file.path()));
    assert_eq!(seen.file, (told.dev(), told.ino()));
    assert_eq!((seen.device, seen.is_file, seen.bytes, seen.names), (0, true, 4096, 1));
    let null = Seen::at(Path::new("/dev/null")).expect("it is there");
    assert_eq!((null.device, null.is_file), (libc::makedev(1, 3), false));
    assert_eq!(Seen::at(Path::new("/nowhere")), None);
}
