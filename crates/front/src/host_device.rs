//! A block device of this host as which an array is served: who uses it, and what the kernel holds back of it.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, OFlags, StatxFlags, statx};
use rustix::io::Errno;
use rustix::ioctl;

use mdspace_io::MountLine;

use crate::peer::describe_process;

/// One that an array has given its bytes to, until it is detached: its number may be another's then.
pub trait HostDevice: Send + Sync {
    /// The device's path.
    fn path(&self) -> &Path;

    /// Its number.
    fn number(&self) -> u64;

    /// Whether it is the array's no more. Not so where no system file tells.
    fn is_detached(&self) -> bool;

    /// Its path, in words.
    fn name(&self) -> String {
        self.path().display().to_string()
    }

    /// One more descriptor, unless it is detached.
    fn open(&self) -> Option<File> {
        if self.is_detached() { None } else { File::open(self.path()).ok() }
    }

    /// What uses the device: mounts, what else has claimed it, and processes that have it open, as far as this user
    /// sees them. Not the process that keeps it. Once it is detached its number is another's, as are its users.
    ///
    /// Who has claimed it and shows nowhere is found by a claim alone (`claims`). That keeps all others from one for a
    /// moment, so that a mount may be refused.
    fn users(&self, keeper: Option<u32>, claims: bool) -> Vec<String> {
        if self.is_detached() {
            return Vec::new();
        }
        let mounts = mounts_of(self.number());
        if !mounts.is_empty() {
            return mounts
                .iter()
                .map(|place| format!("{} is mounted at {place}", self.name()))
                .collect();
        }
        if let Some(user) = mdspace_io::claimed_by(self.number()) {
            return vec![format!("{} is in use by {user}", self.name())];
        }
        if claims && is_claimed(self.path()) {
            return vec![format!("{} is in use: see `lsblk {}`", self.name(), self.name())];
        }
        // Another thread of this process may be looking too.
        let own = [Some(std::process::id()), keeper];
        let others = openers(self.path()).filter(|process| !own.contains(&Some(*process)));
        others.map(describe_process).collect()
    }

    /// Whether a block device has its bytes here: it is this one, a partition of it, or a mapping over it.
    fn bears(&self, device: u64) -> bool {
        !self.is_detached() && mdspace_io::lies_on(device, self.number())
    }

    /// How many requests the device has done; none where no system file tells.
    fn done(&self) -> Option<u64> {
        let text = fs::read_to_string(place_of(self.path()).join("stat")).ok()?;
        // Reads, writes, discards and flushes, as `Documentation/block/stat.rst` has them.
        let fields: Vec<u64> =
            text.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
        Some([0, 4, 11, 15].iter().filter_map(|&field| fields.get(field)).sum())
    }
}

/// Whether someone has a device for himself.
fn is_claimed(device: &Path) -> bool {
    let flags = OFlags::EXCL.bits().cast_signed();
    let refused = OpenOptions::new().read(true).custom_flags(flags).open(device).err();
    refused.and_then(|error| error.raw_os_error()) == Some(Errno::BUSY.raw_os_error())
}

/// Writes what the kernel holds back of the file systems on a device, of its partitions and of what is mapped over it,
/// in all mount namespaces. An error of one file system is told when the others are written.
///
/// For a process that does not serve the file: this waits until all of it is done.
pub fn write_file_systems(device: impl AsFd) -> io::Result<()> {
    let number = rustix::fs::fstat(&device)?.st_rdev;
    let (mut written, mut failed, mut out_of_reach) = (BTreeSet::new(), None, BTreeSet::new());
    for process in seers() {
        let mounts = fs::read_to_string(process.join("mountinfo")).unwrap_or_default();
        for mount in mounts_on(number, &mounts) {
            // Each namespace has its own place for what is mounted in several.
            if written.contains(&mount.number) {
                continue;
            }
            match open_mount(&process, &mount).map(rustix::fs::syncfs) {
                Some(Ok(())) => drop(written.insert(mount.number)),
                Some(Err(error)) => failed = Some(error.into()),
                None => out_of_reach.extend(mount.device().map(|device| (mount.number, device))),
            }
        }
    }
    for (file_system, below) in out_of_reach {
        if !written.contains(&file_system) {
            // The kernel writes it, and says nothing of what it could not write.
            let flushed = match below == number {
                true => flush_buffers(&device),
                false => open_device(below).and_then(flush_buffers),
            };
            failed = failed.or(Some(flushed.err().unwrap_or_else(|| {
                io::Error::other(
                    "a mounted file system could not be opened: another one may hide it",
                )
            })));
        }
    }
    failed.map_or(Ok(()), Err)
}

/// The root of a mount, if that is what its place leads to: another one may be mounted over it.
fn open_mount(process: &Path, mount: &MountLine<'_>) -> Option<File> {
    let place = mount.place();
    let place = process.join("root").join(place.strip_prefix("/").unwrap_or(&place));
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(place).ok()?;
    let found = statx(&opened, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    (found.stx_mnt_id == mount.id).then_some(opened)
}

fn open_device(device: u64) -> io::Result<File> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    File::open(format!("/dev/block/{major}:{minor}"))
}

/// Has the kernel write all that it holds back of a block device, and of a file system on it.
fn flush_buffers(device: impl AsFd) -> io::Result<()> {
    /// `BLKFLSBUF`, as `include/uapi/linux/fs.h` has it.
    const FLUSH_BUFFERS: ioctl::Opcode = 0x1261;
    // SAFETY: the call takes no pointer.
    unsafe { ioctl::ioctl(device, ioctl::NoArg::<FLUSH_BUFFERS>::new()) }.map_err(io::Error::from)
}

/// A process of each mount namespace that this user may look into, its own first.
fn seers() -> Vec<PathBuf> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes =
        entries.filter(|entry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit));
    let all = [PathBuf::from("/proc/self")].into_iter().chain(processes.map(|entry| entry.path()));
    let mut known = BTreeSet::new();
    all.filter(|process| {
        fs::read_link(process.join("ns/mnt")).is_ok_and(|namespace| known.insert(namespace))
    })
    .collect()
}

/// The mounts whose file systems have their bytes on a device.
fn mounts_on(number: u64, mountinfo: &str) -> impl Iterator<Item = MountLine<'_>> {
    let is_on = move |mount: &MountLine<'_>| {
        mount.device().is_some_and(|device| mdspace_io::lies_on(device, number))
    };
    MountLine::all(mountinfo).filter(is_on)
}

/// The processes that have a device open. No file is asked anything, for its file system may hang.
pub(crate) fn openers(device: &Path) -> impl Iterator<Item = u32> {
    let entries = |place: &Path| fs::read_dir(place).into_iter().flatten().flatten();
    let has_it = move |process: &u32| {
        let mut open = entries(Path::new(&format!("/proc/{process}/fd")));
        open.any(|open| fs::read_link(open.path()).is_ok_and(|leads| leads == device))
    };
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    entries(Path::new("/proc")).filter_map(number).filter(has_it)
}

/// Where a block device is mounted, as this process sees it.
fn mounts_of(number: u64) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts_on(number, &mounts).map(|mount| mount.place().display().to_string()).collect()
}

/// Where the kernel tells of a device.
pub(crate) fn place_of(device: &Path) -> PathBuf {
    Path::new("/sys/block").join(device.file_name().unwrap_or_default())
}
