//! Sizes and times for people.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Bytes in both families of units, as `399.00 MiB 418.38 MB`.
pub(super) fn both_sizes(bytes: u64) -> String {
    format!("{} {}", scaled(bytes, 1024, ["MiB", "GiB", "TiB"]), {
        scaled(bytes, 1000, ["MB", "GB", "TB"])
    })
}

/// The next unit from 2048 of the last one on: more digits where they matter.
fn scaled(bytes: u64, base: u64, units: [&str; 3]) -> String {
    let mut unit_bytes = base * base;
    let mut unit = units[0];
    for next in &units[1..] {
        if bytes / unit_bytes >= 2048 {
            unit_bytes *= base;
            unit = next;
        }
    }
    format!("{:.2} {unit}", bytes as f64 / unit_bytes as f64)
}

/// Local time as `ctime` prints it.
pub(super) fn local_time(seconds: u64) -> String {
    zoned_time(seconds, TimeZone::system())
}

pub(super) fn zoned_time(seconds: u64, zone: TimeZone) -> String {
    let timestamp = i64::try_from(seconds).ok().and_then(|s| Timestamp::from_second(s).ok());
    timestamp.map_or_else(
        || format!("@{seconds}"),
        |time| time.to_zoned(zone).strftime("%a %b %e %H:%M:%S %Y").to_string(),
    )
}
