//! Names of members, right and wrong.

use super::*;

#[test]
fn a_name_without_a_scheme_is_a_path() {
    for path in ["/dev/sda", "image.img", "./ram:1M", "a?b=c"] {
        assert_eq!(Spec::parse(path), Ok(Spec::Path(path.into())));
    }
}

#[test]
fn sizes_are_bytes_or_binary_units() {
    let sizes =
        [("512", 512), ("64K", 64 << 10), ("3M", 3 << 20), ("2G", 2 << 30), ("1T", 1 << 40)];
    for (text, bytes) in sizes {
        assert_eq!(Spec::parse(&format!("ram:{text}")), Ok(Spec::Ram { bytes }));
    }
}

#[test]
fn a_null_member_has_a_latency() {
    let latencies = [
        ("null:1M", Duration::ZERO),
        ("null:1M?latency=800ns", Duration::from_nanos(800)),
        ("null:1M?latency=50us", Duration::from_micros(50)),
        ("null:1M?latency=10ms&", Duration::from_millis(10)),
        ("null:1M?latency=2s", Duration::from_secs(2)),
    ];
    for (name, latency) in latencies {
        let null = Null { latency };
        assert_eq!(Spec::parse(name), Ok(Spec::Null { bytes: 1 << 20, null }), "{name}");
    }
}

#[test]
fn what_means_nothing_is_refused() {
    let wrong = [
        "ram:",
        "ram:0",
        "ram:1",
        "ram:513",
        "ram:K",
        "ram:1KK",
        "ram:-1",
        "ram:1.5M",
        "ram:1 M",
        "ram:9999999999999T",
        "ram:16777216T",
        "null:",
        "null:1M?latency",
        "null:1M?latency=5",
        "null:1M?latency=ms",
        "null:1M?latency=99999999999999999999s",
        "null:1M?speed=9ms",
    ];
    for name in wrong {
        assert!(Spec::parse(name).is_err(), "{name}");
    }
}
