//! A member made of paths: opening them, opening them again, and fencing them.

mod file;

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use mdspace_engine::backend::{MemberId, MemberInfo};
use mdspace_engine::paths::{Cache, FenceId, Host, Paths, Policy, Table};

use crate::clock;

use super::path_name::path_of_name;
use super::{Identity, MemberTable, OpenError, OpenMode, UnprovedWrites, is_remote};

/// How long the command of a fence may run: what it asks may be gone itself.
const FENCE_MAX: Duration = Duration::from_secs(300);

/// How long the last calls of a user may take that has let go of paths.
const LAST_CALLS_GET: Duration = Duration::from_millis(500);

/// Time between two looks for an end.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A multipath device as its user describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MultipathSpec {
    /// Groups and paths. A length of 0 means all of the device.
    pub table: Table,
    /// Times and limits.
    pub policy: Policy,
    /// For each path in the table's order, the command that sees to it that nothing sent over it can
    /// be done any more; it ends with 0 when that is so.
    pub fences: Vec<Option<String>>,
}

impl MultipathSpec {
    /// A device of dm's table line, with no command to fence its paths.
    pub fn new(table: Table, policy: Policy) -> Self {
        let fences = vec![None; table.paths().count()];
        Self { table, policy, fences }
    }

    /// The device that a file in TOML describes; docs/admin.md has the keys. An error says where and
    /// what.
    pub fn parse(text: &str) -> Result<Self, String> {
        file::parse(text)
    }

    /// Opens the paths. Those that cannot be opened are tried again later; one must be. None may be in use by
    /// somebody else.
    pub(super) fn open(
        &self,
        name: &str,
        members: &Arc<MemberTable>,
        mode: OpenMode,
    ) -> Result<Arc<Paths>, OpenError> {
        let names: Vec<String> = self.table.paths().map(|(_, path)| path.member.clone()).collect();
        let mut opened = Vec::new();
        let joined = open_each(&names, members, mode, &mut opened)
            .and_then(|()| self.join(name, names, &opened, members, mode));
        if joined.is_err() {
            opened.iter().flatten().for_each(|(id, _)| members.close(*id));
        }
        joined
    }

    /// Makes one device of the paths that were `opened`.
    fn join(
        &self,
        name: &str,
        names: Vec<String>,
        opened: &[OpenedPath],
        members: &Arc<MemberTable>,
        mode: OpenMode,
    ) -> Result<Arc<Paths>, OpenError> {
        let alone = Alone::of(&names, &self.policy);
        let loner = opened.iter().flatten().find(|(id, _)| alone.refuses(members, *id));
        if let Some((_, info)) = loner {
            return Err(OpenError::Name { name: info.name.clone(), why: ALONE.into() });
        }
        let mut table = self.table.clone();
        if table.sectors == 0 {
            table.sectors = opened.iter().flatten().next().map_or(0, |(_, info)| info.sectors);
        }
        let remote: Vec<bool> = names.iter().map(|name| is_remote(name)).collect();
        let fences = self.fences.clone();
        let unproved = members.unproved().cloned();
        let recalled = names.iter().map(|path| match &unproved {
            Some(unproved) if is_remote(path) => unproved.of(path),
            _ => Ok(Vec::new()),
        });
        let recalled = recalled.collect::<io::Result<Vec<_>>>().map_err(|source| {
            let doing = "tell which writes may still appear";
            OpenError::System { name: name.into(), doing, source }
        })?;
        let host =
            PathHost { members: Arc::downgrade(members), names, fences, mode, alone, unproved };
        // Who only looks leaves nothing in a cache, and what a first flush is told, once, is for those who write.
        let cache = if mode.read_only { Cache::Shared } else { self.policy.cache };
        let policy = Policy { cache, ..self.policy.clone() };
        let paths = Paths::new(name, table, policy, opened.to_vec(), &remote, Box::new(host))
            .map_err(|error| OpenError::Name { name: name.into(), why: error.to_string() })?;
        recalled.into_iter().enumerate().for_each(|(path, ranges)| paths.recall(path, ranges));
        Ok(paths)
    }
}

/// The member of a path, or why it could not be opened.
type OpenedPath = Result<(MemberId, MemberInfo), String>;

