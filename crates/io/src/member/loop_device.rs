//! What a loop device keeps its bytes in: the very file or device, whatever its name leads to by now.
//!
//! All may read the name under which it was attached. The numbers are told to whoever may read the device, as soon as the
//! file system of its file answers.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::holder::{self, SilentLoop};
use super::lock::Bytes;
use super::loop_info::LoopInfo;
use super::mounts;

mod question;

pub(super) use question::{Question, is_silence};

/// A file, by its device and inode number.
pub(super) type FileId = (u64, u64);

/// What lies behind a loop device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behind {
    File(FileId),
    /// A block device, by its number.
    Device(u64),
}

impl Behind {
    pub(super) fn of_metadata(metadata: &Metadata) -> Self {
        match metadata.file_type().is_block_device() {
            true => Self::Device(metadata.rdev()),
            false => Self::File((metadata.dev(), metadata.ino())),
        }
    }

    /// What a name leads to.
    pub(super) fn of_name(path: &Path) -> io::Result<Self> {
        fs::metadata(path).map(|found| Self::of_metadata(&found))
    }

    /// What an open loop device has, or the one that has an open partition.
    pub(super) fn of_open(device: &File) -> io::Result<Self> {
        LoopInfo::of(device).map(|info| Self::of_info(&info))
    }

    fn of_info(&LoopInfo { device, inode, device_of_node, .. }: &LoopInfo) -> Self {
        // Of a plain file some kernels say the number of its file system here.
        match device_of_node != 0 && device_of_node != device {
            true => Self::Device(device_of_node),
            false => Self::File((device, inode)),
        }
    }

    /// What the loop device has that sysfs shows at `place`.
    fn of_place(place: &Path) -> io::Result<Self> {
        let number = holder::number_of(place);
        let node = node(place);
        let is_it =
            |found: Metadata| found.file_type().is_block_device() && Some(found.rdev()) == number;
        let another = || io::Error::other(format!("{} is another device", node.display()));
        // Looked at first: to open another device may change that.
        if !is_it(fs::metadata(&node)?) {
            return Err(another());
        }
        let device = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&node)?;
        match is_it(device.metadata()?) {
            true => Self::of_open(&device),
            false => Err(another()),
        }
    }
}

/// Where a loop device that sysfs shows there is found as a rule.
pub(super) fn node(place: &Path) -> PathBuf {
    Path::new("/dev").join(place.file_name().unwrap_or_default())
}

/// The name of the file or device of a loop device, and its part of that.
#[derive(Debug)]
pub(super) struct Backing {
    pub(super) path: PathBuf,
    pub(super) bytes: Bytes,
}

impl Backing {
    /// Of the loop device that sysfs shows at `place`, if it is one and has something.
    pub(super) fn of(place: &Path) -> Option<Self> {
        let path = fs::read_to_string(place.join("loop/backing_file")).ok()?;
        let start = holder::count_in(&place.join("loop/offset")).unwrap_or(0);
        let limit = holder::count_in(&place.join("loop/sizelimit")).unwrap_or(0);
        let path = PathBuf::from(path.strip_suffix('\n').unwrap_or(&path));
        Some(Self { path, bytes: Bytes::new(start, limit) })
    }
}

/// A loop device that has something, as sysfs shows it.
#[derive(Debug)]
pub(super) struct LoopDevice {
    pub(super) place: PathBuf,
    pub(super) number: u64,
    pub(super) backing: Backing,
}

impl LoopDevice {
    /// All that there are. None of them is asked.
    pub(super) fn all(sysfs: &Path) -> Vec<Self> {
        let at = |place: PathBuf| {
            let (backing, number) = (Backing::of(&place)?, holder::number_of(&place)?);
            Some(Self { place, number, backing })
        };
        holder::entries(&sysfs.join("block")).into_iter().filter_map(at).collect()
    }

    /// Where it is found as a rule.
    pub(super) fn node(&self) -> PathBuf {
        node(&self.place)
    }
}

/// Whom to ask what a loop device has, by its number and its place in sysfs.
pub(super) type Ask<'a> = dyn Fn(u64, &Path) -> Question + 'a;

/// Asks the device itself.
pub(super) fn ask(_number: u64, place: &Path) -> Question {
    let place = place.to_owned();
    Question::ask(&node(&place), move || Behind::of_place(&place))
}

/// The loop devices over something.
#[derive(Debug, Default)]
pub(super) struct Over {
    /// Those that have it. Where a device cannot be asked, its name has to do.
    pub(super) sure: Vec<LoopDevice>,
    /// Those that do not answer, and that nothing else acquits.
    pub(super) silent: Vec<LoopDevice>,
}

impl Over {
    /// Asks `devices`, all at once, which of them have it. One that hangs does not answer for the others.
    pub(super) fn of(behind: Behind, devices: Vec<LoopDevice>, ask: &Ask<'_>) -> Self {
        let asked = devices.iter().map(|device| ask(device.number, &device.place));
        let answers = Question::answers(asked.collect());
        let named = |(device, answer): (&LoopDevice, &io::Result<Behind>)| match answer {
            Ok(told) => Question::answered(Ok(*told)),
            Err(_) => ask_name(&device.backing.path),
        };
        let named = Question::answers(devices.iter().zip(&answers).map(named).collect());
        let mut over = Self::default();
        for ((device, answer), named) in devices.into_iter().zip(answers).zip(named) {
            let is_silent = answer.is_err_and(|error| is_silence(&error));
            match named {
                Ok(told) if told == behind => over.sure.push(device),
                Ok(_) => {}
                Err(error) if is_silent && may_be(behind, &device.backing.path, &error) => {
                    over.silent.push(device);
                }
                Err(_) => {}
            }
        }
        over
    }

    /// One that has it; none if no device has it.
    pub(super) fn found(self) -> Result<Option<LoopDevice>, SilentLoop> {
        match (self.sure.into_iter().next(), self.silent.first()) {
            (Some(sure), _) => Ok(Some(sure)),
            (None, Some(silent)) => Err(SilentLoop(silent.node())),
            (None, None) => Ok(None),
        }
    }
}

/// What a name leads to: its file system may not answer.
fn ask_name(path: &Path) -> Question {
    let name = path.to_owned();
    Question::ask(path, move || Behind::of_name(&name))
}

/// Whether it may be what had this name, which now fails with `error`. What is on another file system than the name, where
/// that one hangs, is something else.
fn may_be(behind: Behind, name: &Path, error: &io::Error) -> bool {
    let Behind::File((device, _)) = behind else { return true };
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    !is_silence(error) || mounts::may_hold(&mounts, name, device)
}

#[cfg(test)]
mod tests;
