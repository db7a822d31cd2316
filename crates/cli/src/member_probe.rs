//! Looks before a verb writes to a would-be member: who uses it, and what lies on it.
//!
//! Other people's data are lost by a typing error more often than by a disk. `create`, `add` and
//! `zero-superblock` refuse what is in use, and ask about what is not empty.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use mdspace_engine::backend::{MemberId, MemberInfo};
use mdspace_format::Superblock;
use mdspace_io::{Identity, MemberTable, OneConnection, OpenError, OpenMode, name_of_path};

use crate::args::MemberSpec;
use crate::failure::{Code, Failure};
use crate::run_dir::RunDir;

mod contents;
mod look;
mod probed;
mod purpose;
mod question;
mod remote;
mod siblings;

use contents::Source;
pub(crate) use contents::{Area, FoundSuperblock, superblock_that_counts, superblocks};
use look::Headway;
pub(crate) use look::{
    Look, any_left_behind, asked_of, is_same_place, look, places_of, which_leads_to,
};
pub(crate) use probed::Probed;
pub(crate) use purpose::Purpose;
use question::Question;
pub(crate) use remote::{check_remote, check_remote_unless, superblock_of_remote};
use siblings::Siblings;

/// How long a member in use is given to become free.
const PREDECESSOR_GETS: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A member that this process has open, and for itself if it was free, as long as the value lives.
pub(crate) struct Held {
    path: PathBuf,
    file: File,
    identity: Identity,
    /// Its locks.
    _table: Arc<MemberTable>,
}

impl Held {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The very file that is locked.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// What it is, under the name that a serving process opens.
    fn probed(&self, what: &str) -> Result<Probed, Failure> {
        let path = std::path::absolute(&self.path);
        let path = path.map_err(|error| unreadable(&self.path, error, what))?;
        Ok(Probed::one(name_of_path(&path), self.identity))
    }
}

/// Refuses members in use, shows what lies on the others, and asks. `run` answers yes. Gives what
/// was looked at.
pub(crate) fn check(
    members: &[&Path],
    run_dir: &RunDir,
    run: bool,
    purpose: &Purpose,
) -> Result<Probed, Failure> {
    let mut probed = Probed::default();
    for held in hold_and_ask(members, run_dir, run, purpose)? {
        probed.add(held.probed(purpose.what())?);
    }
    Ok(probed)
}

/// As [`check`], for members of every kind.
pub(crate) fn check_all<'a>(
    members: impl Iterator<Item = &'a MemberSpec>,
    run_dir: &RunDir,
    run: bool,
    purpose: &Purpose,
) -> Result<Probed, Failure> {
    let (mut paths, mut remote) = (Vec::new(), Vec::new());
    for member in members {
        match member {
            MemberSpec::Path(path) => paths.push(path.as_path()),
            MemberSpec::Nbd(_) | MemberSpec::Multipath(_) => remote.push(member.absolute()?),
            MemberSpec::Ram { .. } | MemberSpec::Null(_) => {}
        }
    }
    let probed = check(&paths, run_dir, run, purpose)?;
    check_remote(remote.iter().map(String::as_str), run, purpose)?;
    Ok(probed)
}

/// As [`check`]; the members stay with this process alone.
pub(crate) fn hold_and_ask(
    members: &[&Path],
    run_dir: &RunDir,
    run: bool,
    purpose: &Purpose,
) -> Result<Vec<Held>, Failure> {
    let what = purpose.what();
    let (mut question, mut all) = (Question::default(), Vec::new());
    let siblings = Siblings::ask(run_dir);
    for member in members {
        let (held, shown) = look(name_of_path(member), what, {
            let (member, siblings) = (member.to_path_buf(), siblings.clone());
            let purpose = purpose.clone();
            move |headway| {
                let held = hold_free(&member, &siblings, &purpose)?;
                let shown = shown(&held, purpose.what(), headway)?;
                Ok((held, shown))
            }
        })??;
        question.join(shown);
        all.push(held);
    }
    if !run {
        question.ask(what)?;
    }
    Ok(all)
}

