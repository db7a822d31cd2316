//! The directory in which the file appears: mounted, unmounted, and freed of what a crash left there.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::io::{Errno, FdFlags};
use rustix::ioctl::{self, Updater, opcode};
use rustix::mount::{MountFlags, UnmountFlags};

use crate::making::{Held, Making};
use crate::passed;

/// What stands for the file system in `/proc/mounts`.
const SOURCE: &str = "mdspace";
/// How long a file system that is mounted already may take to say that it is there.
const PATIENCE: Duration = Duration::from_secs(2);
/// Unprivileged users mount by this program of Debian's `fuse3`.
const FUSERMOUNT: &str = "fusermount3";

/// A mounted directory.
#[derive(Debug)]
pub struct Mount {
    directory: PathBuf,
    id: u64,
    /// The connection to the kernel, until it is served.
    device: Option<OwnedFd>,
    by_root: bool,
}

/// Why nothing is mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The place is not fit.
    #[error("{0} is no directory: make it with `mkdir -p`, or name another one")]
    NotADirectory(PathBuf),
    /// Something is there that would be hidden.
    #[error("{0} is not empty: name an empty directory")]
    NotEmpty(PathBuf),
    /// What is mounted there does not answer.
    #[error("what is mounted at {0} does not answer: end its process, or name another directory")]
    Silent(PathBuf),
    /// Another process mounts something beside it, or holds it for other reasons.
    #[error("another program holds the lock of {0}: see `lslocks`, then try again")]
    Held(PathBuf),
    /// The host cannot.
    #[error("this host has no FUSE ({0}): load it with `modprobe fuse`")]
    NoFuse(io::Error),
    /// Only root mounts by itself.
    #[error("only root mounts without {FUSERMOUNT}, which cannot be run ({0}): install fuse3")]
    NoHelper(io::Error),
    /// The helper refused.
    #[error("{FUSERMOUNT} does not mount {directory}: {words}")]
    Refused {
        /// Where.
        directory: PathBuf,
        /// What it said.
        words: String,
    },
    /// The system refused.
    #[error("cannot mount {directory}: {source}")]
    System {
        /// Where.
        directory: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Looks whether `directory` can be mounted on. What a process that was killed left there is unmounted. Gives
/// where it leads: what is mounted over a link is not unmounted by the link's name.
pub fn prepare(directory: &Path) -> Result<PathBuf, MountError> {
    let not_a_directory = || MountError::NotADirectory(directory.to_owned());
    let Some(is_abandoned) = is_abandoned(directory) else {
        return Err(MountError::Silent(directory.to_owned()));
    };
    let place = fs::canonicalize(directory).map_err(|_| not_a_directory())?;
    if is_abandoned {
        let _making = making(&place)?;
        free(&place)?;
    }
    refuse_full(&place)?;
    Ok(place)
}

/// Locks the folder of a place for a mount.
fn making(place: &Path) -> Result<Making, MountError> {
    Making::begin(place).map_err(|Held(folder)| MountError::Held(folder))
}

/// Unmounts what a process that was killed left. Another one may have mounted there meanwhile, so that the caller has
/// the folder's lock.
fn free(place: &Path) -> Result<(), MountError> {
    match is_abandoned(place) {
        None => return Err(MountError::Silent(place.to_owned())),
        Some(true) => unmount(place),
        Some(false) => {}
    }
    Ok(())
}

fn refuse_full(directory: &Path) -> Result<(), MountError> {
    let not_a_directory = |_| MountError::NotADirectory(directory.to_owned());
    match fs::read_dir(directory).map_err(not_a_directory)?.next() {
        None => Ok(()),
        Some(_) => Err(MountError::NotEmpty(directory.to_owned())),
    }
}

/// Whether the process is gone that served a mount there. None: something is mounted that does not answer.
///
/// The question goes to the file system, which may be one of a process that stands still.
pub(crate) fn is_abandoned(directory: &Path) -> Option<bool> {
    let directory = directory.to_owned();
    with_patience(move || rustix::fs::statfs(&directory).err() == Some(Errno::NOTCONN))
}

/// What a look at a file system finds. None: it does not answer.
pub(crate) fn with_patience<T: Send + 'static>(
    look: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, answer) = mpsc::channel();
    thread::spawn(move || {
        // Who asked may have lost its patience.
        let _ = sender.send(look());
    });
    answer.recv_timeout(PATIENCE).ok()
}

/// What tells a mount from another one in the same place, before, after or below it. Kernels before 6.8 use
/// the numbers again.
///
/// The kernel knows it by itself: the process that serves the mount, which may be gone, is not asked.
fn id_of(directory: &Path) -> io::Result<u64> {
    /// `STATX_MNT_ID_UNIQUE`, of Linux 6.8.
    const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
    let wanted = StatxFlags::MNT_ID | UNIQUE;
    let found = rustix::fs::statx(CWD, directory, flags, wanted)?;
    let is_known = StatxFlags::from_bits_retain(found.stx_mask).intersects(wanted);
    match is_known {
        true => Ok(found.stx_mnt_id),
        // Before Linux 5.8.
        false => Ok(rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor)),
    }
}

/// Unmounts a directory if this mount is there still. No other one is made between the two looks.
pub fn unmount_left(directory: &Path, id: u64) {
    let _making = making(directory);
    if id_of(directory).is_ok_and(|found| found == id) {
        unmount(directory);
    }
}

