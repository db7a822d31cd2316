//! How a member is named: a path, `ram:SIZE`, `null:SIZE?key=value`, `null:PRESET?key=value`,
//! `nbd://HOST:PORT/EXPORT`, `nbd+unix:///PATH` or `multipath:FILE.toml`.

use std::path::PathBuf;
use std::time::Duration;

use super::nbd::Uri;
use super::null::{self, Drive};
use super::path_name::path_of_name;

/// What a member's name asks for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Spec {
    Path(PathBuf),
    Ram { bytes: u64 },
    Null { bytes: u64, drive: Box<Drive> },
    Nbd(Uri),
    Multipath { file: PathBuf },
}

impl Spec {
    /// Reads a name. Sizes are bytes, or end in K, M, G or T (binary); times end in ns, us, ms or s.
    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        if let Some(size) = name.strip_prefix("ram:") {
            return Ok(Self::Ram { bytes: size_bytes(size)? });
        }
        match name.strip_prefix("multipath:") {
            Some("") => return Err("a file is missing: multipath:FILE.toml".into()),
            Some(file) => return Ok(Self::Multipath { file: path_of_name(file) }),
            None => {}
        }
        if Uri::is_meant(name) {
            return Uri::parse(name).map(Self::Nbd);
        }
        let Some(rest) = name.strip_prefix("null:") else {
            return Ok(Self::Path(path_of_name(name)));
        };
        let (bytes, drive) = null::parse(rest)?;
        Ok(Self::Null { bytes, drive: Box::new(drive) })
    }
}

/// Whether a member may be called `name`; why not, and what would be right. Opens nothing.
pub fn check_name(name: &str) -> Result<(), String> {
    Spec::parse(name).map(drop)
}

/// Whether a member of this name is behind a network.
pub fn is_remote(name: &str) -> bool {
    Uri::is_meant(name)
}

pub(super) fn size_bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a size: say bytes, or 64K, 256M, 10G, 1T");
    let digits = text.trim_end_matches(['K', 'M', 'G', 'T']);
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(wrong()),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(1 << shift));
    match bytes {
        Some(bytes) if bytes > 0 && bytes % 512 == 0 && i64::try_from(bytes).is_ok() => Ok(bytes),
        Some(_) => Err(format!("'{text}' is not a whole number of 512-byte sectors")),
        None => Err(wrong()),
    }
}

/// Reads a time: a number, with a fraction or not, and ns, us, ms or s.
pub(super) fn span(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_nanos = match &text[digits.len()..] {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err(format!("'{text}' is not a time: say 800ns, 50us, 10ms or 1s")),
    };
    let wrong = || format!("'{text}' is not a time");
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    if !fraction.bytes().all(|digit| digit.is_ascii_digit()) || fraction.len() > 9 {
        return Err(wrong());
    }
    let whole = whole.parse::<u64>().ok().and_then(|count| count.checked_mul(unit_nanos));
    let parts: u64 = fraction.parse().map_err(|_| wrong())?;
    let parts = parts * unit_nanos / 10u64.pow(fraction.len() as u32);
    let nanos = whole.and_then(|nanos| nanos.checked_add(parts));
    nanos.map(Duration::from_nanos).ok_or_else(wrong)
}

#[cfg(test)]
mod tests;