/// Opens a member for each path; paths that are one device of this host share one. An error: a path that no
/// later try would open either, or that somebody else has: over another path the device would be written to beside
/// them. Of one who has let go of it, and whose writes are over, calls may hang there: that path has failed, and joins
/// when it can be opened. Those before it are `opened` then.
fn open_each(
    names: &[String],
    members: &MemberTable,
    mode: OpenMode,
    opened: &mut Vec<OpenedPath>,
) -> Result<(), OpenError> {
    let until = Instant::now() + LAST_CALLS_GET;
    for (at, path) in names.iter().enumerate() {
        let known = names[..at].iter().position(|other| is_same_device(other, path));
        opened.push(match known {
            Some(known) => opened[known].clone(),
            None => match open_when_let_go(path, members, mode, until) {
                Err(error @ (OpenError::OneConnection(_) | OpenError::LeadsBack { .. })) => {
                    return Err(error);
                }
                Err(OpenError::InUse { writes_are_over: true, .. }) => Err(HANGS.to_owned()),
                Err(OpenError::InUse { name, holder, cure, writes_are_over }) => {
                    let cure = format!("{cure}; {CURE_OF_WRITES}");
                    return Err(OpenError::InUse { name, holder, cure, writes_are_over });
                }
                answer => answer.map_err(|error| error.to_string()),
            },
        });
    }
    Ok(())
}

/// Opens a path. The last calls of a user that has let go of it end in a moment, unless they hang.
fn open_when_let_go(
    path: &str,
    members: &MemberTable,
    mode: OpenMode,
    until: Instant,
) -> Result<(MemberId, MemberInfo), OpenError> {
    loop {
        match members.open(path, mode) {
            Err(OpenError::InUse { writes_are_over: true, .. }) if Instant::now() < until => {
                thread::sleep(LOOK_EVERY);
            }
            answer => return answer,
        }
    }
}

/// Why a path is not there.
const HANGS: &str = "a call hangs there of a user that has let go of it; it is no write";

/// What to do where writes may hang on a path.
const CURE_OF_WRITES: &str = "if that has ended but for a call that hangs, have the path answer, or leave it out of the \
     file once nothing that was sent over it can land any more";

/// Whether two names lead to one device of this host. Two servers that have one are two.
fn is_same_device(one: &str, other: &str) -> bool {
    let device = |name: &str| {
        let metadata = fs::metadata(path_of_name(name)).ok()?;
        Some(match metadata.file_type().is_block_device() {
            true => (0, metadata.rdev()),
            false => (metadata.dev(), metadata.ino()),
        })
    };
    one == other || device(one).is_some_and(|one| device(other) == Some(one))
}

/// What a device's paths need of the system.
struct PathHost {
    members: Weak<MemberTable>,
    names: Vec<String>,
    fences: Vec<Option<String>>,
    mode: OpenMode,
    alone: Alone,
    unproved: Option<UnprovedWrites>,
}

/// Whether an export whose connections may each have a cache of their own can be a path: only if it is the
/// one path to its device, or the operator's word is that all of them share one.
#[derive(Clone, Copy)]
struct Alone {
    has_company: bool,
}

/// Why a path is refused.
const ALONE: &str = "its server does not say that its connections share one cache (CAN_MULTI_CONN), so a read over \
     one path may miss what was written over another; if they do, say so with `cache = \"shared\"`";

impl Alone {
    fn of(names: &[String], policy: &Policy) -> Self {
        let first = names.first();
        let others = names.iter().any(|name| first.is_some_and(|first| first != name));
        Self { has_company: others && policy.cache == Cache::OfEachPath }
    }

    fn refuses(self, members: &MemberTable, id: MemberId) -> bool {
        self.has_company && !members.shares_a_cache(id)
    }
}

impl Host for PathHost {
    fn reopen(&self, paths: &Arc<Paths>, path: usize) {
        let (members, theirs) = (self.members.clone(), paths.clone());
        let (name, mode, alone) = (self.names[path].clone(), self.mode, self.alone);
        let started = on_thread("path-open", move || {
            let Some(members) = members.upgrade() else {
                let _ = theirs.opened(path, Err("the members are closed".into()));
                return;
            };
            connect_anew(&members, &theirs, path, &name, (mode, alone));
        });
        if let Err(why) = started {
            // One that is closed waits for no answer.
            let _ = paths.opened(path, Err(why));
        }
    }

    fn fence(&self, paths: &Arc<Paths>, path: usize, fence: FenceId) -> bool {
        let Some(command) = self.fences[path].clone() else { return false };
        let (theirs, name) = (paths.clone(), self.names[path].clone());
        let unproved = self.unproved.clone();
        let began = unproved.as_ref().map(UnprovedWrites::sent_until_now);
        let started = on_thread("path-fence", move || {
            let until = Instant::now() + FENCE_MAX;
            let done = run_fence(&command, &name, || Instant::now() >= until);
            match &done {
                Ok(()) => {
                    if let (Some(unproved), Some(began)) = (unproved, began) {
                        unproved.prove(&name, began);
                    }
                }
                Err(why) => tracing::error!("{name} is not fenced: {why}"),
            }
            theirs.fenced(path, fence, done, clock::now());
        });
        started.is_ok()
    }