/// Makes a directory for a mount that only its user sees, if it is not there.
pub fn make_directory(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

impl Mount {
    /// Mounts a directory that was [prepared](prepare), unless something was mounted there meanwhile: that would be
    /// hidden.
    pub fn new(directory: &Path) -> Result<Mount, MountError> {
        let _making = making(directory)?;
        free(directory)?;
        refuse_full(directory)?;
        match rustix::process::geteuid().is_root() {
            true => Mount::by_root(directory),
            false => Mount::by_helper(directory, Path::new(FUSERMOUNT)),
        }
    }

    fn by_root(directory: &Path) -> Result<Mount, MountError> {
        let device = open_device()?;
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,default_permissions",
            device.as_raw_fd()
        );
        let options = std::ffi::CString::new(options).expect("numbers and letters");
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount(SOURCE, directory, "fuse.mdspace", flags, options.as_c_str())
            .map_err(|error| system(directory, error))?;
        Mount::found(directory, device, true)
    }

    /// The helper mounts, and hands the device over through a socket.
    fn by_helper(directory: &Path, helper: &Path) -> Result<Mount, MountError> {
        let failed = |source| MountError::System { directory: directory.to_owned(), source };
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        rustix::io::fcntl_setfd(&theirs, FdFlags::empty()).map_err(|e| failed(e.into()))?;
        let ended = Command::new(helper)
            .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
            .args(["-o", &format!("fsname={SOURCE},subtype=mdspace,default_permissions"), "--"])
            .arg(directory)
            .stdin(Stdio::null())
            .output()
            .map_err(MountError::NoHelper)?;
        drop(theirs);
        let words = || String::from_utf8_lossy(&ended.stderr).trim().escape_default().to_string();
        let received = passed::receive(&ours, &mut [0]).and_then(|(_, device)| {
            let device = device.ok_or_else(|| {
                io::Error::other(format!("{FUSERMOUNT} did not hand it over: see `ulimit -n`"))
            })?;
            non_blocking(&device)?;
            Ok(device)
        });
        match (ended.status.success(), received) {
            (true, Ok(device)) => Mount::found(directory, device, false),
            (true, Err(error)) => {
                // It is mounted, and nobody can serve it.
                unmount_by_helper(directory, helper);
                Err(failed(error))
            }
            (false, _) => {
                Err(MountError::Refused { directory: directory.to_owned(), words: words() })
            }
        }
    }

    fn found(directory: &Path, device: OwnedFd, by_root: bool) -> Result<Mount, MountError> {
        let id = id_of(directory).map_err(|source| {
            unmount(directory);
            MountError::System { directory: directory.to_owned(), source }
        })?;
        Ok(Mount { directory: directory.to_owned(), id, device: Some(device), by_root })
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What [`unmount_left`] knows it by.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// A descriptor for each who serves the mount. None stays here: programs are told that it is over as soon as the
    /// last of those is closed, however that comes.
    pub(super) fn take_devices(&mut self, count: usize) -> Result<Vec<OwnedFd>, MountError> {
        let first = self.device.as_ref().expect("a mount is served once");
        let others = (1..count).map(|_| self.clone_of(first)).collect::<Result<Vec<_>, _>>()?;
        Ok(self.device.take().into_iter().chain(others).collect())
    }

    fn clone_of(&self, first: &OwnedFd) -> Result<OwnedFd, MountError> {
        let device = open_device()?;
        let mut first = first.as_raw_fd().cast_unsigned();
        // SAFETY: FUSE_DEV_IOC_CLONE reads the number of a descriptor through the pointer.
        unsafe {
            const CLONE: ioctl::Opcode = opcode::read::<u32>(229, 0);
            ioctl::ioctl(&device, Updater::<CLONE, u32>::new(&mut first))
        }
        .map_err(|error| system(&self.directory, error))?;
        Ok(device)
    }

    /// Takes the directory out of sight; programs that have the file open keep it until they close it. What
    /// was mounted there before or since stays.
    pub(super) fn unmount(&self) {
        if !id_of(&self.directory).is_ok_and(|found| found == self.id) {
            return;
        }
        match self.by_root {
            true => unmount(&self.directory),
            false => unmount_by_helper(&self.directory, Path::new(FUSERMOUNT)),
        }
    }
}

impl Drop for Mount {
    /// One that was never served answers nobody.
    fn drop(&mut self) {
        if self.device.is_some() {
            self.unmount();
        }
    }
}

fn unmount(directory: &Path) {
    if !rustix::process::geteuid().is_root() {
        return unmount_by_helper(directory, Path::new(FUSERMOUNT));
    }
    let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
    match rustix::mount::unmount(directory, flags) {
        // It was unmounted by somebody else.
        Ok(()) | Err(Errno::INVAL) => {}
        Err(error) => tracing::warn!(?directory, %error, "cannot unmount"),
    }
}

fn unmount_by_helper(directory: &Path, helper: &Path) {
    let mut command = Command::new(helper);
    command.args(["-u", "-z", "-q", "--"]).arg(directory);
    let ended = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if let Err(error) = ended {
        tracing::warn!(?directory, %error, "cannot unmount");
    }
}

fn open_device() -> Result<OwnedFd, MountError> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::open("/dev/fuse", flags, Mode::empty())
        .map_err(|error| MountError::NoFuse(error.into()))
}

fn non_blocking(device: &OwnedFd) -> Result<(), Errno> {
    let flags = rustix::fs::fcntl_getfl(device)?;
    rustix::fs::fcntl_setfl(device, flags | OFlags::NONBLOCK)?;
    rustix::io::fcntl_setfd(device, FdFlags::CLOEXEC)
}

fn system(directory: &Path, error: Errno) -> MountError {
    MountError::System { directory: directory.to_owned(), source: error.into() }
}

#[cfg(test)]
mod tests;
