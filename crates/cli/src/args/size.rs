//! Sizes as mdadm takes them.

use std::str::FromStr;

/// Bytes, from a number with K, M, G or T (binary); a bare number is KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size {
    pub(crate) bytes: u64,
}

impl Size {
    /// In 512-byte sectors. Exact: a size is a whole number of KiB.
    pub(crate) fn sectors(self) -> u64 {
        self.bytes / 512
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = bytes_of(text, 1 << 10)?;
        if !bytes.is_multiple_of(1024) {
            return Err("a size is a whole number of KiB".into());
        }
        Ok(Self { bytes })
    }
}

/// `text` as bytes; a bare number counts `bare_unit` bytes.
pub(crate) fn bytes_of(text: &str, bare_unit: u64) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" => bare_unit,
        "K" | "k" | "KiB" => 1 << 10,
        "M" | "m" | "MiB" => 1 << 20,
        "G" | "g" | "GiB" => 1 << 30,
        "T" | "t" | "TiB" => 1 << 40,
        other => return Err(format!("unknown unit {other:?}; K, M, G or T, which are binary")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{text:?} is not a size"))?;
    number
        .checked_mul(unit)
        .filter(|bytes| *bytes <= i64::MAX as u64)
        .ok_or_else(|| format!("{text:?} is too large"))
}

/// Bytes for people: the largest unit that divides them, else bytes.
pub(crate) fn short(bytes: u64) -> String {
    let units = [(1u64 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    units
        .iter()
        .find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit))
        .map_or_else(|| format!("{bytes}"), |(unit, letter)| format!("{}{letter}", bytes / unit))
}

#[cfg(test)]
mod tests;
