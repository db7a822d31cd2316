//! Sizes and times for people.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Bytes in both families of units, as `399.00 MiB 418.38 MB`.
pub(crate) fn both_sizes(bytes: u64) -> String {
    let power = power(bytes);
    let binary = ["MiB", "GiB", "TiB"][power as usize - 2];
    format!(
        "{} {binary} {} {}",
        scaled(bytes, 1024, power),
        scaled(bytes, 1000, power),
        unit(power)
    )
}

/// Bytes in decimal units without a space, as `418.38MB`; empty below 5000 KiB.
pub(crate) fn brief_size(bytes: u64) -> String {
    if bytes < 5000 << 10 {
        return String::new();
    }
    format!("{}{}", scaled(bytes, 1000, power(bytes)), unit(power(bytes)))
}

/// Mega, giga or tera: the next one from 2048 binary ones of the last on, for more digits.
fn power(bytes: u64) -> u32 {
    match bytes >> 30 {
        0..2 => 2,
        2..2048 => 3,
        _ => 4,
    }
}

fn unit(power: u32) -> &'static str {
    ["MB", "GB", "TB"][power as usize - 2]
}

/// Two decimals, the last one rounded.
fn scaled(bytes: u64, base: u64, power: u32) -> String {
    let hundredths = (u128::from(bytes) * 200 / u128::from(base.pow(power))).div_ceil(2);
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// Local time as `ctime` prints it.
pub(crate) fn local_time(seconds: u64) -> String {
    zoned_time(seconds, TimeZone::system())
}

pub(crate) fn zoned_time(seconds: u64, zone: TimeZone) -> String {
    let timestamp = i64::try_from(seconds).ok().and_then(|s| Timestamp::from_second(s).ok());
    timestamp.map_or_else(
        || format!("@{seconds}"),
        |time| time.to_zoned(zone).strftime("%a %b %e %H:%M:%S %Y").to_string(),
    )
}
