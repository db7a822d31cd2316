//! Paths as text: names of members go through configurations, messages and terminals, which take UTF-8 alone.
//!
//! A byte that is no part of UTF-8 is written `\\xNN`. A backslash stays as it is, for udev's links have
//! many (`my\\x20disk`), but where it would be read as such a byte: there it is `\\x5c`.

use std::ffi::OsString;
use std::fmt::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The text that [`path_of_name`] takes for `path`.
pub fn name_of_path(path: &Path) -> String {
    let mut name = String::new();
    let mut rest = path.as_os_str().as_bytes();
    while !rest.is_empty() {
        let valid = match std::str::from_utf8(rest) {
            Ok(text) => text,
            Err(error) => str::from_utf8(&rest[..error.valid_up_to()]).unwrap_or_default(),
        };
        for (at, c) in valid.char_indices() {
            match c == '\\' && escaped(&rest[at..]).is_some() {
                true => name.push_str("\\x5c"),
                false => name.push(c),
            }
        }
        rest = &rest[valid.len()..];
        if let Some((byte, behind)) = rest.split_first() {
            write!(name, "\\x{byte:02x}").expect("a String takes all that is written");
            rest = behind;
        }
    }
    name
}

/// The path that a name means.
pub fn path_of_name(name: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let (byte, behind) = match escaped(rest) {
            Some(byte) => (byte, &rest[4..]),
            None => (*first, behind),
        };
        bytes.push(byte);
        rest = behind;
    }
    OsString::from_vec(bytes).into()
}

/// The byte for which `\\xNN` stands at the start of a text: one that UTF-8 has in no ASCII character, or a
/// backslash.
fn escaped(text: &[u8]) -> Option<u8> {
    let digits = text.strip_prefix(b"\\x")?.get(..2)?;
    let digits = str::from_utf8(digits).ok()?;
    let is_ours = digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    let byte = u8::from_str_radix(digits, 16).ok().filter(|_| is_ours)?;
    (byte >= 0x80 || byte == b'\\').then_some(byte)
}

#[cfg(test)]
mod tests;
