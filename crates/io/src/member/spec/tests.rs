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
fn a_null_member_is_a_size_or_a_preset_with_keys() {
    let bytes = |name: &str| match Spec::parse(name) {
        Ok(Spec::Null { bytes, .. }) => bytes,
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!(bytes("null:1M"), 1 << 20);
    assert_eq!(bytes("null:2G?latency=10ms&"), 2 << 30);
    assert_eq!(bytes("null:hdd"), 1 << 30);
    assert_eq!(bytes("null:nvme?size=64G&hang=1e-6"), 64 << 30);
}

#[test]
fn times_are_numbers_with_a_unit() {
    let times = [
        ("800ns", Duration::from_nanos(800)),
        ("50us", Duration::from_micros(50)),
        ("7.8ms", Duration::from_micros(7800)),
        ("2s", Duration::from_secs(2)),
        ("0us", Duration::ZERO),
    ];
    for (text, time) in times {
        assert_eq!(span(text), Ok(time), "{text}");
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
        "null:floppy",
        "null:?latency=1ms",
    ];
    for name in wrong {
        assert!(Spec::parse(name).is_err(), "{name}");
    }
}
