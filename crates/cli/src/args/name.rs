//! Names of arrays.

use std::fmt;
use std::str::FromStr;

/// Bytes of `set_name` in the superblock.
const NAME_BYTES_MAX: usize = 32;

/// What an array is called on this host: `[A-Za-z0-9_.-]`, never a path, never an option.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ArrayName(String);

impl ArrayName {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ArrayName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        if text.is_empty() || text.len() > NAME_BYTES_MAX {
            return Err(format!("a name has 1 to {NAME_BYTES_MAX} bytes"));
        }
        if text.starts_with(['.', '-']) || !text.chars().all(allowed) {
            return Err("a name has letters, digits, _ . and -, and starts with none of . -".into());
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for ArrayName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests;
