//! A block device of the host, under a name that stays the same.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use mdspace_front::driver_device;
use mdspace_front::host_device::{self, HostDevice};
use mdspace_front::identity::Identity;
use mdspace_front::loop_device::{self, LoopDevice, LoopError, name_behind};

use crate::args::ArrayName;
use crate::udev;

/// Where the names of arrays are links to their devices.
const NAMES: &str = "/dev/mdspace";

/// How a second process ends where the device does not go.
pub(super) const ATTACHED: u8 = 3;

/// A device, and its name.
pub(super) struct BlockDevice<D: ?Sized> {
    name: PathBuf,
    /// None where another array's device has the name.
    link: Option<Link>,
    device: D,
}

/// A link that goes when the device does.
pub(super) struct Link {
    path: PathBuf,
    target: PathBuf,
    /// The device waits for the next process, under this name.
    stays: AtomicBool,
}

impl BlockDevice<LoopDevice> {
    /// Attaches a loop device to the array's file, and names it. Gives what another process has to keep.
    pub(super) fn over_file(
        file: &Path,
        name: &ArrayName,
        block_bytes: u32,
        read_only: bool,
    ) -> Result<(Self, File), LoopError> {
        for left in loop_device::left_at(file) {
            tracing::warn!("{} was left by a crash, and is detached", left.display());
            let_go(File::open(&left).ok());
        }
        let (device, kept) = LoopDevice::attach(file, block_bytes, read_only)?;
        Ok((Self::named(device, name), kept))
    }

    /// One more descriptor for a process that keeps it, unless it is detached.
    pub(super) fn open(&self) -> Option<File> {
        self.device.open()
    }

    /// Keeps users from it; see [`LoopDevice::claim`].
    pub(super) fn claim(&self, keeper: Option<u32>) -> Result<Option<File>, Vec<String>> {
        self.device.claim(keeper)
    }

    /// Gives it up, where no process keeps it.
    pub(super) fn let_go(&self) {
        let_go(self.device.open());
    }
}

impl<D: HostDevice> BlockDevice<D> {
    /// Gives a device its name.
    pub(super) fn named(device: D, name: &ArrayName) -> Self {
        let path = Path::new(NAMES).join(name.to_string());
        let link = match Link::make(&path, device.path()) {
            Ok(link) => Some(link),
            Err(error) => {
                tracing::warn!(%error, "{name} has no name in {NAMES}");
                None
            }
        };
        if link.is_some() {
            // systemd learns the name from udev's rule; where no udev runs it is for no one.
            drop(udev::look_again(device.path()));
        }
        Self { name: path, link, device }
    }
}

impl<D: HostDevice + ?Sized> BlockDevice<D> {
    /// Its name, and what that leads to.
    pub(super) fn describe(&self) -> String {
        let device = self.device.path().display();
        match &self.link {
            Some(link) => format!("{} ({device})", link.path.display()),
            None => device.to_string(),
        }
    }

    /// Where its name is, and where that leads.
    pub(super) fn link_ends(&self) -> [PathBuf; 2] {
        [self.name.clone(), self.device.path().to_owned()]
    }

    /// Keeps its name when this process lets go of it.
    pub(super) fn keep_name(&self) {
        self.link.iter().for_each(|link| link.stays.store(true, Ordering::Relaxed));
    }

    /// The device by itself.
    pub(super) fn device(&self) -> &D {
        &self.device
    }

    /// Whether it is the array's no more.
    pub(super) fn is_detached(&self) -> bool {
        self.device.is_detached()
    }

    /// How many requests it has done; none where no system file tells.
    pub(super) fn done(&self) -> Option<u64> {
        self.device.done()
    }

    /// Whether a block device has its bytes here.
    pub(super) fn bears(&self, device: u64) -> bool {
        self.device.bears(device)
    }

    /// What uses it besides the process that keeps it, as words for the user.
    pub(super) fn users(&self, keeper: Option<u32>) -> Vec<String> {
        self.device.users(keeper)
    }

    /// That another program has claimed it, in words.
    pub(super) fn in_use(&self) -> String {
        self.device.in_use()
    }
}

