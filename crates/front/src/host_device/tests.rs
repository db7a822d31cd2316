use super::*;

#[test]
fn what_has_another_number_is_not_the_device() {
    let folder = tempfile::tempdir().expect("a folder");
    assert!(!is_node(&folder.path().join("nbd0"), 0));
    assert!(!is_node(folder.path(), 0));
}

#[test]
fn a_partition_lies_on_its_disk() {
    let is_on = |path: &str| is_on_disk(Path::new(path), Path::new("/dev/ublkb1"));
    assert!(is_on("/dev/ublkb1") && is_on("/dev/ublkb1p2") && is_on("/dev/ublkb1p10"));
    for other in
        ["/dev/ublkb", "/dev/ublkb10", "/dev/ublkb10p1", "/dev/ublkb1p", "/dev/ublkb1px", ""]
    {
        assert!(!is_on(other), "{other}");
    }
}
