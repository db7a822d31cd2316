use super::*;

#[test]
fn users_and_groups_are_found_by_name_or_number() {
    let of = |owner: &str, group: &str| {
        let rights = Rights { mode: None, owner: Some(owner.into()), group: Some(group.into()) };
        rights.owners().map(|owners| (owners.user, owners.group)).map_err(|why| why.to_string())
    };
    assert_eq!(of("root", "root"), Ok((Some(0), Some(0))));
    assert_eq!(of("64055", "4000000000"), Ok((Some(64055), Some(4_000_000_000))));
    // To the system that is "as it was".
    assert!(of("4294967295", "0").is_err() && of("0", "4294967295").is_err());
}

/// Another program may put something else in the place of the socket.
#[test]
fn rights_are_given_to_no_other_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let [file, socket, link, name] =
        ["file", "socket", "link", "name"].map(|it| folder.path().join(it));
    fs::write(&file, "").expect("room");
    let _listening = std::os::unix::net::UnixListener::bind(&socket).expect("room");
    for it in [&file, &socket] {
        fs::set_permissions(it, Permissions::from_mode(0o600)).expect("it is ours");
    }
    std::os::unix::fs::symlink(&socket, &link).expect("room");
    fs::hard_link(&socket, &name).expect("room");
    let rights = Rights { mode: SocketMode::parse("0666"), ..Rights::default() };
    for it in [&file, &link, &name] {
        rights.give(it, Owners::default()).expect_err("it is not the socket that was made");
    }
    let mode = |it| fs::metadata(it).expect("it is there").permissions().mode() & 0o777;
    assert_eq!([mode(&file), mode(&socket)], [0o600; 2]);
}