/// As [`check`], for one member; one whose superblock is `known` is no question.
pub(crate) fn check_unless(
    member: &Path,
    run_dir: &RunDir,
    run: bool,
    purpose: &Purpose,
    known: impl Fn(&Superblock) -> bool + Send + 'static,
) -> Result<Probed, Failure> {
    let (path, siblings, theirs) = (member.to_path_buf(), Siblings::ask(run_dir), purpose.clone());
    let hold = move || hold_free(&path, &siblings, &theirs);
    ask_unless(member, run, purpose.what(), known, hold)
}

/// As [`check_unless`], for one that the array itself may still hold: it is not locked meanwhile.
pub(crate) fn check_held_unless(
    member: &Path,
    run: bool,
    purpose: &Purpose,
    known: impl Fn(&Superblock) -> bool + Send + 'static,
) -> Result<Probed, Failure> {
    let (path, theirs) = (member.to_path_buf(), purpose.clone());
    let mode = OpenMode { buffered: true, ..OpenMode::LOOK };
    ask_unless(member, run, purpose.what(), known, move || hold(&path, mode, &theirs))
}

fn ask_unless(
    member: &Path,
    run: bool,
    what: &str,
    known: impl Fn(&Superblock) -> bool + Send + 'static,
    hold: impl FnOnce() -> Result<Held, Failure> + Send + 'static,
) -> Result<Probed, Failure> {
    let (held, shown) = look(name_of_path(member), what, {
        let (member, what) = (member.to_path_buf(), what.to_owned());
        move |headway| {
            let held = hold()?;
            let unreadable = |error| unreadable(&member, error, &what);
            let is_known = contents::has_superblock(&held.file, &known).map_err(unreadable)?;
            let shown = match run || is_known {
                true => Question::default(),
                false => shown(&held, &what, headway)?,
            };
            Ok((held, shown))
        }
    })??;
    shown.ask(what)?;
    held.probed(what)
}

/// What lies on a member; no question for an empty one.
fn shown(held: &Held, what: &str, headway: &Headway) -> Result<Question, Failure> {
    let question = question_of(&name_of_path(&held.path), &held.file, headway);
    question.map_err(|error| unreadable(&held.path, error, what))
}

/// What lies on a member of any kind. All that may be overwritten goes through this one look.
fn question_of(name: &str, member: &impl Source, headway: &Headway) -> io::Result<Question> {
    let is_of_array = !superblocks(member)?.is_empty();
    let lines = contents::of(member, headway)?;
    let mut question = Question::default();
    question.add(name, &lines, is_of_array);
    Ok(question)
}

/// Refuses members that something on this host uses.
pub(crate) fn check_free<'a>(
    members: impl Iterator<Item = &'a Path>,
    mode: OpenMode,
    run_dir: &RunDir,
    purpose: &Purpose,
) -> Result<(), Failure> {
    let siblings = Siblings::ask(run_dir);
    for member in members {
        let (path, siblings, theirs) = (member.to_path_buf(), siblings.clone(), purpose.clone());
        look(name_of_path(member), purpose.what(), move |_| {
            siblings.refuse(&path, &theirs)?;
            hold(&path, mode, &theirs).map(drop)
        })??;
    }
    Ok(())
}

/// Opens and locks a member that no other process uses. It is read through the page cache, so that reads need
/// not be whole blocks.
fn hold_free(member: &Path, siblings: &Siblings, purpose: &Purpose) -> Result<Held, Failure> {
    siblings.refuse(member, purpose)?;
    let held = hold(member, OpenMode { buffered: true, ..OpenMode::RUN }, purpose)?;
    refuse_file_of_dev(&held, purpose.what())?;
    Ok(held)
}

