//! The members that a serving process has open, under the names that the user gave them.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use mdspace_engine::backend::{MemberId, MemberInfo};
use mdspace_engine::paths::Paths;
use mdspace_io::{Identity, MemberTable, OpenError, OpenMode, is_remote, path_of_name};

use crate::failure::Failure;
use crate::member_probe::{Look, Opened, Probed, Purpose, asked_of, refused};
use crate::report::PathsReport;

use super::places::{Place, Places};
use super::state_dir;

/// Time between two looks whether a member is closed.
const CLOSE_LOOK_EVERY: Duration = Duration::from_millis(1);

/// How long one such look may take; a device that does not answer it is waited for no longer.
const CLOSE_LOOK_MAX: Duration = Duration::from_secs(5);

/// How long a device may take to be opened: a disk that stands still begins to turn. What is made of paths
/// opens each of them, and each has an end of its own.
const OPENS_WITHIN: Duration = Duration::from_secs(30);
const PATHS_OPEN_WITHIN: Duration = Duration::from_secs(300);

type OpenAnswer = Result<(Opened, Option<Place>), OpenError>;

/// Whether a member lies behind a network or behind paths: of a file and a device the host itself says whether they are
/// there.
fn lies_elsewhere(name: &str) -> bool {
    is_remote(name) || name.starts_with("multipath:")
}

/// Why a member is not open.
pub(super) struct NotOpened {
    pub(super) failure: Failure,
    /// The device cannot be reached, and no other user of it is seen: an array may start without it.
    pub(super) is_away: bool,
}

/// Open members. They close when taken out, or with the process.
pub(super) struct OpenMembers {
    table: Arc<MemberTable>,
    listed: Arc<Listed>,
    places: Places,
    /// The operator's word holds that nothing sent to members earlier can be done any more.
    fenced: AtomicBool,
    /// Some were opened to be read only.
    read_only: AtomicBool,
}

/// Those that are open, by name, and which of them are files.
#[derive(Default)]
struct Listed {
    open: Mutex<Vec<(String, MemberId)>>,
    files: Mutex<Vec<OpenFile>>,
}

/// Closes a member when it is dropped, wherever that is: who opened it may not wait any more for what becomes of it.
pub(super) struct Closing {
    table: Arc<MemberTable>,
    listed: Arc<Listed>,
    member: Option<MemberId>,
}

impl Closing {
    /// It stays open.
    pub(super) fn keep_open(mut self) {
        self.member = None;
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.member.into_iter().for_each(|member| self.listed.close(&self.table, member));
    }
}

impl Listed {
    fn close(&self, table: &MemberTable, id: MemberId) {
        self.open().retain(|(_, open)| *open != id);
        self.files().retain(|file| file.id != id);
        table.close(id);
    }

    fn files(&self) -> MutexGuard<'_, Vec<OpenFile>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> MutexGuard<'_, Vec<(String, MemberId)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A member that is a regular file, as it was when it was opened.
struct OpenFile {
    id: MemberId,
    bytes: u64,
}

impl OpenMembers {
    /// `fenced`: nothing that was sent to members earlier can be done any more.
    pub(super) fn new(fenced: bool) -> Self {
        let table = MemberTable::new();
        table.keep_unproved(state_dir::unproved());
        Self::in_table(table, fenced)
    }

    fn in_table(table: Arc<MemberTable>, fenced: bool) -> Self {
        let (listed, places, read_only) = Default::default();
        Self { table, listed, places, fenced: AtomicBool::new(fenced), read_only }
    }

    pub(super) fn is_fenced(&self) -> bool {
        self.fenced.load(Ordering::Relaxed)
    }

    /// Whether some of them cannot be written to, whatever the array takes.
    pub(super) fn are_read_only(&self) -> bool {
        self.read_only.load(Ordering::Relaxed)
    }

    /// Members that are opened from now on are not known to be fenced.
    pub(super) fn have_started(&self) {
        self.fenced.store(false, Ordering::Relaxed);
    }

    /// What their names led to.
    pub(super) fn places(&self) -> &Places {
        &self.places
    }

    pub(super) fn table(&self) -> &Arc<MemberTable> {
        &self.table
    }

