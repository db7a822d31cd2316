//! The words of `null:`, right and wrong.

use super::*;

fn drive(text: &str) -> Drive {
    parse(text).unwrap_or_else(|why| panic!("{text}: {why}")).1
}

#[test]
fn a_size_alone_takes_no_time() {
    let (bytes, drive) = parse("3M").unwrap();
    assert_eq!(bytes, 3 << 20);
    assert!(drive == Drive::default() && drive.is_immediate());
    // What bounds nothing changes nothing.
    for options in ["queues=2", "queue_depth=1", "memory_backed=1", "seed=9", "limp_factor=2"] {
        assert!(self::drive(&format!("3M?{options}")).is_immediate(), "{options}");
    }
    for options in ["latency=1ns", "write_iops=5", "read_bandwidth=1G", "error=1e-9", "hang=1"] {
        assert!(!self::drive(&format!("3M?{options}")).is_immediate(), "{options}");
    }
}

#[test]
fn a_preset_is_the_keys_that_it_stands_for() {
    for preset in null_presets() {
        assert_eq!(parse(preset.name), parse(&format!("1G?{}", preset.takes)), "{}", preset.name);
        assert!(!drive(preset.name).is_immediate());
    }
    assert!(drive("hdd").is_rotational() && !drive("nvme").is_rotational());
}

#[test]
fn keys_override_a_presets() {
    let (bytes, drive) = parse("nvme?size=64G&read_latency=1ms&queues=8").unwrap();
    assert_eq!((bytes, drive.queues), (64 << 30, 8));
    assert_eq!(drive.read.latency, Duration::from_millis(1));
    assert_eq!(drive.write, self::drive("nvme").write);
    assert!(!self::drive("hdd?rpm=0").is_rotational());
    assert_eq!(self::drive("sata-ssd?distribution=constant").spread, Spread::Constant);
}

#[test]
fn every_key_says_what_it_takes_when_it_is_given_something_else() {
    for key in null_keys() {
        let why = parse(&format!("1G?{}=nonsense", key.name)).unwrap_err();
        assert!(why.contains(key.name) && why.contains(key.takes), "{why}");
    }
    let why = parse("1G?speed=9").unwrap_err();
    assert!(why.contains("'speed'") && null_keys().all(|key| why.contains(key.name)), "{why}");
    let why = parse("floppy").unwrap_err();
    assert!(null_presets().all(|preset| why.contains(preset.name)), "{why}");
}

#[test]
fn values_out_of_range_are_refused() {
    let wrong = [
        "latency=5",
        "latency=61m",
        "latency=3601s",
        "latency=-1us",
        "latency=1.2.3us",
        "latency=1.0000000001s",
        "latency",
        "p99=0.9",
        "p99=15",
        "p99=NaN",
        "bandwidth=999999",
        "bandwidth=2T",
        "bandwidth=0MB",
        "bandwidth=99999999999999999999MB",
        "read_iops=0",
        "queue_depth=0",
        "queue_depth=65537",
        "queues=0",
        "rpm=59",
        "rpm=-1",
        "memory_backed=2",
        "seed=-1",
        "error=1.1",
        "error=-0.1",
        "limp_factor=0.5",
        "size=0",
        "size=513",
        // A disk without a rate; tracks further apart than places.
        "rpm=7200",
        "rpm=7200&bandwidth=255MB&seek=1ms&track_seek=2ms",
    ];
    for options in wrong {
        assert!(parse(&format!("1G?{options}")).is_err(), "{options}");
    }
}

#[test]
fn times_and_rates_are_read_to_the_last_digit() {
    assert_eq!(drive("1G?latency=7.8ms").read.latency, Duration::from_micros(7800));
    assert_eq!(drive("1G?latency=0.5us").read.latency, Duration::from_nanos(500));
    assert_eq!(drive("1G?latency=3600s").flush_latency, Duration::from_secs(3600));
    assert_eq!(drive("1G?bandwidth=500MB").write.bytes_per_second, Some(500_000_000));
    assert_eq!(drive("1G?bandwidth=500M").read.bytes_per_second, Some(500 << 20));
    assert_eq!(drive("1G?bandwidth=7GB").read.bytes_per_second, Some(7_000_000_000));
}
