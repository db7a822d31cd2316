use super::*;

fn full() -> Config {
    Config {
        uuid: Some(UuidWord(Uuid([1; 16]))),
        members: vec!["/dev/disk/by-id/a \"b\"".to_owned(), "ram:8M".to_owned()],
        missing: vec!["/srv/b".to_owned()],
        serve: vec!["nbd:unix:/run/data.sock?ro".to_owned()],
        readonly: false,
        refuse_writes: true,
        lanes: Some(4),
        stripe_size: Some(16384),
        stripe_hash_locks: None,
        settings: BTreeMap::from([("stripe_cache_size".to_owned(), "1024".to_owned())]),
        device_uuids: BTreeMap::from([("/srv/b".to_owned(), UuidWord(Uuid([2; 16])))]),
    }
}

#[test]
fn what_was_written_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("below/data.toml");
    for config in [full(), Config::default()] {
        config.write(&path).unwrap();
        assert_eq!(Config::read(&path).unwrap(), config);
    }
    let left: Vec<_> = fs::read_dir(path.parent().unwrap()).unwrap().collect();
    assert_eq!(left.len(), 1, "no other file is left: {left:?}");
}

#[test]
fn unknown_words_and_damage_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.toml");
    for (text, word) in [("memebrs = []", "memebrs"), ("lanes = \"x\"", "lanes"), ("[", "TOML")] {
        fs::write(&path, text).unwrap();
        let failure = Config::read(&path).unwrap_err();
        assert!(failure.to_string().contains("data.toml"), "{failure}");
        assert!(failure.to_string().contains(word), "{text}: {failure}");
    }
}

#[test]
fn what_is_no_file_is_not_replaced_by_a_configuration() {
    use std::os::unix::fs::FileTypeExt;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("data.toml");
    let _socket = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    let failure = Config::default().write(&path).expect_err("it is no file");
    assert!(failure.why.contains("no regular file"), "{failure}");
    assert!(fs::metadata(&path).expect("it is there").file_type().is_socket());
}

#[test]
fn settings_may_be_written_as_numbers() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("data.toml");
    fs::write(&path, "[settings]\nmax_read_errors = 7\nsync_speed_max = \"200\"\n").expect("room");
    let settings = Config::read(&path).expect("both ways are right").settings;
    let expect = [("max_read_errors", "7"), ("sync_speed_max", "200")];
    assert_eq!(settings, expect.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    fs::write(&path, "[settings]\nmax_read_errors = [7]\n").expect("room");
    assert!(Config::read(&path).is_err());
}

#[test]
fn a_configuration_that_is_not_there_is_called_so() {
    let failure = Config::read(Path::new("/nowhere/data.toml")).expect_err("it is not there");
    assert!(failure.what.contains("there is no configuration /nowhere/data.toml"), "{failure}");
}
