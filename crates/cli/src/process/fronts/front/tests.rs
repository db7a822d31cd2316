use super::*;

#[test]
fn each_reason_not_to_listen_has_its_own_cure() {
    let cure = |front: &str, kind: io::ErrorKind| {
        let front: Address = front.parse().expect("an address");
        let error = ListenError::Io { front: front.clone().into(), source: kind.into() };
        cure(&front, &error)
    };
    let denied = io::ErrorKind::PermissionDenied;
    assert!(cure("nbd:tcp:80", denied).contains("below 1024"));
    assert!(!cure("nbd:tcp:10809", denied).contains("below 1024"));
    assert!(cure("nbd:unix:/root/socket", denied).contains("folder"));
    assert!(cure("nbd:tcp:10809", io::ErrorKind::AddrInUse).contains("another port"));
    assert!(
        cure("nbd:tcp:192.0.2.1:10809", io::ErrorKind::AddrNotAvailable).contains("ip address")
    );
}
