//! A block device of the host over the array's file, under a name that stays the same.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use mdspace_front::loop_device::{LoopDevice, LoopError};

use crate::args::ArrayName;

/// Where the names of arrays are links to their devices.
const NAMES: &str = "/dev/mdspace";

/// A loop device, and its name.
pub(super) struct BlockDevice {
    device: LoopDevice,
    /// None where another array's device has it.
    link: Option<Link>,
}

/// A link that goes when the device does.
struct Link {
    path: PathBuf,
    target: PathBuf,
}

impl BlockDevice {
    /// Whether this user may have one, or what is missing.
    pub(super) fn is_possible() -> Result<(), String> {
        let control = "/dev/loop-control";
        let opened = fs::OpenOptions::new().read(true).write(true).open(control);
        opened.map(drop).map_err(|error| {
            format!("{control}: {error}; a block device needs root, and the module `loop`")
        })
    }

    /// Attaches a device to the array's file, and names it.
    pub(super) fn attach(
        file: &Path,
        name: &ArrayName,
        block_bytes: u32,
        read_only: bool,
    ) -> Result<Self, LoopError> {
        let device = LoopDevice::attach(file, block_bytes, read_only)?;
        let link = match Link::make(&Path::new(NAMES).join(name.to_string()), device.path()) {
            Ok(link) => Some(link),
            Err(error) => {
                tracing::warn!(%error, "{name} has no name in {NAMES}");
                None
            }
        };
        Ok(Self { device, link })
    }

    /// Its name, and what that leads to.
    pub(super) fn describe(&self) -> String {
        let device = self.device.path().display();
        match &self.link {
            Some(link) => format!("{} ({device})", link.path.display()),
            None => device.to_string(),
        }
    }

    /// What uses it, as words for the user.
    pub(super) fn users(&self) -> Vec<String> {
        self.device.users()
    }
}

impl Link {
    /// Makes the link. One that leads nowhere is replaced; one to a device in use belongs to another array.
    fn make(path: &Path, target: &Path) -> io::Result<Link> {
        fs::create_dir_all(NAMES)?;
        if let Ok(old) = fs::read_link(path) {
            if old != target && is_attached(&old) {
                let taken = format!("{} leads to {} already", path.display(), old.display());
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, taken));
            }
            fs::remove_file(path)?;
        }
        symlink(target, path)?;
        Ok(Link { path: path.to_owned(), target: target.to_owned() })
    }
}

/// Whether something is behind a loop device.
fn is_attached(device: &Path) -> bool {
    let name = device.file_name().unwrap_or_default();
    Path::new("/sys/block").join(name).join("loop/backing_file").exists()
}

impl Drop for Link {
    fn drop(&mut self) {
        if fs::read_link(&self.path).is_ok_and(|target| target == self.target)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(%error, "{} stays", self.path.display());
        }
    }
}
