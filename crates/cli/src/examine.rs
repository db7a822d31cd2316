//! `mdspace examine`: what lies on one device, read only and without the array.
//!
//! [`read_member`] reads a device once; the renderers put what was found in the words and the
//! layout of `mdadm --examine`, or in JSON.

mod brief;
mod export;
mod json;
mod member;
mod text;

use std::path::Path;

use jiff::tz::TimeZone;
use serde::Serialize;

use crate::failure::Failure;
pub(crate) use member::ExaminedMember;

/// Reads the superblock of a file or block device, its bitmap and its bad-block log.
///
/// A bitmap or log that cannot be read is part of what was found; a superblock that cannot is a
/// failure that says why.
pub(crate) fn read_member(path: &Path) -> Result<ExaminedMember, Failure> {
    ExaminedMember::read(path)
}

/// What `mdadm --examine` prints, then the bitmap in the words of `--examine-bitmap`, the bad
/// blocks in those of `--examine-badblocks`, and why the array cannot be served, if so.
pub(crate) fn render_text(members: &[ExaminedMember]) -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let scene = text::Scene { host, zone: TimeZone::system() };
    members.iter().map(|member| scene.describe(member) + &scene.describe_more(member)).collect()
}

/// What `mdadm --examine --export` prints: KEY=value lines, for scripts and udev rules.
pub(crate) fn render_export(members: &[ExaminedMember]) -> String {
    members.iter().map(export::describe).collect()
}

/// What `mdadm --examine --scan` prints: one ARRAY line for each array, fit for mdadm.conf.
/// `verbose` adds the level, the number of slots and the devices.
pub(crate) fn render_scan(members: &[ExaminedMember], verbose: bool) -> String {
    brief::describe(members, verbose)
}

/// What `mdspace examine --json` prints.
pub(crate) fn to_json(members: &[ExaminedMember]) -> impl Serialize {
    json::examination(members)
}

/// mdadm's name for a level that a superblock stores as a number.
fn level_word(number: i32) -> String {
    mdspace_format::Level::from_number(number)
        .map_or_else(|| "-unknown-".to_owned(), |level| level.to_string())
}

/// Appends a line to a text.
macro_rules! line {
    ($out:expr, $($arg:tt)*) => {
        writeln!($out, $($arg)*).expect("a String takes all that is written")
    };
}
use line;

#[cfg(test)]
mod tests;
