//! What a user may call a member.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{OsStringValueParser, TryMapValueParser, TypedValueParser, ValueParserFactory};
use mdspace_io::{name_of_path, path_of_name};

use crate::failure::Failure;

use super::size::{bytes_of, short};

type WordParser<T> = TryMapValueParser<OsStringValueParser, fn(OsString) -> Result<T, String>>;

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
    /// A model of a device that keeps no data, in the user's words after `null:`.
    Null(String),
    /// An export of an NBD server, in the user's words.
    Nbd(String),
    /// A file that describes paths to one device.
    Multipath(PathBuf),
}

/// One place of `create`: a member, or mdadm's word `missing`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MemberOrMissing {
    /// A member.
    Member(MemberSpec),
    /// A slot that stays empty for now.
    Missing,
}

impl MemberOrMissing {
    /// The member, if there is one.
    pub(crate) fn member(&self) -> Option<&MemberSpec> {
        match self {
            Self::Member(member) => Some(member),
            Self::Missing => None,
        }
    }
}

impl MemberSpec {
    /// The words that the serving process knows it by, with a path from the root, links kept
    /// (`/dev/disk/by-id/...` says more than `/dev/sdb`): the member may be gone, and the process has another
    /// working directory.
    pub(crate) fn absolute(&self) -> Result<String, Failure> {
        let absolute = |path: &PathBuf| {
            let found = std::path::absolute(path);
            found.map_err(|error| not_a_member(&name_of_path(path), error))
        };
        match self {
            Self::Path(path) => absolute(path).map(|path| name_of_path(&path)),
            Self::Multipath(file) => {
                absolute(file).map(|file| format!("multipath:{}", name_of_path(&file)))
            }
            other => Ok(other.to_string()),
        }
    }

    /// The same of a word that may not be a member's.
    pub(crate) fn absolute_of(word: &str) -> Result<String, Failure> {
        word.parse::<Self>().map_err(|error| not_a_member(word, error))?.absolute()
    }
}

fn not_a_member(word: &str, error: impl ToString) -> Failure {
    Failure::new(format!("{word:?} is no member"), error, "give a file or a block device")
}

/// Of the command line, where paths are bytes.
impl ValueParserFactory for MemberSpec {
    type Parser = WordParser<Self>;

    fn value_parser() -> Self::Parser {
        OsStringValueParser::new().try_map(parsed as fn(_) -> _)
    }
}

impl ValueParserFactory for MemberOrMissing {
    type Parser = WordParser<Self>;

    fn value_parser() -> Self::Parser {
        OsStringValueParser::new().try_map(parsed as fn(_) -> _)
    }
}

fn parsed<T: FromStr>(word: OsString) -> Result<T, T::Err> {
    name_of_path(word.as_ref()).parse()
}

/// Of a name, as [`name_of_path`] writes it.
impl FromStr for MemberSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(size) = text.strip_prefix("ram:") {
            return Ok(Self::Ram { bytes: member_bytes(size)? });
        }
        if let Some(device) = text.strip_prefix("null:") {
            return mdspace_io::check_name(text).map(|()| Self::Null(device.into()));
        }
        if let Some(file) = text.strip_prefix("multipath:") {
            return mdspace_io::check_name(text).map(|()| Self::Multipath(path_of_name(file)));
        }
        if mdspace_io::is_remote(text) {
            return mdspace_io::check_name(text).map(|()| Self::Nbd(text.into()));
        }
        match text {
            "" => Err("an empty word is no member".into()),
            "missing" => Err("the word missing is a member of create only".into()),
            path => Ok(Self::Path(path_of_name(path))),
        }
    }
}

impl MemberSpec {
    /// Whether it keeps nothing of what is written to it.
    pub(crate) fn forgets(&self) -> bool {
        matches!(self, Self::Null(_))
    }
}

impl fmt::Display for MemberSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => f.write_str(&name_of_path(path)),
            Self::Ram { bytes } => write!(f, "ram:{}", short(*bytes)),
            Self::Null(device) => write!(f, "null:{device}"),
            Self::Multipath(file) => write!(f, "multipath:{}", name_of_path(file)),
            Self::Nbd(uri) => f.write_str(uri),
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

/// What a MEMBER may be, for the long help of the verbs that take some.
pub(crate) fn help() -> String {
    let row = |name: &str, text: String| format!("\n  {name:<16}{text}");
    let mut help = "MEMBER is a file, a block device, an export of an NBD server:".to_owned();
    help += "\n  nbd+unix:///PATH, nbd+unix:///EXPORT?socket=PATH, nbd://HOST[:PORT][/EXPORT]";
    help += "\nseveral paths to one device (docs/admin.md has the keys of the file):";
    help += "\n  multipath:FILE.toml";
    help += "\nor for tests and benchmarks:";
    help += &row("ram:SIZE", "memory".into());
    help += &row("null:SIZE", "nothing: md's metadata are kept, data read as zeroes".into());
    for preset in mdspace_io::null_presets() {
        help += &row(&format!("null:{}", preset.name), preset.means.into());
    }
    help += "\nAfter null:, ?KEY=VALUE&... say what the device is like, also where a preset says \
             otherwise:";
    for key in mdspace_io::null_keys() {
        help += &row(key.name, format!("{} ({})", key.means, key.takes));
    }
    help
}

#[cfg(test)]
mod tests;
