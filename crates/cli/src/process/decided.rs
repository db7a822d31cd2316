//! Members that the operator has decided against, as long as their superblocks are as they were then.
//!
//! A file for each array, in the state directory: one member a line. The next decision about the array replaces it.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use mdspace_engine::assembly::Rejected;
use mdspace_io::read_text;

use super::state_dir::state_dir;

/// What such a file is called, behind the UUID of its array.
const SUFFIX: &str = ".rejected";

/// All that is kept, of whatever array. What cannot be read is not kept: the operator is asked once more.
pub(crate) fn all(run_dir: &Path) -> Vec<Rejected> {
    let entries = fs::read_dir(state_dir(run_dir)).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let files = paths.filter(|path| path.to_string_lossy().ends_with(SUFFIX));
    files.filter_map(|path| read_text(&path).ok()).flat_map(|text| parse(&text)).collect()
}

/// Keeps a decision.
pub(super) fn keep(rejected: &[Rejected], run_dir: &Path) -> io::Result<()> {
    let Some(Rejected { array, .. }) = rejected.first() else { return Ok(()) };
    let folder = state_dir(run_dir);
    let path: PathBuf = folder.join(format!("{array}{SUFFIX}"));
    let mut file = tempfile::NamedTempFile::new_in(&folder)?;
    file.write_all(show(rejected).as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    fs::File::open(folder)?.sync_all()
}

fn show(rejected: &[Rejected]) -> String {
    let line =
        |one: &Rejected| format!("{} {} {} {}\n", one.array, one.device, one.events, one.checksum);
    rejected.iter().map(line).collect()
}

fn parse(text: &str) -> Vec<Rejected> {
    let line = |line: &str| {
        let mut words = line.split(' ');
        let (array, device) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let (events, checksum) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Rejected { array, device, events, checksum })
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests;
