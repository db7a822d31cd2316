//! Spans of time as users write them.

use std::str::FromStr;
use std::time::Duration;

/// At least a second and at most a year: `90m`, `2h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

const YEAR_S: u64 = 366 * 24 * 3600;

impl FromStr for Span {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WANTED: &str = "a span is a whole number and its unit, s, m, h or d, up to a year";
        let unit_s = match text.bytes().last() {
            Some(b's') => 1,
            Some(b'm') => 60,
            Some(b'h') => 3600,
            Some(b'd') => 24 * 3600,
            _ => return Err(WANTED),
        };
        let count: u64 = text[..text.len() - 1].parse().map_err(|_| WANTED)?;
        let seconds = count.checked_mul(unit_s).filter(|s| (1..=YEAR_S).contains(s));
        seconds.map(|seconds| Self(Duration::from_secs(seconds))).ok_or(WANTED)
    }
}

#[cfg(test)]
mod tests;
