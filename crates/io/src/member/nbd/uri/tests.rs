use super::*;

fn parsed(name: &str) -> (Server, String) {
    let uri = Uri::parse(name).expect(name);
    (uri.server, uri.export)
}

fn tcp(host: &str, port: u16) -> Server {
    Server::Tcp { host: host.into(), port }
}

#[test]
fn every_form_names_a_server_and_an_export() {
    let unix = |path: &str| Server::Unix(path.into());
    assert_eq!(parsed("nbd+unix:///run/a.sock"), (unix("/run/a.sock"), "".into()));
    assert_eq!(parsed("nbd+unix:///?socket=/run/a"), (unix("/run/a"), "".into()));
    assert_eq!(parsed("nbd+unix:///disk?socket=/run/a%20b"), (unix("/run/a b"), "disk".into()));
    assert_eq!(parsed("nbd+unix:///d%3Fisk?socket=a.sock"), (unix("a.sock"), "d?isk".into()));
    assert_eq!(parsed("nbd://host"), (tcp("host", 10809), "".into()));
    assert_eq!(parsed("nbd://host:1/data/x"), (tcp("host", 1), "data/x".into()));
    assert_eq!(parsed("nbd://[::1]:20/data"), (tcp("::1", 20), "data".into()));
    assert_eq!(parsed("nbd://[::1]/"), (tcp("::1", 10809), "".into()));
}

#[test]
fn what_is_no_address_is_refused() {
    let names = [
        "nbd+unix://run/a.sock",
        "nbd+unix:///",
        "nbd+unix:///a?socket=",
        "nbd+unix:///a?tls=1",
        "nbd+unix:///a%2",
        "nbd+unix:///a%zz",
        "nbd+unix:///a%00b",
        "nbd://",
        "nbd://:10809/a",
        "nbd://host:0/a",
        "nbd://host:x/a",
        "nbd://host:99999/a",
        "nbd://[::1]x/a",
        "nbd://host/a?socket=b",
        "nbds://host/a",
        "nbd+vsock://1/a",
    ];
    for name in names {
        assert!(Uri::is_meant(name) && Uri::parse(name).is_err(), "{name}");
    }
    let long = format!("nbd://host/{}", "a".repeat(STRING_BYTES_MAX + 1));
    assert!(Uri::parse(&long).is_err());
    assert!(!Uri::is_meant("nbd.img") && !Uri::is_meant("/dev/nbd0"));
}
