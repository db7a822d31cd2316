//! Looks before a verb writes to a would-be member: who uses it, and what lies on it.
//!
//! Other people's data are lost by a typing error more often than by a disk. `create`, `add` and
//! `zero-superblock` refuse what is in use, and ask about what is not empty.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use mdspace_engine::backend::{MemberId, MemberInfo};
use mdspace_format::Superblock;
use mdspace_io::{MemberTable, OpenError, OpenMode};

use crate::args::ArrayName;
use crate::control::client::Client;
use crate::failure::Failure;
use crate::run_dir::RunDir;

mod contents;
mod remote;

pub(crate) use contents::superblocks;
pub(crate) use remote::check_remote;

/// How long a member in use is given to become free.
const PREDECESSOR_GETS: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Refuses members in use, shows what lies on the others, and asks. `run` answers yes.
///
/// `what` is the sentence of the failure: "cannot create data".
pub(crate) fn check(
    members: &[&Path],
    run_dir: &RunDir,
    run: bool,
    what: &str,
) -> Result<(), Failure> {
    let mut found = String::new();
    for member in members {
        check_free(member, OpenMode::RUN, run_dir, what)?;
        found.push_str(&shown(member, what)?);
    }
    if found.is_empty() || run {
        return Ok(());
    }
    ask(&found, what)
}

/// As [`check`], for one member; one whose superblock is `known` is no question.
pub(crate) fn check_unless(
    member: &Path,
    run_dir: &RunDir,
    run: bool,
    what: &str,
    known: impl Fn(&Superblock) -> bool,
) -> Result<(), Failure> {
    check_free(member, OpenMode::RUN, run_dir, what)?;
    let found = File::open(member)
        .and_then(|file| superblocks(&file))
        .map_err(|error| unreadable(member, error, what))?;
    if found.iter().any(|found| found.superblock.as_ref().is_some_and(&known)) {
        return Ok(());
    }
    check(&[member], run_dir, run, what)
}

/// What lies on a member, for people; empty for an empty one.
fn shown(member: &Path, what: &str) -> Result<String, Failure> {
    let contents = contents::of(member).map_err(|error| unreadable(member, error, what))?;
    if contents.is_empty() {
        return Ok(String::new());
    }
    let mut shown = format!("{} holds:\n", member.display());
    for line in contents {
        shown.push_str(&format!("    {line}\n"));
    }
    Ok(shown)
}

/// Refuses a member that something on this host uses.
pub(crate) fn check_free(
    member: &Path,
    mode: OpenMode,
    run_dir: &RunDir,
    what: &str,
) -> Result<(), Failure> {
    if let Some(array) = array_of(member, run_dir) {
        let why = format!("{} is in use by mdspace array {array}", member.display());
        return Err(Failure::new(what, why, format!("mdspace stop {array}")));
    }
    hold(member, mode, what).map(drop)
}

/// Keeps a member for this process alone, as long as the value lives.
pub(crate) fn hold(member: &Path, mode: OpenMode, what: &str) -> Result<Arc<MemberTable>, Failure> {
    let table = MemberTable::new();
    let name = member.display().to_string();
    open(&table, &name, mode).map_err(|error| refused(error, what))?;
    Ok(table)
}

/// Opens a member. The kernel lets go of what a killed process had in flight a moment after its
/// end: a member in use gets that moment.
pub(crate) fn open(
    table: &MemberTable,
    name: &str,
    mode: OpenMode,
) -> Result<(MemberId, MemberInfo), OpenError> {
    let until = Instant::now() + PREDECESSOR_GETS;
    loop {
        match table.open(name, mode) {
            Err(OpenError::InUse { .. }) if Instant::now() < until => thread::sleep(LOOK_EVERY),
            result => return result,
        }
    }
}

/// The running array that has this member.
fn array_of(member: &Path, run_dir: &RunDir) -> Option<ArrayName> {
    let path = fs::canonicalize(member).ok()?;
    let is_it = |name: &str| fs::canonicalize(name).is_ok_and(|known| known == path);
    run_dir.running().ok()?.into_iter().find(|name| {
        let report = Client::connect(run_dir, name).and_then(|mut client| client.report());
        report.is_ok_and(|report| report.array.members.iter().any(|m| is_it(&m.member)))
    })
}

/// Why a member cannot be opened, in three lines.
pub(crate) fn refused(error: OpenError, what: &str) -> Failure {
    match error {
        OpenError::InUse { name, holder, cure } => {
            Failure::new(what, format!("{name} is in use by {holder}"), cure)
        }
        OpenError::System { name, source, .. } if source.kind() == io::ErrorKind::NotFound => {
            let cure = "check the name; an empty member file is made by: truncate -s 1G FILE";
            Failure::new(what, format!("{name}: {source}"), cure)
        }
        other => Failure::new(what, other, "check the member's name and rights"),
    }
}

fn ask(found: &str, what: &str) -> Result<(), Failure> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Failure::new(what, found, "look at it again; --run answers yes"));
    }
    let refused = || Failure::new(what, "the answer was not yes", "nothing was written");
    eprint!("{found}All of it would be lost. Continue? [y/N] ");
    io::stderr().flush().map_err(|_| refused())?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).map_err(|_| refused())?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(refused()),
    }
}

fn unreadable(member: &Path, error: io::Error, what: &str) -> Failure {
    let why = format!("{}: {error}", member.display());
    Failure::new(what, why, "give a file or a block device that can be read")
}

#[cfg(test)]
mod tests;
