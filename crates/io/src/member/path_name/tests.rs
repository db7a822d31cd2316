use std::ffi::OsStr;

use super::*;

fn name_of(bytes: &[u8]) -> String {
    name_of_path(Path::new(OsStr::from_bytes(bytes)))
}

#[test]
fn a_path_in_utf8_is_its_own_name() {
    for path in ["/dev/sda", "/tmp/\u{e9}t\u{e9}", "/dev/disk/by-label/my\\x20disk", "a\\", "\\x"] {
        assert_eq!(name_of(path.as_bytes()), path);
        assert_eq!(path_of_name(path), Path::new(path));
    }
}

#[test]
fn a_byte_that_is_no_text_has_its_number() {
    assert_eq!(name_of(b"/tmp/disk-\xff"), "/tmp/disk-\\xff");
    assert_eq!(path_of_name("/tmp/disk-\\xff").as_os_str().as_bytes(), b"/tmp/disk-\xff");
    // What only looks like such a number is told from it.
    assert_eq!(name_of(b"disk-\\xff"), "disk-\\x5cxff");
}

#[test]
fn every_path_has_a_name_of_its_own_that_leads_back_to_it() {
    let pieces: [&[u8]; 8] = [b"\\", b"x", b"5c", b"ff", b"\\xff", b"\xff", b"\xc3", b"\xa9"];
    let mut paths: Vec<Vec<u8>> = vec![Vec::new()];
    for _ in 0..4 {
        let longer = paths.iter().flat_map(|path| pieces.map(|piece| [path, piece].concat()));
        paths = longer.collect();
        for path in &paths {
            let name = name_of(path);
            assert_eq!(path_of_name(&name).as_os_str().as_bytes(), path, "{name}");
        }
    }
}
