//! What the operator has decided about arrays whose parts had run apart.
//!
//! A file for each array, in the state directory: one member a line. Each start writes it anew, where there is one, and
//! each member that is added is entered as going on: those that went on before may be gone one day.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use mdspace_engine::assembly::Decided;
use mdspace_format::Uuid;
use mdspace_io::read_text;

use super::state_dir::state_dir;
use crate::config;

/// What such a file is called, behind the UUID of its array.
const SUFFIX: &str = ".decided";

/// The last word about a member.
const WENT_ON: &str = "went-on";
const STAYS_OUT: &str = "stays-out";

/// All that is kept, of whatever array. What cannot be read is not kept: the operator is asked once more.
pub(crate) fn all(run_dir: &Path) -> Vec<Decided> {
    let entries = fs::read_dir(state_dir(run_dir)).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let files = paths.filter(|path| path.to_string_lossy().ends_with(SUFFIX));
    files.filter_map(|path| read_text(&path).ok()).flat_map(|text| parse(&text)).collect()
}

/// Keeps what the next start is to know, if that is anything.
pub(super) fn keep(decided: &[Decided], run_dir: &Path) -> io::Result<()> {
    let Some(Decided { array, .. }) = decided.first() else { return Ok(()) };
    let path = path_of(*array, run_dir);
    let text = show(decided);
    if read_text(&path).is_ok_and(|kept| kept == text) {
        return Ok(());
    }
    config::replace_file(&path, &text)
}

/// The array goes on with a device that was added to it.
pub(super) fn keep_added(array: Uuid, device: Uuid, run_dir: &Path) -> io::Result<()> {
    let mut decided = match read_text(&path_of(array, run_dir)) {
        Ok(text) => parse(&text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    decided.retain(|one| one.device != device);
    // What it says changes with each update, and only words against a member are about that.
    decided.push(Decided { array, device, events: 0, checksum: 0, went_on: true });
    keep(&decided, run_dir)
}

fn path_of(array: Uuid, run_dir: &Path) -> PathBuf {
    state_dir(run_dir).join(format!("{array}{SUFFIX}"))
}

fn show(decided: &[Decided]) -> String {
    let line = |one: &Decided| {
        let &Decided { array, device, events, checksum, went_on } = one;
        let word = if went_on { WENT_ON } else { STAYS_OUT };
        format!("{array} {device} {events} {checksum} {word}\n")
    };
    decided.iter().map(line).collect()
}

fn parse(text: &str) -> Vec<Decided> {
    let line = |line: &str| {
        let mut words = line.split(' ');
        let (array, device) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let (events, checksum) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let went_on = match words.next()? {
            WENT_ON => true,
            STAYS_OUT => false,
            _ => return None,
        };
        Some(Decided { array, device, events, checksum, went_on })
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests;
