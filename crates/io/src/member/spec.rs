//! How a member is named: a path, `ram:SIZE`, or `null:SIZE?key=value`.

use std::path::PathBuf;
use std::time::Duration;

use super::Null;

/// What a member's name asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Spec {
    Path(PathBuf),
    Ram { bytes: u64 },
    Null { bytes: u64, null: Null },
}

impl Spec {
    /// Reads a name. Sizes are bytes, or end in K, M, G or T (binary); times end in ns, us, ms or s.
    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        if let Some(size) = name.strip_prefix("ram:") {
            return Ok(Self::Ram { bytes: size_bytes(size)? });
        }
        let Some(rest) = name.strip_prefix("null:") else {
            return Ok(Self::Path(name.into()));
        };
        let (size, options) = rest.split_once('?').unwrap_or((rest, ""));
        let mut null = Null::default();
        for option in options.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("latency", value)) => null.latency = span(value)?,
                _ => return Err(format!("'{option}' is not an option of null: (latency=TIME is)")),
            }
        }
        Ok(Self::Null { bytes: size_bytes(size)?, null })
    }
}

fn size_bytes(text: &str) -> Result<u64, String> {
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

fn span(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit_nanos = match &text[digits.len()..] {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err(format!("'{text}' is not a time: say 800ns, 50us, 10ms or 1s")),
    };
    let nanos = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(unit_nanos));
    nanos.map(Duration::from_nanos).ok_or_else(|| format!("'{text}' is not a time"))
}

#[cfg(test)]
mod tests;