impl Link {
    /// A link that was made, by this process or another one.
    pub(super) fn known(path: PathBuf, target: PathBuf) -> Link {
        Link { path, target, stays: AtomicBool::new(false) }
    }

    fn is_there(&self) -> bool {
        fs::read_link(&self.path).is_ok_and(|target| target == self.target)
    }

    /// Makes the link. One that was left is replaced, and with it the device that it leads to; one to the device of
    /// a running array of this name is that one's.
    fn make(path: &Path, target: &Path) -> io::Result<Link> {
        folder()?;
        remove_others(path, target);
        if let Ok(old) = fs::read_link(path) {
            if old == target {
                return Ok(Self::known(path.to_owned(), target.to_owned()));
            }
            let is_over = is_over(&old, path.file_name());
            let is_served = match is_over {
                true => !loop_device::is_abandoned(&old),
                false => driver_device::is_served(&old, Path::new(NAMES)),
            };
            if is_served {
                let taken = format!("{} leads to {} already", path.display(), old.display());
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, taken));
            }
            if is_over {
                let_go(File::open(&old).ok());
            }
            fs::remove_file(path)?;
        }
        symlink(target, path)?;
        Ok(Self::known(path.to_owned(), target.to_owned()))
    }
}

/// Where all processes that serve devices have their names, and the locks of those. It is made if it is not there.
pub(super) fn folder() -> io::Result<&'static Path> {
    fs::create_dir_all(NAMES)?;
    Ok(Path::new(NAMES))
}

/// Whether a crash left this device of an array: who opens it waits for that array.
pub(super) fn is_left(device: &Path) -> bool {
    driver_device::is_left(device, Path::new(NAMES))
}

/// Ends what a crash left of an array that is served in another way now; gives the devices that are in use, and stay.
pub(super) fn release_left(identity: &Identity) -> Vec<PathBuf> {
    driver_device::release_left(identity, Path::new(NAMES))
}

/// Whether a device is that array's, as far as its driver says.
pub(super) fn is_of(device: &Path, identity: &Identity) -> bool {
    driver_device::is_of(device, identity, Path::new(NAMES))
}

/// Takes a device away: its name, what the kernel holds back of it, and the device itself, by `let_go`. For a process
/// that does not serve it. One that `is_claimed` has no file system.
pub(super) fn take_away(
    device: &impl AsFd,
    is_claimed: bool,
    link: Link,
    let_go: impl FnOnce() -> io::Result<()>,
) -> ExitCode {
    // While the device is kept no other array has it, and the name is no other's.
    drop(link);
    let written = host_device::write_back(device, is_claimed);
    match (written, let_go()) {
        (Err(_), _) => ExitCode::FAILURE,
        (Ok(()), Err(_)) => ExitCode::from(ATTACHED),
        (Ok(()), Ok(())) => ExitCode::SUCCESS,
    }
}

/// Has a loop device go with its last user.
fn let_go(device: Option<File>) {
    if let Some(device) = device
        && let Err(error) = loop_device::let_go(&device)
    {
        tracing::warn!(%error, "a loop device stays attached: see `losetup --list`");
    }
}

/// Removes what else leads to an array's device: processes that were killed have left it, and someone has detached
/// their device. Who uses that name would write to this array.
fn remove_others(own: &Path, target: &Path) {
    let names = fs::read_dir(NAMES).into_iter().flatten().flatten().map(|entry| entry.path());
    let leads_here = |name: &PathBuf| fs::read_link(name).is_ok_and(|found| found == target);
    for name in names.filter(|name| name != own).filter(leads_here) {
        match fs::remove_file(&name) {
            Ok(()) => tracing::warn!("{} was left by a crash, and is removed", name.display()),
            Err(error) => tracing::error!(%error, "{} leads to another array", name.display()),
        }
    }
}

/// Whether a loop device is attached to a file of this name. Others use a device again that a killed process
/// has left.
fn is_over(device: &Path, name: Option<&OsStr>) -> bool {
    name.is_some() && name_behind(device).as_deref() == name
}

impl Drop for Link {
    fn drop(&mut self) {
        if !*self.stays.get_mut()
            && self.is_there()
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(%error, "{} stays", self.path.display());
        }
    }
}
