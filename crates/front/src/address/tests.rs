use std::os::unix::ffi::OsStrExt;

use super::*;

fn tcp(host: Option<&str>, port: u16, insecure: bool) -> Endpoint {
    Endpoint::Nbd(Socket::Tcp { host: host.map(str::to_string), port, insecure, tls: None })
}

fn unix(path: &str) -> Endpoint {
    Endpoint::Nbd(Socket::Unix(path.into()))
}

#[test]
fn addresses_parse_and_print_alike() {
    let cases = [
        ("nbd:unix:/run/a.sock", unix("/run/a.sock"), false),
        ("nbd:unix:/run/a b:c.sock?ro", unix("/run/a b:c.sock"), true),
        ("nbd:tcp:10809", tcp(None, 10809, false), false),
        ("nbd:tcp:0?ro", tcp(None, 0, false), true),
        (
            "nbd:tcp:storage.example:10809?ro&insecure",
            tcp(Some("storage.example"), 10809, true),
            true,
        ),
        ("nbd:tcp:[::1]:10809", tcp(Some("::1"), 10809, false), false),
        ("nbd:tcp:0.0.0.0:1?insecure", tcp(Some("0.0.0.0"), 1, true), false),
        ("fuse:/mnt/a b", Endpoint::Fuse("/mnt/a b".into()), false),
        ("vhost-user:/run/vm:1?ro", Endpoint::VhostUser("/run/vm:1".into()), true),
        ("loop?ro", Endpoint::Loop, true),
        ("nbd-device?ro", Endpoint::NbdDevice, true),
        ("block", Endpoint::Block, false),
    ];
    for (text, endpoint, read_only) in cases {
        let address = Address { endpoint, read_only, shared: false, rights: Rights::default() };
        assert_eq!(Address::parse(text), Ok(address.clone()));
        assert_eq!(address.to_string(), text);
    }
}

#[test]
fn tls_of_a_port_parses_and_prints_alike() {
    let cases = [("", None), ("&tls-verify", Some(true)), ("&tls-verify=off", Some(false))];
    for (options, verify) in cases {
        let text = format!("nbd:tcp:10809?ro&tls=/etc/pki/a b{options}");
        let address = Address::parse(&text).expect("an address");
        let Endpoint::Nbd(Socket::Tcp { tls, .. }) = &address.endpoint else { panic!("a port") };
        assert_eq!(tls, &Some(Tls { directory: "/etc/pki/a b".into(), verify, needs_list: false }));
        assert_eq!(address.to_string(), text);
        let plain = Address::parse("nbd:tcp:10809").expect("an address");
        assert!(address.is_where(&plain) && plain.is_where(&address));
    }
    let on = Address::parse("nbd:tcp:1?tls-verify=on&tls=/a").map(|address| address.to_string());
    assert_eq!(on.as_deref(), Ok("nbd:tcp:1?tls=/a&tls-verify"));
    let here = std::env::current_dir().expect("a directory").join("pki");
    let typed = Address::parse_here("nbd:tcp:1?tls=pki").expect("an address").to_string();
    assert_eq!(typed, format!("nbd:tcp:1?tls={}", here.display()));

    let refused = |text| Address::parse(text).expect_err("must be refused");
    assert_eq!(refused("nbd:tcp:1?tls=pki"), AddressError::RelativePath("pki".into()));
    assert_eq!(refused("nbd:tcp:1?tls="), AddressError::RelativePath(String::new()));
    assert_eq!(refused("nbd:tcp:1?tls-verify"), AddressError::VerifyWithoutTls);
    assert_eq!(refused("nbd:tcp:1?tls-crl"), AddressError::VerifyWithoutTls);
    let unasked = refused("nbd:tcp:1?tls=/a&tls-verify=off&tls-crl");
    assert_eq!(unasked, AddressError::ListWithoutVerify);
    let listed = "nbd:tcp:1?tls=/a&tls-verify&tls-crl";
    assert_eq!(Address::parse(listed).map(|address| address.to_string()).as_deref(), Ok(listed));
    assert_eq!(refused("nbd:tcp:1?tls=/a&tls=/b"), AddressError::Option("tls=/b".into()));
    assert_eq!(refused("nbd:tcp:1?tls"), AddressError::Option("tls".into()));
    assert_eq!(refused("nbd:unix:/s?tls=/a"), AddressError::Option("tls=/a".into()));
}

#[test]
fn clients_find_a_front_by_its_uri() {
    let uri = |text| Address::parse(text).expect("an address").uri("data");
    let found = |text| uri(text).expect("a server of NBD");
    assert_eq!(found("nbd:unix:/run/a b%.sock?ro"), "nbd+unix:///?socket=/run/a%20b%25.sock");
    assert_eq!(found("nbd:tcp:10809"), "nbd://localhost:10809");
    assert_eq!(found("nbd:tcp:[::1]:10809?tls=/a"), "nbds://[::1]:10809");
    assert_eq!(found("nbd:tcp:store-a:1?insecure&tls=/a"), "nbds://store-a:1");
    let all = found("nbd:tcp:0.0.0.0:1?tls=/a");
    assert!(all.starts_with("nbds://") && !all.contains("0.0.0.0"), "{all}");
    assert_eq!(uri("loop"), None);
    assert_eq!(found("nbd:tcp:10809?shared"), "nbd://localhost:10809/data");
    assert_eq!(found("nbd:unix:/s?shared"), "nbd+unix:///data?socket=/s");
}