    /// Opens a member for this array alone: that which was probed, if it was.
    pub(super) fn open(
        &self,
        name: &str,
        mode: OpenMode,
        probed: &Probed,
        purpose: &Purpose,
    ) -> Result<(MemberId, MemberInfo), Failure> {
        self.try_open(name, mode, probed, purpose).map_err(|refused| refused.failure)
    }

    /// As [`OpenMembers::open`]. Where it does not open, says whether that is as good as if it were not there.
    pub(super) fn try_open(
        &self,
        name: &str,
        mode: OpenMode,
        probed: &Probed,
        purpose: &Purpose,
    ) -> Result<(MemberId, MemberInfo), NotOpened> {
        let what = purpose.what();
        let away = |failure| NotOpened { failure, is_away: lies_elsewhere(name) };
        self.refuse_unproved(name, mode, what).map_err(away)?;
        let looking = self
            .begin_to_open(name, mode)
            .and_then(|looking| looking.end_within(self.patience(name)));
        let silent = |error: io::Error| {
            let cure = "look at it and at the kernel's log; leave it out until it answers";
            Failure::new(what, format!("{name}: {error}"), cure)
        };
        let opened = looking.map_err(silent).map_err(away)?.map_err(|error| {
            // The other errors say that the device is in use, or that it can be reached.
            let is_away = matches!(error, OpenError::System { .. } | OpenError::Name { .. });
            let failure = refused(error, purpose);
            NotOpened { failure, is_away: is_away && lies_elsewhere(name) }
        })?;
        let (opened, place) = opened;
        let (id, info) = opened.take().expect("it was opened for us");
        if let Err(failure) = probed.refuse_other(&self.table, name, id, what) {
            self.table.close(id);
            return Err(NotOpened { failure, is_away: false });
        }
        // Once more: it was waited for until a member of this process had let go of it, and said what it owes.
        if let Err(failure) = self.refuse_unproved(name, mode, what) {
            self.table.close(id);
            return Err(away(failure));
        }
        self.places.note(name, place);
        self.read_only.fetch_or(mode.read_only, Ordering::Relaxed);
        self.list().push((name.to_owned(), id));
        let facts = self.table.facts(id);
        self.files().extend(facts.map(|facts| OpenFile { id, bytes: facts.bytes }));
        Ok((id, info))
    }

    /// An export has its own time to give each lane a connection.
    fn patience(&self, name: &str) -> Duration {
        match name {
            name if name.starts_with("multipath:") => PATHS_OPEN_WITHIN,
            name if is_remote(name) => OPENS_WITHIN + self.table.connects_within(),
            _ => OPENS_WITHIN,
        }
    }

    /// The system may never answer for a device: its thread is left behind then.
    fn begin_to_open(&self, name: &str, mode: OpenMode) -> io::Result<Look<OpenAnswer>> {
        let (table, path) = (self.table.clone(), name.to_owned());
        Look::start(name, move |_| {
            let opened = Opened::new(&table, &path, mode)?;
            Ok((opened, Place::of(&path)))
        })
    }

    /// Closes a member.
    pub(super) fn close(&self, id: MemberId) {
        self.listed.close(&self.table, id);
    }

    /// What closes a member later.
    pub(super) fn closing(&self, id: MemberId) -> Closing {
        Closing { table: self.table.clone(), listed: self.listed.clone(), member: Some(id) }
    }

    /// Files that someone has cut shorter since they were opened, each told once. Their data are
    /// lost, and a write behind the new end would make a hole of them that reads as zeroes.
    pub(super) fn newly_cut(&self) -> Vec<(String, MemberId)> {
        let open = self.list().clone();
        let mut files = self.files();
        let is_cut = |(_, id): &(String, MemberId)| {
            let opened = files.iter().find(|file| file.id == *id);
            let now = self.table.facts(*id);
            opened.zip(now).is_some_and(|(opened, now)| now.bytes < opened.bytes)
        };
        let cut: Vec<_> = open.into_iter().filter(is_cut).collect();
        files.retain(|file| cut.iter().all(|(_, id)| *id != file.id));
        cut
    }

    /// Files that someone has deleted, or put another one in the place of: what the array wrote to them is
    /// gone when they close.
    pub(super) fn deleted(&self) -> Vec<String> {
        let open = self.list();
        let is_gone = |(_, id): &&(String, MemberId)| {
            self.table.facts(*id).is_some_and(|facts| !facts.has_name)
        };
        open.iter().filter(is_gone).map(|(name, _)| name.clone()).collect()
    }