    fn fenced_by_word(&self, path: usize) {
        if let Some(unproved) = &self.unproved {
            unproved.forget(&self.names[path]);
        }
    }
}

/// Opens what the name of a path leads to now, and closes what it had. A device of this host is closed first: while it is
/// open, the kernel gives its name to no other one. One that has its name still stays as it is.
fn connect_anew(
    members: &Arc<MemberTable>,
    paths: &Paths,
    path: usize,
    name: &str,
    how: (OpenMode, Alone),
) {
    let close_unused = |id: MemberId| {
        if !paths.members().contains(&id) {
            members.close(id);
        }
    };
    let (old, _) = paths.path(path);
    if let Some(old) = old.filter(|_| !is_remote(name)) {
        if has_its_name(members, old, name) || !paths.let_go(path, old) {
            let _ = paths.opened(path, Err("it does not answer".into()));
            return;
        }
        close_unused(old);
    }
    old.into_iter().for_each(|old| members.give_way(old));
    let opened = reopen(members, paths, (path, name), how);
    let new = opened.as_ref().ok().map(|(id, _)| *id);
    // The paths know of the new connection before the old one closes: what that one owes is unproved then. Of a closed
    // one that they still had, nothing would be in flight, as if all was answered.
    match paths.opened(path, opened) {
        true => old.into_iter().for_each(close_unused),
        false => new.into_iter().for_each(|new| members.close(new)),
    }
}

/// Whether a member that is open is still what its name leads to. A name that is missing for a moment tells nothing, unless
/// the device is gone too.
fn has_its_name(members: &MemberTable, id: MemberId, name: &str) -> bool {
    let Some(known) = members.identity(id) else { return true };
    match Identity::of_name(&path_of_name(name)) {
        Ok(now) => now == known,
        Err(_) => !known.has_left(),
    }
}

/// A new connection in place of the one that was lost, which stays open. What somebody else has by now stays out, and
/// is told: they may write to the device.
fn reopen(
    members: &Arc<MemberTable>,
    paths: &Paths,
    (path, name): (usize, &str),
    (mode, alone): (OpenMode, Alone),
) -> OpenedPath {
    let (new, info) = members.open(name, mode).map_err(|error| {
        match &error {
            OpenError::InUse { writes_are_over: true, .. } => return HANGS.to_owned(),
            OpenError::InUse { .. } => paths.tell_in_use(path, error.to_string()),
            _ => {}
        }
        error.to_string()
    })?;
    let why = match alone.refuses(members, new) {
        true => Some(ALONE.to_owned()),
        false => paths.does_more_than(&info),
    };
    match why {
        Some(why) => {
            members.close(new);
            Err(why)
        }
        None => Ok((new, info)),
    }
}

/// Runs the command of a fence. When it `is_late` it is killed, with what it has started.
fn run_fence(command: &str, path: &str, is_late: impl Fn() -> bool) -> Result<(), String> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]).env("MDSPACE_PATH", path).stdin(Stdio::null());
    shell.stdout(Stdio::null()).process_group(0);
    let child = shell.spawn().map_err(|error| error.to_string())?;
    match end_of(child, is_late).map_err(|error| error.to_string())? {
        None => {
            Err(format!("its command did not end in {} s, and was killed", FENCE_MAX.as_secs()))
        }
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(format!("its command ended with {status}")),
    }
}

/// Waits for the end of a process with a group of its own. None: it `is_late`, and all of the group are killed.
fn end_of(mut child: Child, is_late: impl Fn() -> bool) -> io::Result<Option<ExitStatus>> {
    loop {
        let ended = child.try_wait()?;
        if ended.is_some() {
            return Ok(ended);
        }
        if is_late() {
            let group = child.id().cast_signed();
            // SAFETY: no memory is passed. The group has this number as long as nobody has waited for its first process.
            unsafe { libc::kill(-group, libc::SIGKILL) };
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(LOOK_EVERY);
    }
}

fn on_thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let started = thread::Builder::new().name(name.into()).spawn(work);
    started.map(drop).map_err(|error| format!("no thread to do it: {error}"))
}

#[cfg(test)]
mod tests;
