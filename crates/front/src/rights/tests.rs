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

/// Another program may put a link in the place of the socket.
#[test]
fn rights_are_given_to_no_file_that_a_link_leads_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, link) = (folder.path().join("file"), folder.path().join("link"));
    fs::write(&file, "").expect("room");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("it is ours");
    std::os::unix::fs::symlink(&file, &link).expect("room");
    let rights = Rights { mode: SocketMode::parse("0666"), ..Rights::default() };
    let _ = rights.give(&link, Owners::default());
    let mode = fs::metadata(&file).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