    /// Closes every member, and waits until the kernel has let go of them, but no longer than `patience`.
    /// The next command can then open them. Members that owe answers are not waited for.
    pub(super) fn close_all(&self, patience: Duration, owing: &[MemberId]) {
        let open = std::mem::take(&mut *self.list());
        open.iter().for_each(|(_, id)| self.table.close(*id));
        let until = Instant::now() + patience;
        for (name, id) in open {
            match owing.contains(&id) {
                true => tracing::warn!(
                    "{name} still has requests under way; the stop does not wait for them"
                ),
                false => drop(self.is_let_go(&name, id, until)),
            }
        }
    }

    /// Those that are open.
    pub(super) fn all(&self) -> Vec<MemberId> {
        self.list().iter().map(|(_, id)| *id).collect()
    }

    /// Their names.
    pub(super) fn names(&self) -> Vec<String> {
        self.list().iter().map(|(name, _)| name.clone()).collect()
    }

    /// Closes one member, and waits until the kernel has let go of it, but no longer than `patience`.
    pub(super) fn close_and_wait(&self, id: MemberId, patience: Duration) {
        let name = self.list().iter().find(|(_, open)| *open == id).map(|(name, _)| name.clone());
        self.close(id);
        if let Some(name) = name {
            self.is_let_go(&name, id, Instant::now() + patience);
        }
    }

    /// Waits until the process has let go of a closed member. False: it has not by `until`.
    fn is_let_go(&self, name: &str, id: MemberId, until: Instant) -> bool {
        while !self.table.is_closed(id) || !self.is_free(name) {
            if Instant::now() >= until {
                tracing::warn!("{name} has requests under way still");
                return false;
            }
            thread::sleep(CLOSE_LOOK_EVERY);
        }
        true
    }

    /// Whether the kernel has let go of a member that every lane has let go of: a ring gives a file
    /// back a moment after it was taken out of it. A member that cannot be opened, or that another process
    /// uses, is free as far as this process goes.
    fn is_free(&self, name: &str) -> bool {
        // Nothing else is held for one user.
        if self.places.of(name).is_none() {
            return true;
        }
        let mode = OpenMode { read_only: true, ..OpenMode::RUN };
        let looking = self.begin_to_open(name, mode);
        match looking.and_then(|looking| looking.end_within(CLOSE_LOOK_MAX)) {
            Ok(Err(error)) => !error.may_be_of_this_process(),
            // It closes at once.
            Ok(Ok(_)) => true,
            Err(_) => true,
        }
    }

    /// The member that the user means: by its name, else the one that is what `word` leads to. Where its own
    /// name leads by now does not matter.
    pub(super) fn find(&self, word: &str) -> Option<MemberId> {
        let open = self.list().clone();
        if let Some((_, id)) = open.iter().find(|(name, _)| name == word) {
            return Some(*id);
        }
        let meant = asked_of(&path_of_name(word), |path| Identity::of_name(path).ok()).flatten()?;
        open.iter().map(|(_, id)| *id).find(|id| self.table.identity(*id) == Some(meant))
    }

    /// Whether something of them is found out only by looking now and then: a file that someone cuts, a
    /// path that fails.
    pub(super) fn are_to_be_watched(&self) -> bool {
        !self.files().is_empty() || !self.paths().is_empty()
    }

    /// How the paths of those members are that have some.
    pub(super) fn multipath(&self) -> Vec<PathsReport> {
        let report = |(name, paths): (String, Arc<Paths>)| PathsReport::new(&name, paths.status());
        self.paths().into_iter().map(report).collect()
    }

    /// Members with several paths, and these.
    pub(super) fn paths(&self) -> Vec<(String, Arc<Paths>)> {
        let open = self.list();
        let with_paths =
            open.iter().filter_map(|(name, id)| Some((name.clone(), self.table.paths(*id)?)));
        with_paths.collect()
    }

    fn files(&self) -> MutexGuard<'_, Vec<OpenFile>> {
        self.listed.files()
    }

    fn list(&self) -> MutexGuard<'_, Vec<(String, MemberId)>> {
        self.listed.open()
    }
}

#[cfg(test)]
mod tests;
