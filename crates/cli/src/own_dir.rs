//! Directories in which no other user can put a file.
//!
//! Such a directory belongs to this user, and so does, or to root, every directory on the way to it:
//! nobody else can put another one in its place, so that its name may be used again and again. The way is
//! walked by descriptors, one directory after the other.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, open, openat, readlinkat};
use rustix::io::Errno;

/// Links on a way beyond this lead in a circle, as the kernel sees it too.
const LINKS_MAX: u32 = 40;

const STICKY: u32 = 0o1000;

/// Makes a directory of this user unless it is there. The error says why it is not safe to use.
pub(crate) fn make(path: &Path) -> Result<(), String> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| error.to_string())?;
    match check(path)? {
        true => Ok(()),
        false => Err("it went away as soon as it was made".into()),
    }
}

/// Refuses a directory that another user owns or may write to, a link, and one on whose way another user
/// could put something else. Says whether it is there: one that is not may not be looked into later.
pub(crate) fn check(path: &Path) -> Result<bool, String> {
    let path = std::path::absolute(path).map_err(|error| error.to_string())?;
    let mut way = Way { here: root()?, at: "/".into(), left: parts(&path), links: 0 };
    while let Some(name) = way.left.pop_front() {
        if !way.go(&name)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// How far a walk has come.
struct Way {
    here: OwnedFd,
    /// Where that is, for people.
    at: PathBuf,
    /// What is left to go; the last part is the directory itself.
    left: VecDeque<OsString>,
    links: u32,
}

impl Way {
    /// Goes one step. False: there is nothing.
    fn go(&mut self, name: &OsString) -> Result<bool, String> {
        let at = self.at.join(name);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let system = |error: Errno| format!("{}: {error}", at.display());
        let next = match openat(&self.here, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(false),
            next => next.map_err(system)?,
        };
        let found = fstat(&next).map_err(system)?;
        let is_last = self.left.is_empty();
        match (FileType::from_raw_mode(found.st_mode), is_last) {
            (FileType::Symlink, true) => return Err("it is a link".into()),
            (FileType::Symlink, false) => return self.follow(&next, &found, &at).map(|()| true),
            (FileType::Directory, true) => check_own(&found)?,
            (FileType::Directory, false) => check_parent(&found, &at)?,
            (_, true) => return Err("it is no directory".into()),
            (_, false) => return Err(format!("{} is no directory", at.display())),
        }
        (self.here, self.at) = (next, at);
        Ok(true)
    }

    fn follow(&mut self, link: &OwnedFd, found: &Stat, at: &Path) -> Result<(), String> {
        if !is_trusted(found.st_uid) {
            return Err(format!("{}, a link on its way, belongs to another user", at.display()));
        }
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(format!("{}: too many links", at.display()));
        }
        let target = readlinkat(link, "", Vec::new());
        let target = target.map_err(|error| format!("{}: {error}", at.display()))?;
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        if target.is_absolute() {
            (self.here, self.at) = (root()?, "/".into());
        }
        parts(&target).into_iter().rev().for_each(|part| self.left.push_front(part));
        Ok(())
    }
}

fn root() -> Result<OwnedFd, String> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open("/", flags, Mode::empty()).map_err(|error| format!("/: {error}"))
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let named = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    named.collect()
}

fn check_own(found: &Stat) -> Result<(), String> {
    if found.st_uid != rustix::process::geteuid().as_raw() {
        return Err("it belongs to another user".into());
    }
    if found.st_mode & 0o022 != 0 {
        return Err("other users may write to it".into());
    }
    Ok(())
}

/// Who may write to a directory may put another one in the place of what is in it; a sticky one, only where
/// that is one's own. root's group has none but system users.
fn check_parent(found: &Stat, at: &Path) -> Result<(), String> {
    let refuse = |why: &str| Err(format!("{}, on its way, {why}", at.display()));
    if !is_trusted(found.st_uid) {
        return refuse("belongs to another user");
    }
    let others = if found.st_gid == 0 { 0o002 } else { 0o022 };
    match found.st_mode & others != 0 && found.st_mode & STICKY == 0 {
        true => refuse("may be written to by other users"),
        false => Ok(()),
    }
}

/// Whether a user may have directories on the way: this user, root, and in a user namespace the one that
/// stands for all users outside, root among them.
fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw() || Some(uid) == outside()
}

fn outside() -> Option<u32> {
    let map = std::fs::read_to_string("/proc/self/uid_map").ok()?;
    let knows_all = map.split_whitespace().eq(["0", "0", "4294967295"]);
    let user = std::fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?;
    user.trim().parse().ok().filter(|_| !knows_all)
}

#[cfg(test)]
mod tests;