/// Below /dev a regular file was made by a mistyped name. It lies in memory, and is gone at the next boot.
fn refuse_file_of_dev(held: &Held, what: &str) -> Result<(), Failure> {
    let unreadable = |error| unreadable(&held.path, error, what);
    let is_file = held.file.metadata().map_err(unreadable)?.is_file();
    // Where it leads: a link below /dev, as /dev/stdin, may lead to a file anywhere.
    let path = fs::canonicalize(&held.path).map_err(unreadable)?;
    if !is_file || !path.starts_with("/dev") || path.starts_with("/dev/shm") {
        return Ok(());
    }
    let why = format!("{} is a regular file among the devices, in memory", path.display());
    Err(Failure::new(what, why, "remove it, and see `lsblk` for the device that you mean"))
}

fn hold(member: &Path, mode: OpenMode, purpose: &Purpose) -> Result<Held, Failure> {
    let table = MemberTable::new();
    let name = name_of_path(member);
    let (id, _) = open(&table, &name, mode).map_err(|error| refused(error, purpose))?;
    let held = || {
        let file = table.file(id).ok_or(io::ErrorKind::Unsupported)??;
        let identity = Identity::of(&file)?;
        Ok((file, identity))
    };
    let (file, identity) = held().map_err(|error| unreadable(member, error, purpose.what()))?;
    Ok(Held { path: member.to_owned(), file, identity, _table: table })
}

/// A member that was opened for someone who may not wait for it any more: then it closes.
pub(crate) struct Opened {
    table: Arc<MemberTable>,
    member: Option<(MemberId, MemberInfo)>,
}

impl Opened {
    /// Opens a member.
    pub(crate) fn new(
        table: &Arc<MemberTable>,
        name: &str,
        mode: OpenMode,
    ) -> Result<Self, OpenError> {
        let member = Some(open(table, name, mode)?);
        Ok(Self { table: table.clone(), member })
    }

    /// It stays open.
    pub(crate) fn take(mut self) -> Option<(MemberId, MemberInfo)> {
        self.member.take()
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some((id, _)) = self.member {
            self.table.close(id);
        }
    }
}

/// Opens a member. One in use gets a moment to become free.
pub(crate) fn open(
    table: &MemberTable,
    name: &str,
    mode: OpenMode,
) -> Result<(MemberId, MemberInfo), OpenError> {
    once_free(|| table.open(name, mode))
}

/// Opens what may be in use for a moment yet: the kernel lets go of what a killed process had in flight a moment after
/// its end.
pub(crate) fn once_free<T>(open: impl Fn() -> Result<T, OpenError>) -> Result<T, OpenError> {
    let until = Instant::now() + PREDECESSOR_GETS;
    loop {
        match open() {
            Err(OpenError::InUse { .. }) if Instant::now() < until => thread::sleep(LOOK_EVERY),
            result => return result,
        }
    }
}

/// Why a member cannot be opened, in three lines.
pub(crate) fn refused(error: OpenError, purpose: &Purpose) -> Failure {
    let failure = |why: String, cure: &str| Failure::new(purpose.what(), why, cure);
    if let Some((why, cure)) = error.why_and_cure() {
        return failure(why, cure);
    }
    match error {
        OpenError::InUse { name, holder, cure, .. } => {
            failure(format!("{name} is in use by {holder}"), &cure).with_code(Code::InUse)
        }
        OpenError::System { name, source, .. } if source.kind() == io::ErrorKind::NotFound => {
            let cure = name
                .parse()
                .map_or("check the name", |member: MemberSpec| purpose.cure_of_missing(&member));
            failure(format!("{name}: {source}"), cure)
        }
        OpenError::OneConnection(OneConnection { name }) => failure(
            format!("{name}: its server bears one connection, and each lane and worker needs one"),
            "use --lanes=1 and group_thread_cnt=0, or let the server share the export \
             (qemu-nbd --shared=0)",
        ),
        other => failure(other.to_string(), "check the member's name and rights"),
    }
}

fn unreadable(member: &Path, error: io::Error, what: &str) -> Failure {
    let why = format!("{}: {error}", name_of_path(member));
    Failure::new(what, why, "give a file or a block device that can be read")
}

#[cfg(test)]
mod tests;
