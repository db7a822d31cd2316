use std::net::TcpListener;

use super::*;

#[test]
fn a_lock_keeps_others_out_until_it_ends() {
    let name = format!("mdspace-test/{}/{}", std::process::id(), "x".repeat(4096));
    let lock = PlaceLock::take(&name).expect("a socket");
    assert!(lock.is_some());
    assert!(PlaceLock::take(&name).expect("a socket").is_none());
    assert!(PlaceLock::take(&(name.clone() + "y")).expect("a socket").is_some(), "another name");
    drop(lock);
    assert!(PlaceLock::take(&name).expect("a socket").is_some());
}

#[test]
fn those_who_share_a_place_keep_out_who_wants_it_alone_and_the_other_way_round() {
    let name = format!("mdspace-test/shared/{}/{}", std::process::id(), "x".repeat(200));
    let taken = |lock: io::Result<Option<PlaceLock>>| lock.expect("a socket");
    let alone = taken(PlaceLock::take(&name));
    assert!(alone.is_some() && taken(PlaceLock::share(&name)).is_none());
    drop(alone);
    let sharers: Vec<_> = (0..SHARERS_MAX).map(|_| taken(PlaceLock::share(&name))).collect();
    assert!(sharers.iter().all(Option::is_some));
    assert!(taken(PlaceLock::share(&name)).is_none(), "too many");
    assert!(taken(PlaceLock::take(&name)).is_none());
    let mut sharers = sharers.into_iter();
    drop(sharers.next());
    assert!(taken(PlaceLock::take(&name)).is_none(), "others share it still");
    drop(sharers);
    assert!(taken(PlaceLock::take(&name)).is_some());
}

#[test]
fn every_address_of_this_host_leads_to_one_place() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let here = ServerPlace::Here(port);
    assert_eq!(ServerPlace::at_the_end_of(&stream.into()).expect("connected"), here);
    for host in ["localhost", "127.0.0.1", "127.1.2.3"] {
        assert_eq!(ServerPlace::of_port(host, port), Some(here.clone()), "{host}");
    }
}

#[test]
fn a_link_to_a_socket_leads_to_the_socket() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (socket, link) = (folder.path().join("s"), folder.path().join("l"));
    let _listener = net::UnixListener::bind(&socket).expect("a socket");
    std::os::unix::fs::symlink(&socket, &link).expect("a link");
    let uri = |path: &Path| format!("nbd+unix:///x?socket={}", path.display());
    let place = ServerPlace::of_member(&uri(&socket));
    assert!(place.is_some());
    assert_eq!(ServerPlace::of_member(&uri(&link)), place);
    assert_eq!(ServerPlace::of_member("/dev/null"), None);
}
