use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

#[path = "../../tests/common/certificates.rs"]
#[expect(dead_code, reason = "other tests have clients")]
pub(crate) mod certificates;

use certificates::Authority;

/// A directory of a server's, with what signs clients' certificates.
fn directory() -> (tempfile::TempDir, Authority) {
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::new("tests");
    authority.write(folder.path());
    authority.write_server(folder.path());
    (folder, authority)
}

fn tls(folder: &tempfile::TempDir, verify: Option<bool>) -> Tls {
    Tls { directory: folder.path().to_path_buf(), verify, needs_list: false }
}

fn refused(folder: &tempfile::TempDir, verify: Option<bool>) -> String {
    let error = Identity::read(&tls(folder, verify)).expect_err("it must be refused");
    assert!(!error.cure().is_empty());
    error.to_string()
}

#[test]
fn clients_are_asked_where_there_is_a_ca_or_the_address_says_so() {
    let (folder, _) = directory();
    let asks =
        |verify| Identity::read(&tls(&folder, verify)).map(|identity| identity.asks_clients());
    assert!(asks(None).expect("whole"));
    assert!(asks(Some(true)).expect("whole"));
    assert!(!asks(Some(false)).expect("whole"));
    fs::remove_file(folder.path().join(CA_CERT)).expect("removed");
    assert!(!asks(None).expect("whole"));
    assert!(matches!(asks(Some(true)), Err(TlsError::Missing(path)) if path.ends_with(CA_CERT)));
}

#[test]
fn each_file_that_is_missing_or_broken_is_named() {
    for file in [CA_CERT, SERVER_CERT, SERVER_KEY] {
        let (folder, _) = directory();
        let path = folder.path().join(file);
        for broken in ["", "no PEM", "-----BEGIN CERTIFICATE-----\nAAAA\n"] {
            fs::write(&path, broken).expect("written");
            let why = refused(&folder, None);
            assert!(why.contains(file), "{broken:?}: {why}");
        }
        fs::remove_file(&path).expect("removed");
        assert!(refused(&folder, Some(true)).contains(&format!("{file} is not there")));
        fs::create_dir(&path).expect("made");
        assert!(refused(&folder, Some(true)).contains(file));
    }
}

#[test]
fn no_certificate_of_nothing_is_taken_for_one() {
    let (folder, _) = directory();
    let empty = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
    for (file, what) in [(CA_CERT, CA_CERT), (SERVER_CERT, SERVER_CERT)] {
        let path = folder.path().join(file);
        let before = fs::read(&path).expect("read");
        fs::write(&path, empty).expect("written");
        assert!(refused(&folder, None).contains(what));
        fs::write(&path, before).expect("written");
    }
    Identity::read(&tls(&folder, None)).expect("as it was");
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let (folder, authority) = directory();
    let other = tempfile::tempdir().expect("a folder");
    authority.write_server(other.path());
    fs::copy(other.path().join(SERVER_KEY), folder.path().join(SERVER_KEY)).expect("copied");
    let why = refused(&folder, None);
    assert!(why.contains(SERVER_KEY) && why.contains(SERVER_CERT), "{why}");
}

#[test]
fn a_broken_list_of_revoked_certificates_is_not_passed_over() {
    let (folder, _) = directory();
    fs::write(folder.path().join(CA_CRL), "no PEM").expect("written");
    assert!(refused(&folder, None).contains(CA_CRL));
}

#[test]
fn a_key_that_others_may_read_is_named() {
    let (folder, _) = directory();
    let key = folder.path().join(SERVER_KEY);
    for (mode, is_open) in [(0o600, false), (0o400, false), (0o640, true), (0o604, true)] {
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).expect("its mode");
        let identity = Identity::read(&tls(&folder, None)).expect("whole");
        assert_eq!(identity.open_key().is_some(), is_open, "{mode:o}");
    }
}

#[test]
fn files_that_have_changed_are_read_again_and_broken_ones_change_nothing() {
    let (folder, authority) = directory();
    let identity = Identity::read(&tls(&folder, None)).expect("whole");
    let first = identity.config();
    assert!(!identity.renew().expect("nothing has changed"));
    assert!(Arc::ptr_eq(&first, &identity.config()));

    fs::write(folder.path().join(SERVER_CERT), "half a certifi").expect("written");
    identity.renew().expect_err("a file is broken");
    assert!(Arc::ptr_eq(&first, &identity.config()), "what was read last is used");
    authority.write_server(folder.path());
    assert!(identity.renew().expect("whole again"));
    assert!(!Arc::ptr_eq(&first, &identity.config()));
    assert!(!identity.renew().expect("nothing has changed"));
}

#[test]
fn a_list_of_revoked_certificates_that_goes_lets_nobody_in() {
    let (folder, authority) = directory();
    let list = folder.path().join(CA_CRL);
    let identity = Identity::read(&tls(&folder, None)).expect("whole");
    for clients_are_revoked in [false, true] {
        // One that was not there at first, too.
        authority.write_list(folder.path(), clients_are_revoked);
        assert!(identity.renew().expect("whole"));
        let last = identity.config();
        fs::remove_file(&list).expect("removed");
        for _ in 0..2 {
            let error = identity.renew().expect_err("the list has gone");
            assert!(matches!(&error, TlsError::Missing(path) if *path == list), "{error}");
            assert!(error.cure().contains("put it there again"));
            authority.write_server(folder.path());
        }
        assert!(Arc::ptr_eq(&last, &identity.config()), "what was read last is used");
    }
}

#[test]
fn clients_are_asked_on_when_the_ca_goes() {
    let (folder, _) = directory();
    let identity = Identity::read(&tls(&folder, None)).expect("whole");
    fs::remove_file(folder.path().join(CA_CERT)).expect("removed");
    assert!(matches!(identity.renew(), Err(TlsError::Missing(_))));
    assert!(identity.asks_clients());
}
