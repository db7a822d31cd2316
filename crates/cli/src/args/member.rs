//! What a user may call a member.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::size::{bytes_of, short};

/// One MEMBER on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MemberSpec {
    /// A file or a block device.
    Path(PathBuf),
    /// Memory of the serving process, zeroes at first, gone with it: for tests and benchmarks.
    Ram {
        /// Size of the member.
        bytes: u64,
    },
    /// Takes every write and reads as zeroes: for benchmarks of the array alone.
    Null {
        /// Size of the member.
        bytes: u64,
        /// `key=value` after `?`, in the user's order.
        options: Vec<(String, String)>,
    },
}

/// One place of `create`: a member, or mdadm's word `missing`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MemberOrMissing {
    /// A member.
    Member(MemberSpec),
    /// A slot that stays empty for now.
    Missing,
}

impl FromStr for MemberSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(size) = text.strip_prefix("ram:") {
            return Ok(Self::Ram { bytes: member_bytes(size)? });
        }
        if let Some(rest) = text.strip_prefix("null:") {
            let (size, options) = rest.split_once('?').unwrap_or((rest, ""));
            return Ok(Self::Null { bytes: member_bytes(size)?, options: key_values(options)? });
        }
        match text {
            "" => Err("an empty word is no member".into()),
            "missing" => Err("the word missing is a member of create only".into()),
            path => Ok(Self::Path(PathBuf::from(path))),
        }
    }
}

impl fmt::Display for MemberSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Ram { bytes } => write!(f, "ram:{}", short(*bytes)),
            Self::Null { bytes, options } => {
                write!(f, "null:{}", short(*bytes))?;
                for (i, (key, value)) in options.iter().enumerate() {
                    write!(f, "{}{key}={value}", if i == 0 { '?' } else { '&' })?;
                }
                Ok(())
            }
        }
    }
}

impl FromStr for MemberOrMissing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "missing" => Ok(Self::Missing),
            other => other.parse().map(Self::Member),
        }
    }
}

fn member_bytes(text: &str) -> Result<u64, String> {
    let bytes = bytes_of(text, 1)?;
    if bytes == 0 || !bytes.is_multiple_of(4096) {
        return Err(format!("a member of {text} is no whole number of 4 KiB blocks"));
    }
    Ok(bytes)
}

fn key_values(text: &str) -> Result<Vec<(String, String)>, String> {
    text.split('&')
        .filter(|part| !part.is_empty())
        .map(|part| match part.split_once('=') {
            Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
            None => Err(format!("{part:?} is not key=value")),
        })
        .collect()
}

#[cfg(test)]
mod tests;
