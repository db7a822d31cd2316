//! The lock that a serving process has on its name: a file, and a place that no cleaner deletes.
//!
//! The file is what the verbs look at. If it is deleted, a second process could make and lock another one
//! of that name. So the name is taken among the abstract unix sockets too, which go with the process and
//! only then. Another user may take that name first: who holds it is asked, and then the file alone counts.

use std::fs::{self, File};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use super::{LOCK_ATTEMPTS, LOCK_RETRY_AFTER, RunDir};
use crate::args::ArrayName;
use crate::own_dir;

/// A name that this process has for itself, until it ends or lets go.
#[derive(Debug)]
pub(crate) struct NameLock {
    run_dir: RunDir,
    name: ArrayName,
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    /// None where another user has that place.
    place: Option<UnixListener>,
    /// The last one is that of the name. Those before it were deleted; who waits for them waits on.
    files: Vec<File>,
}

impl NameLock {
    /// Takes a name; none if another process has it.
    pub(super) fn take(run_dir: &RunDir, name: &ArrayName) -> io::Result<Option<Self>> {
        // The place before the file: at the end of a process it is free first.
        let place = match take_place(run_dir, name)? {
            Place::Taken(place) => Some(place),
            Place::Foreign => None,
            Place::InUse => return Ok(None),
        };
        let Some(file) = run_dir.try_lock_file(name)? else { return Ok(None) };
        let held = Mutex::new(Held { place, files: vec![file] });
        Ok(Some(Self { run_dir: run_dir.clone(), name: name.clone(), held }))
    }

    /// Makes and locks the file anew if it is not there any more, or is another one. True: it was.
    pub(crate) fn keep(&self) -> io::Result<bool> {
        let mut held = self.held();
        // Those who asked whose the place is.
        while held.place.as_ref().is_some_and(|place| place.accept().is_ok()) {}
        let Some(file) = held.files.last() else { return Ok(false) };
        if is_at(file, &self.run_dir.lock_path(&self.name))? {
            return Ok(false);
        }
        own_dir::make(self.run_dir.path()).map_err(io::Error::other)?;
        let file = self.run_dir.try_lock_file(&self.name)?;
        held.files.push(file.ok_or_else(|| io::Error::other("another process has locked it"))?);
        Ok(true)
    }

    /// Gives the name free.
    pub(crate) fn unlock(&self) -> io::Result<()> {
        let mut held = self.held();
        held.place = None;
        held.files.drain(..).try_for_each(|file| file.unlock())
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an open file is what its name leads to.
pub(super) fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (ours.dev(), ours.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// What became of the place of a name.
enum Place {
    Taken(UnixListener),
    /// Another process of this user has it.
    InUse,
    /// Another user has it, or it does not say whose it is.
    Foreign,
}

fn take_place(run_dir: &RunDir, name: &ArrayName) -> io::Result<Place> {
    let bytes = place_name(run_dir, name)?;
    let address = SocketAddr::from_abstract_name(&bytes)?;
    for attempt in 1.. {
        match UnixListener::bind_addr(&address) {
            Ok(place) => {
                place.set_nonblocking(true)?;
                return Ok(Place::Taken(place));
            }
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => return Err(error),
            Err(_) if attempt == LOCK_ATTEMPTS => break,
            // A process that has just ended has it for a moment longer.
            Err(_) => thread::sleep(LOCK_RETRY_AFTER),
        }
    }
    let holder = user_at(&bytes)?;
    if holder == Some(rustix::process::geteuid().as_raw()) {
        return Ok(Place::InUse);
    }
    tracing::warn!(
        "another user has the place of {name} in memory: only its lock file keeps others out"
    );
    Ok(Place::Foreign)
}

/// What the place of a name is called.
pub(super) fn place_name(run_dir: &RunDir, name: &ArrayName) -> io::Result<Vec<u8>> {
    let user = rustix::process::geteuid().as_raw();
    let folder = fs::canonicalize(run_dir.path())?;
    Ok(mdspace_io::abstract_name(&format!("mdspace-name/{user}/{name}/{}", folder.display())))
}

/// The user who listens at an abstract socket, if that can be told without waiting.
fn user_at(name: &[u8]) -> io::Result<Option<u32>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    if rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name)?).is_err() {
        return Ok(None);
    }
    Ok(Some(sockopt::socket_peercred(&socket)?.uid.as_raw()))
}
