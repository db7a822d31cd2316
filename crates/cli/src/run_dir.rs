//! Where the serving processes of one user meet: sockets and lock files.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Uid, test_kill_process};

use crate::args::ArrayName;
use crate::failure::Failure;
use crate::own_dir;

mod name_lock;
mod places;
mod turn;

pub(crate) use name_lock::NameLock;
use places::Places;
pub(crate) use turn::{Taken, Turn, Work};

/// Bytes of `sun_path` in a socket address, without the final zero (`<linux/un.h>`).
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Those who look whether an array runs hold its lock for microseconds.
const LOCK_ATTEMPTS: u32 = 20;
const LOCK_RETRY_AFTER: Duration = Duration::from_millis(5);

/// The directory that holds `NAME.sock` and `NAME.lock` of each running array.
///
/// An array runs exactly while its process holds `NAME.lock`; a socket without a held lock is what
/// a dead process left behind.
#[derive(Clone, Debug)]
pub(crate) struct RunDir {
    path: PathBuf,
    /// Further ones of this user: arrays are found there, and none is started.
    others: Vec<PathBuf>,
    /// root's, where it is another user's.
    roots: Option<PathBuf>,
}

/// An array that runs, and where.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    pub(crate) run_dir: RunDir,
    pub(crate) name: ArrayName,
}

impl RunDir {
    /// Where this user's new arrays go: `$MDSPACE_RUN_DIR`, else the usual place; made with mode 0700.
    pub(crate) fn open() -> Result<Self, Failure> {
        Self::open_among(Places::usual())
    }

    /// Where an array of this user runs; where it would be started if it does not.
    pub(crate) fn open_of(name: &ArrayName) -> Result<Self, Failure> {
        Self::open().map(|run_dir| run_dir.having(name))
    }

    /// As [`open`](Self::open), for an array that is to run at `path`: an array that is restarted stays where it was.
    pub(crate) fn open_in(path: &Path) -> Result<Self, Failure> {
        Self::open_among(Places::usual().beginning_with(path))
    }

    /// The directory at `path` alone, made if it is not there, refused if it is another user's.
    pub(crate) fn open_at(path: PathBuf) -> Result<Self, Failure> {
        Self::open_among(Places::only(path))
    }

    fn open_among(places: Places) -> Result<Self, Failure> {
        let Places { first: path, others, roots } = places;
        // The serving process leaves the directory that it was started in.
        let path = std::path::absolute(&path).unwrap_or(path);
        let failure = |why: String| {
            Failure::new(
                format!("cannot use the run directory {}", path.display()),
                why,
                "set MDSPACE_RUN_DIR to a directory of your own with a short path",
            )
        };
        own_dir::make(&path).map_err(failure)?;
        if path.as_os_str().len() + 1 + 32 + ".sock".len() > SOCKET_PATH_BYTES_MAX {
            return Err(failure("its path is too long for a socket address".into()));
        }
        Ok(Self { path, others, roots })
    }

    /// The others that are there and safe.
    fn others(&self) -> impl Iterator<Item = Self> {
        let safe = self.others.iter().filter(|path| own_dir::check(path) == Ok(true));
        safe.map(|path| Self { path: path.clone(), others: Vec::new(), roots: None })
    }

    /// That of this user's directories in which an array runs; this one where it runs in none.
    pub(crate) fn having(&self, name: &ArrayName) -> Self {
        let runs = |run_dir: &Self| run_dir.is_running(name).unwrap_or(false);
        match runs(self) {
            true => self.clone(),
            false => self.others().find(runs).unwrap_or_else(|| self.clone()),
        }
    }

    /// Whose arrays cannot be shown, and why: directories that may not be read, or are not safe.
    pub(crate) fn unseen(&self) -> Vec<String> {
        let not_safe = |path: &PathBuf| {
            let why = own_dir::check(path).err()?;
            Some(format!("arrays in {} are not shown: {why}", path.display()))
        };
        let not_read = |path: &PathBuf| match std::fs::read_dir(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Some(format!("arrays of root are not shown: {}: {error}", path.display()))
            }
            _ => None,
        };
        self.others
            .iter()
            .filter_map(not_safe)
            .chain(self.roots.iter().filter_map(not_read))
            .collect()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The control socket of an array.
    pub(crate) fn socket(&self, name: &ArrayName) -> PathBuf {
        self.path.join(format!("{name}.sock"))
    }

    /// Where the file of an array is mounted that has a block device.
    pub(crate) fn mount_point(&self, name: &ArrayName) -> PathBuf {
        self.path.join(format!("{name}.mount"))
    }

    fn lock_path(&self, name: &ArrayName) -> PathBuf {
        self.path.join(format!("{name}.lock"))
    }

    /// Takes the lock of an array for as long as the value lives; none if it runs already.
    pub(crate) fn try_lock(&self, name: &ArrayName) -> io::Result<Option<NameLock>> {
        for other in self.others() {
            if other.is_running(name)? {
                return Ok(None);
            }
        }
        NameLock::take(self, name)
    }