#[test]
fn an_address_that_several_arrays_share_is_told_from_others() {
    for text in
        ["nbd:tcp:10809?shared", "nbd:tcp:a:1?ro&shared&insecure", "nbd:unix:/s?shared&mode=0660"]
    {
        let address = Address::parse(text).expect("an address");
        assert!(address.shared);
        assert_eq!(address.to_string(), text);
        let alone = Address { shared: false, ..address.clone() };
        assert!(address.is_where(&alone), "`unserve` needs no option");
    }
    let refused = |text: &str| Address::parse(text).expect_err("must be refused");
    assert_eq!(refused("nbd:tcp:1?shared&tls=/a"), AddressError::SharedTls);
    assert_eq!(refused("nbd:tcp:0?shared"), AddressError::SharedPort);
    for front in ["vhost-user:/a", "fuse:/a", "loop", "nbd-device", "block"] {
        assert_eq!(refused(&format!("{front}?shared")), AddressError::Option("shared".into()));
    }
}

#[test]
fn rights_of_a_socket_parse_and_print_alike() {
    for options in ["mode=0660&group=libvirt-qemu", "ro&mode=0666&owner=64055&group=0", "owner=a.b"]
    {
        for socket in ["nbd:unix:/a", "vhost-user:/a"] {
            let text = format!("{socket}?{options}");
            assert_eq!(Address::parse(&text).map(|address| address.to_string()), Ok(text));
        }
    }
    let refused =
        ["mode=", "mode=888", "mode=1777", "mode=+7", "mode=rw", "owner=", "group=a b", "group=-1"];
    for option in refused.into_iter().chain(["user=a", "mode"]) {
        let told = AddressError::Option(option.into());
        assert_eq!(Address::parse(&format!("nbd:unix:/a?{option}")), Err(told));
    }
    let twice = AddressError::Option("group=b".into());
    assert_eq!(Address::parse("nbd:unix:/a?group=a&group=b"), Err(twice));
    for front in ["nbd:tcp:1", "fuse:/a", "loop", "nbd-device", "block"] {
        let told = AddressError::Option("mode=0660".into());
        assert_eq!(Address::parse(&format!("{front}?mode=0660")), Err(told));
    }
}

#[test]
fn a_path_that_a_user_types_may_begin_in_the_current_directory() {
    let here = std::env::current_dir().expect("a directory");
    for (path, whole) in
        [("a.sock", here.join("a.sock")), ("./n/b", here.join("n/b")), ("/a", "/a".into())]
    {
        let socket = Address::parse_here(&format!("nbd:unix:{path}?ro")).expect("an address");
        assert_eq!(socket.endpoint, Endpoint::Nbd(Socket::Unix(whole.clone())));
        let disk = Address::parse_here(&format!("vhost-user:{path}")).expect("an address");
        assert_eq!(disk.endpoint, Endpoint::VhostUser(whole.clone()));
        let file = Address::parse_here(&format!("fuse:{path}")).expect("an address");
        assert_eq!(file.endpoint, Endpoint::Fuse(whole));
    }
    assert!(Address::parse_here("fuse:").is_err(), "no path at all");
}

/// The current directory, of which a user who types a relative path says nothing, is part of the text. A test cannot
/// change it: other tests are in it too.
#[test]
fn an_address_whose_text_would_be_another_one_is_not_taken() {
    let folders: [&[u8]; 4] = [b"/srv/R&D", b"/srv/R&ro", b"/srv/what?", b"/srv/\xff"];
    for folder in folders {
        let folder = Path::new(std::ffi::OsStr::from_bytes(folder));
        for front in ["nbd:tcp:1?tls=pki", "nbd:unix:a.sock", "fuse:mnt", "vhost-user:a.sock"] {
            let end_of_path = if front.contains("tls=") { '&' } else { '?' };
            let can_be_written = folder.to_str().is_some_and(|text| !text.contains(end_of_path));
            match Address::parse_in(folder, front) {
                Ok(address) => {
                    assert!(can_be_written, "{address}");
                    assert_eq!(Address::parse(&address.to_string()), Ok(address));
                }
                Err(refused) => {
                    assert!(!can_be_written, "{refused}");
                    assert!(matches!(refused, AddressError::Unwritable(_)), "{refused}");
                }
            }
        }
    }
}

#[test]
fn what_is_no_address_is_refused_with_the_reason() {
    let refused = |text: &str| Address::parse(text).expect_err(text);
    for text in [
        "",
        "nbd",
        "nbd:",
        "nbd:/a",
        "nbd:udp:1",
        "vhost-user",
        "fuse",
        "loop:",
        "nbd-device:0",
        "block:/dev/a",
        "NBD:tcp:1",
    ] {
        assert_eq!(refused(text), AddressError::Kind(text.into()));
    }
    for path in ["", "a.sock", "./a.sock"] {
        for front in ["nbd:unix", "vhost-user", "fuse"] {
            let relative = AddressError::RelativePath(path.into());
            assert_eq!(refused(&format!("{front}:{path}")), relative);
        }
    }
    for place in ["", "host", "host:", "65536", "-1", "host:http"] {
        assert_eq!(refused(&format!("nbd:tcp:{place}")), AddressError::Port(place.into()));
    }
    for host in ["", "::1", "[::1", "[host]", "a:b"] {
        assert_eq!(refused(&format!("nbd:tcp:{host}:1")), AddressError::Host(host.into()));
    }
    assert_eq!(refused("nbd:tcp:1?rw"), AddressError::Option("rw".into()));
    for front in ["nbd:unix:/a", "vhost-user:/a", "fuse:/a", "loop", "nbd-device", "block"] {
        let option = AddressError::Option("insecure".into());
        assert_eq!(refused(&format!("{front}?insecure")), option);
    }
}
