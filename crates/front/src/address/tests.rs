use super::*;

fn tcp(host: Option<&str>, port: u16, insecure: bool) -> Socket {
    Socket::Tcp { host: host.map(str::to_string), port, insecure }
}

#[test]
fn addresses_parse_and_print_alike() {
    let cases = [
        ("nbd:unix:/run/a.sock", Socket::Unix("/run/a.sock".into()), false),
        ("nbd:unix:/run/a b:c.sock?ro", Socket::Unix("/run/a b:c.sock".into()), true),
        ("nbd:tcp:10809", tcp(None, 10809, false), false),
        ("nbd:tcp:0?ro", tcp(None, 0, false), true),
        (
            "nbd:tcp:storage.example:10809?ro&insecure",
            tcp(Some("storage.example"), 10809, true),
            true,
        ),
        ("nbd:tcp:[::1]:10809", tcp(Some("::1"), 10809, false), false),
        ("nbd:tcp:0.0.0.0:1?insecure", tcp(Some("0.0.0.0"), 1, true), false),
    ];
    for (text, socket, read_only) in cases {
        let address = Address { socket, read_only };
        assert_eq!(Address::parse(text), Ok(address.clone()));
        assert_eq!(address.to_string(), text);
    }
}

#[test]
fn what_is_no_address_is_refused_with_the_reason() {
    let refused = |text: &str| Address::parse(text).expect_err(text);
    for text in ["", "nbd", "nbd:", "nbd:/a", "nbd:udp:1", "fuse:/mnt", "NBD:tcp:1"] {
        assert_eq!(refused(text), AddressError::Kind(text.into()));
    }
    for path in ["", "a.sock", "./a.sock"] {
        assert_eq!(refused(&format!("nbd:unix:{path}")), AddressError::RelativePath(path.into()));
    }
    for place in ["", "host", "host:", "65536", "-1", "host:http"] {
        assert_eq!(refused(&format!("nbd:tcp:{place}")), AddressError::Port(place.into()));
    }
    for host in ["", "::1", "[::1", "[host]", "a:b"] {
        assert_eq!(refused(&format!("nbd:tcp:{host}:1")), AddressError::Host(host.into()));
    }
    assert_eq!(refused("nbd:tcp:1?rw"), AddressError::Option("rw".into()));
    assert_eq!(refused("nbd:unix:/a?insecure"), AddressError::Option("insecure".into()));
}
