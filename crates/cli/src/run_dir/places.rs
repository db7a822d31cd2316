//! Where run directories of a user may be. New arrays go to the same one whatever the environment; those that
//! were started elsewhere are looked for there.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rustix::process::Uid;

use crate::own_dir;

const OF_ROOT: &str = "/run/mdspace";

/// Run directories of one user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Places {
    /// For new arrays.
    pub(super) first: PathBuf,
    /// Others in which arrays of this user may run.
    pub(super) others: Vec<PathBuf>,
    /// root's, where it is not this user's.
    pub(super) roots: Option<PathBuf>,
}

impl Places {
    pub(super) fn usual() -> Self {
        let logged_in = |path: &Path| own_dir::check(path) == Ok(true);
        Self::of(rustix::process::geteuid(), |name| std::env::var_os(name), logged_in)
    }

    /// One place and no other.
    pub(super) fn only(path: PathBuf) -> Self {
        Self { first: path, others: Vec::new(), roots: None }
    }

    /// The same places, of which that at `path` is for new arrays.
    pub(super) fn beginning_with(self, path: &Path) -> Self {
        let is_other = |other: &PathBuf| std::path::absolute(other).ok().as_deref() != Some(path);
        let others = std::iter::once(self.first).chain(self.others).filter(is_other);
        Self { first: path.to_owned(), others: others.collect(), roots: self.roots }
    }

    /// The places of a user with this environment; `is_ours` says whether a directory is there and safe.
    pub(super) fn of(
        user: Uid,
        environment: impl Fn(&str) -> Option<OsString>,
        is_ours: impl Fn(&Path) -> bool,
    ) -> Self {
        let set = |name| environment(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(path) = set("MDSPACE_RUN_DIR") {
            return Self::only(path);
        }
        if user.is_root() {
            return Self::only(OF_ROOT.into());
        }
        let systems = PathBuf::from(format!("/run/user/{}", user.as_raw()));
        let systems = is_ours(&systems).then_some(systems);
        let below = |folder: PathBuf| folder.join("mdspace");
        let mut all: Vec<PathBuf> =
            systems.into_iter().chain(set("XDG_RUNTIME_DIR")).map(below).collect();
        all.push(format!("/tmp/mdspace-{}", user.as_raw()).into());
        all.dedup();
        let first = all.remove(0);
        Self { first, others: all, roots: Some(OF_ROOT.into()) }
    }
}
