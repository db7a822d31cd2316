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
fn a_device_belongs_to_one_array_or_multipath_device() {
    let known = [Identity::of_array("1"), Identity::of_array("2"), Identity::of_multipath("1")];
    for (at, one) in known.iter().enumerate() {
        assert!(one.0.starts_with(OURS));
        assert!(!known[..at].contains(one));
    }
}

#[test]
fn one_process_serves_a_device() {
    let folder = tempfile::tempdir().expect("a folder");
    let lock = |index| ServedLock::take(Index(index), folder.path()).expect("a file");
    let held = lock(3);
    assert!(held.is_some());
    assert!(lock(3).is_none(), "it is served");
    assert!(lock(4).is_some(), "another one is not");
    drop(held);
    assert!(lock(3).is_some(), "it is served no more");
}

/// `NBD_ATTR_SOCKETS` holds one `NBD_SOCK_ITEM` a connection, and that an `NBD_SOCK_FD`.
#[test]
fn each_connection_is_an_attribute_of_its_own() {
    let sockets: Vec<OwnedFd> =
        (0..2).map(|_| File::open("/dev/null").expect("it is there").into()).collect();
    let list = with_sockets(Attributes::default().u32(1, 5), &sockets);
    let item = |socket: &OwnedFd| {
        let descriptor = socket.as_raw_fd().cast_unsigned().to_ne_bytes();
        [
            &12u16.to_ne_bytes()[..],
            &1u16.to_ne_bytes(),
            &8u16.to_ne_bytes(),
            &1u16.to_ne_bytes(),
            &descriptor,
        ]
        .concat()
    };
    let expected: Vec<u8> = sockets.iter().flat_map(item).collect();
    assert_eq!(list.find(7), Some(&expected[..]));
    assert_eq!(list.find(1), Some(&5u32.to_ne_bytes()[..]));
}
