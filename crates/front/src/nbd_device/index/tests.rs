use super::*;

#[test]
fn a_device_is_known_by_its_name() {
    let index = |path: &str| Index::of(Path::new(path));
    assert_eq!(index("/dev/nbd0"), Some(Index(0)));
    assert_eq!(index("/dev/nbd17"), Some(Index(17)));
    for other in ["/dev/nbd", "/dev/nbd0p1", "/dev/loop0", "/dev/nbd-1", ""] {
        assert_eq!(index(other), None, "{other}");
    }
    assert_eq!(Index::of_disk(Path::new("/dev/nbd17p2")), Some(Index(17)));
    assert_eq!(Index::of_disk(Path::new("/dev/nbd17")), Some(Index(17)));
    assert_eq!(Index::of_disk(Path::new("/dev/loop0p1")), None);
    assert_eq!(Index(17).path(), Path::new("/dev/nbd17"));
}

#[test]
fn a_device_is_its_arrays_unless_the_driver_says_otherwise() {
    let [own, other] = ["1", "2"].map(Identity::of_array);
    let unread = |errno: Errno| Err(io::Error::from(errno));
    let is_own = |told| is_told(told, &own).ok();
    assert_eq!(is_own(Ok(own.clone())), Some(true));
    assert_eq!(is_own(Ok(other)), Some(false));
    assert_eq!(is_own(unread(Errno::NOENT)), Some(false), "it is attached no more");
    assert_eq!(is_own(unread(Errno::NODEV)), Some(false), "it goes just now");
    assert_eq!(is_own(unread(Errno::MFILE)), None, "nothing is known");
}