    /// Takes the turn to do such work on an array, for as long as the value lives; else says who has had it for all of
    /// `patience`.
    pub(crate) fn take_turn(
        &self,
        name: &ArrayName,
        work: Work,
        patience: Duration,
    ) -> io::Result<Result<Turn, Taken>> {
        Turn::take(work.path(self, name), patience)
    }

    /// Whether an array is being restarted. It may not run meanwhile.
    pub(crate) fn is_being_restarted(&self, name: &ArrayName) -> bool {
        Turn::is_taken(&Work::Restart.path(self, name))
    }

    fn try_lock_file(&self, name: &ArrayName) -> io::Result<Option<File>> {
        let file = self.open_lock(name)?;
        for attempt in 1.. {
            match file.try_lock() {
                Ok(()) => return Ok(Some(file)),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if attempt == LOCK_ATTEMPTS => break,
                // Perhaps only someone who looks whether the array runs.
                Err(TryLockError::WouldBlock) => thread::sleep(LOCK_RETRY_AFTER),
            }
        }
        Ok(None)
    }

    /// Whether a process holds the lock of an array.
    pub(crate) fn is_running(&self, name: &ArrayName) -> io::Result<bool> {
        // Who only looks leaves no file of a mistyped name.
        let opened = File::options().read(true).open(self.lock_path(name));
        let file = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            opened => opened?,
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Waits until no process holds the lock of an array, but no longer than `patience`. Says whether that is so.
    pub(crate) fn wait_until_gone(&self, name: &ArrayName, patience: Duration) -> io::Result<bool> {
        wait_while(patience, || self.is_running(name))
    }

    /// As [`wait_until_gone`](Self::wait_until_gone), for the process of this number alone: another one may have
    /// taken the name as soon as it was free.
    pub(crate) fn wait_until_process_gone(
        &self,
        name: &ArrayName,
        process: Option<i32>,
        patience: Duration,
    ) -> io::Result<bool> {
        let process = process.and_then(Pid::from_raw);
        let has_ended = || process.is_some_and(|it| test_kill_process(it) == Err(Errno::SRCH));
        wait_while(patience, || Ok(!has_ended() && self.is_running(name)?))
    }

    /// Arrays of this user that run now, in order of their names.
    pub(crate) fn running(&self) -> io::Result<Vec<Running>> {
        let mut running = self.running_here()?;
        for other in self.others() {
            running.extend(other.running_here()?);
        }
        running.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(running)
    }

    /// An array that runs and of whose name this may be a misspelling.
    pub(crate) fn like(&self, name: &ArrayName) -> Option<ArrayName> {
        let running = self.running().unwrap_or_default().into_iter();
        running.map(|running| running.name).find(|known| is_like(name.as_str(), known.as_str()))
    }

    fn running_here(&self) -> io::Result<Vec<Running>> {
        let mut running = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let file_name = entry?.file_name();
            let Some(name) = file_name.to_str().and_then(|file| file.strip_suffix(".lock")) else {
                continue;
            };
            let Ok(name) = name.parse::<ArrayName>() else { continue };
            if self.is_running(&name)? {
                running.push(Running { run_dir: self.clone(), name });
            }
        }
        Ok(running)
    }

    fn open_lock(&self, name: &ArrayName) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(self.lock_path(name))
    }
}

/// Whether one name may be another one mistyped: one letter is wrong, too much or missing, or two that stand
/// together are exchanged.
fn is_like(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let same = |pair: &(&u8, &u8)| pair.0 == pair.1;
    let begin = one.iter().zip(other).take_while(same).count();
    let (one, other) = (&one[begin..], &other[begin..]);
    let end = one.iter().rev().zip(other.iter().rev()).take_while(same).count();
    match (&one[..one.len() - end], &other[..other.len() - end]) {
        (one, other) if one.len() <= 1 && other.len() <= 1 => true,
        ([a, b], [c, d]) => (a, b) == (d, c),
        _ => false,
    }
}

fn wait_while(patience: Duration, is_there: impl Fn() -> io::Result<bool>) -> io::Result<bool> {
    let until = Instant::now() + patience;
    while is_there()? {
        if Instant::now() >= until {
            return Ok(false);
        }
        thread::sleep(LOCK_RETRY_AFTER);
    }
    Ok(true)
}

/// Every directory in which arrays of a user with this environment may have run, whether or not it is there.
pub(crate) fn places_of(user: Uid, environment: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let usual = |name: &str| environment(name).filter(|_| name != "MDSPACE_RUN_DIR");
    let all = [Places::of(user, &environment, |_| true), Places::of(user, usual, |_| true)];
    let mut paths: Vec<PathBuf> = all
        .into_iter()
        .flat_map(|places| std::iter::once(places.first).chain(places.others))
        .collect();
    let mut seen = BTreeSet::new();
    paths.retain(|path| seen.insert(path.clone()));
    paths
}

#[cfg(test)]
mod tests;
