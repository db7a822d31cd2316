//! Looks before a verb writes to a would-be member: who uses it, and what lies on it.
//!
//! Other people's data are lost by a typing error more often than by a disk. `create`, `add` and
//! `zero-superblock` refuse what is in use, and ask about what is not empty.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::path::Path;

use crate::failure::Failure;
use crate::run_dir::RunDir;

mod contents;
mod holder;

pub(crate) use contents::superblocks;
pub(crate) use holder::open_alone;

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
        check_free(member, run_dir, what)?;
        let contents = contents::of(member).map_err(|error| unreadable(member, error, what))?;
        if !contents.is_empty() {
            writeln!(found, "{} holds:", member.display()).expect("a String takes all");
            for line in contents {
                writeln!(found, "    {line}").expect("a String takes all");
            }
        }
    }
    if found.is_empty() || run {
        return Ok(());
    }
    ask(&found, what)
}

/// Refuses a member that something on this host uses.
pub(crate) fn check_free(member: &Path, run_dir: &RunDir, what: &str) -> Result<(), Failure> {
    let holder = holder::of(member, run_dir).map_err(|error| unreadable(member, error, what))?;
    match holder {
        None => Ok(()),
        Some(holder) => {
            let why = format!("{} is in use by {}", member.display(), holder.who);
            Err(Failure::new(what, why, holder.cure))
        }
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
    let cure = match error.kind() {
        io::ErrorKind::NotFound => "make it first; for a file: truncate -s 1G FILE",
        io::ErrorKind::PermissionDenied => "run as a user who may read and write it",
        _ => "give a file or a block device that can be read",
    };
    Failure::new(what, format!("{}: {error}", member.display()), cure)
}

#[cfg(test)]
mod tests;
