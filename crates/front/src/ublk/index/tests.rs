use super::*;

#[test]
fn a_device_is_known_by_its_name() {
    let index = |path: &str| Index::of(Path::new(path));
    assert_eq!(index("/dev/ublkb0"), Some(Index(0)));
    assert_eq!(index("/dev/ublkb17"), Some(Index(17)));
    for other in ["/dev/ublkb", "/dev/ublkb0p1", "/dev/ublkc0", "/dev/nbd0", "/dev/ublkb+1", ""] {
        assert_eq!(index(other), None, "{other}");
    }
    let disk = |path: &str| Index::of_disk(Path::new(path));
    assert_eq!(disk("/dev/ublkb17p2"), Some(Index(17)));
    assert_eq!(disk("/dev/ublkb17"), Some(Index(17)));
    assert_eq!(disk("/dev/ublkb17p"), None);
    assert_eq!(disk("/dev/loop0p1"), None);
    assert_eq!(Index(17).path(), Path::new("/dev/ublkb17"));
    assert_eq!(Index(17).server_path(), Path::new("/dev/ublkc17"));
}

#[test]
fn marks_of_arrays_differ_and_say_that_they_are_ours() {
    let known = [Identity::of_array("1"), Identity::of_array("2"), Identity::of_multipath("1")];
    let marks = known.each_ref().map(mark);
    assert!(marks.iter().all(|mark| mark >> 48 == MAGIC));
    assert!(marks[0] != marks[1] && marks[0] != marks[2] && marks[1] != marks[2]);
    assert_eq!(marks[0], mark(&Identity::of_array("1")));
}

#[test]
fn a_device_is_an_arrays_by_the_driver_and_the_record() {
    let [own, other] = ["1", "2"].map(Identity::of_array);
    let live =
        |identity| DeviceInfo { mark: mark(identity), state: state::LIVE, ..DeviceInfo::default() };
    assert!(is_of(&live(&own), Some(&own), &own));
    assert!(is_of(&live(&own), None, &own), "the record is gone");
    assert!(!is_of(&live(&other), Some(&own), &own), "another program has the number now");
    assert!(!is_of(&DeviceInfo::default(), Some(&own), &own), "so has one that leaves no mark");
    assert!(!is_of(&live(&own), Some(&other), &own), "two identities have one mark");
    // A process was killed before it could write the record.
    let begun = DeviceInfo { state: state::DEAD, ..live(&own) };
    assert!(is_of(&begun, Some(&other), &own));
    assert!(!is_of(&begun, Some(&other), &other));
}
