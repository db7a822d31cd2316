//! Writes that were sent to a server and not answered, kept for longer than a process lives.
//!
//! A server may do what lies in its socket's buffer long after both ends of the connection were closed,
//! also when the process that sent it is gone. A file a member says where; it stays until that is proved
//! to be over.

use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Ranges of a member beyond this are kept as one, from the first to the last.
const RANGES_MAX: usize = 1024;

/// The folder where they are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnprovedWrites {
    folder: PathBuf,
}

impl UnprovedWrites {
    /// In `folder`, which is made when there is something to keep.
    pub fn in_folder(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Sectors of `member` where a write may still appear. What cannot be read counts as all of it.
    pub fn of(&self, member: &str) -> Vec<Range<u64>> {
        match fs::read_to_string(self.file(member)) {
            Ok(text) => parse(&text).unwrap_or_else(whole),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(_) => whole(),
        }
    }

    /// Keeps `ranges` in the place of what was kept; durable when it returns.
    pub fn keep(&self, member: &str, ranges: &[Range<u64>]) -> io::Result<()> {
        let file = self.file(member);
        if ranges.is_empty() {
            match fs::remove_file(&file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => return Ok(()),
            }
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        // A crash leaves the old file or the new one, never a part.
        let new = file.with_extension("new");
        let mut written = File::create(&new)?;
        written.write_all(text(ranges).as_bytes())?;
        written.sync_all()?;
        fs::rename(&new, &file)?;
        File::open(&self.folder)?.sync_all()
    }

    /// The member's name with everything but letters and digits as numbers: no name leads elsewhere.
    fn file(&self, member: &str) -> PathBuf {
        let mut name = String::new();
        for byte in member.bytes() {
            match byte.is_ascii_alphanumeric() {
                true => name.push(byte.into()),
                false => name += &format!("%{byte:02x}"),
            }
        }
        // A file's name has 255 bytes: of a long one the end tells it from others.
        let start = name.len().saturating_sub(240);
        Path::new(&self.folder).join(&name[start..])
    }
}

fn text(ranges: &[Range<u64>]) -> String {
    let line = |start, end| format!("{start} {end}\n");
    if ranges.len() <= RANGES_MAX {
        return ranges.iter().map(|range| line(range.start, range.end)).collect();
    }
    let start = ranges.iter().map(|range| range.start).min().unwrap_or(0);
    let end = ranges.iter().map(|range| range.end).max().unwrap_or(0);
    line(start, end)
}

fn whole() -> Vec<Range<u64>> {
    std::iter::once(0..u64::MAX / 512).collect()
}

/// First sector and the one behind the last, a range a line.
fn parse(text: &str) -> Option<Vec<Range<u64>>> {
    let range = |line: &str| {
        let (start, end) = line.split_once(' ')?;
        let (start, end) = (start.parse().ok()?, end.parse().ok()?);
        (start < end).then_some(start..end)
    };
    text.lines().map(range).collect()
}

#[cfg(test)]
mod tests;
