//! A block device of this host as which an array is served: who uses it, and what the kernel holds back of it.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, OFlags, StatxFlags, statx};
use rustix::io::Errno;
use rustix::ioctl;
use rustix::thread::{CapabilitySet, capabilities};

use mdspace_io::MountLine;

use crate::loop_device;
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

    /// That a program has claimed it that cannot be found, in words.
    fn in_use(&self) -> String {
        format!("{} is in use: see `lsblk {}`", self.name(), self.name())
    }

    /// What uses the device: mounts, what else has claimed it, and processes that have it open, as far as this user
    /// sees them. Not the process that keeps it. Once it is detached its number is another's, as are its users.
    ///
    /// Who has claimed it and shows nowhere is found by a [`claim`] alone.
    fn users(&self, keeper: Option<u32>) -> Vec<String> {
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
        // Another thread of this process may be looking too.
        let own = [Some(std::process::id()), keeper];
        let devices = mdspace_io::devices_on(self.number());
        let others = openers(&devices).filter(|process| !own.contains(&Some(*process)));
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

/// Claims an open device. None where another user has claimed it.
pub fn claim_open(device: impl AsFd) -> Option<File> {
    let number = rustix::fs::fstat(device).ok()?.st_rdev;
    claim(&node_of(number)).ok()
}

/// Opens a device and claims it: as long as this is open no one else can.
pub fn claim(device: &Path) -> io::Result<File> {
    let flags = OFlags::EXCL.bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flags).open(device)
}

/// Whether a claim was refused since someone else has the device, a partition of it, or the disk whose partition it is.
pub fn is_claimed(refusal: &io::Error) -> bool {
    refusal.raw_os_error() == Some(Errno::BUSY.raw_os_error())
}

/// Writes what the kernel holds back of a device, of its partitions, of what is mapped over it, and of the file systems
/// on all of these, in all mount namespaces. An error of one is told when the others are written.
///
/// For a process that does not serve the file: this waits until all of it is done. A device that this process has
/// claimed (`is_own`) has no file system whose errors could be missed.
pub fn write_back(device: impl AsFd, is_own: bool) -> io::Result<()> {
    let number = rustix::fs::fstat(&device)?.st_rdev;
    let mut failed = None;
    let (mut written, mut below) = (BTreeSet::new(), BTreeSet::new());
    for process in seers() {
        let mounts = fs::read_to_string(process.join("mountinfo")).unwrap_or_default();
        for mount in mounts_on(number, &mounts) {
            // Each namespace has its own place for what is mounted in several.
            if written.contains(&mount.number) {
                continue;
            }
            match open_mount(&process, &mount).map(rustix::fs::syncfs) {
                Some(Ok(())) => {
                    written.insert(mount.number);
                    below.extend(mount.device());
                }
                Some(Err(error)) => failed = Some(error.into()),
                None => {}
            }
        }
    }
    let devices = mdspace_io::devices_on(number);
    // A file system that is mounted nowhere in sight, or is hidden there, has its device still. So has one of several
    // devices that goes by the name of another one. The kernel writes most of them, and says nothing of what it could
    // not write.
    let is_claimed = |device: &u64| claim(&node_of(*device)).is_err_and(|error| is_claimed(&error));
    let claimed: Vec<u64> =
        devices.iter().copied().filter(|device| !is_own && is_claimed(device)).collect();
    for &one in &devices {
        let flushed = match one == number {
            true => flush(&device),
            false => File::open(node_of(one)).and_then(flush),
        };
        let is_mounted = below.iter().any(|mounted| mdspace_io::lies_on(one, *mounted));
        let is_seen = is_mounted || devices.iter().any(|other| claims(*other, one, &claimed));
        let unseen = (claimed.contains(&one) && !is_seen).then(|| {
            io::Error::other("a file system could not be opened that is mounted there, or was")
        });
        failed = failed.or(flushed.err()).or(unseen);
    }
    failed.map_or(Ok(()), Err)
}

/// Whether a device has claimed the other one that it lies on: a mapping has, and a partition that is claimed.
fn claims(device: u64, below: u64, claimed: &[u64]) -> bool {
    let is_mapping = || !sysfs_of(device).join("partition").exists();
    device != below
        && mdspace_io::lies_on(device, below)
        && (claimed.contains(&device) || is_mapping())
}

/// Has the kernel write all that it holds back of a block device, and of a file system on it.
fn flush(device: impl AsFd) -> io::Result<()> {
    /// `BLKFLSBUF`, as `include/uapi/linux/fs.h` has it.
    const FLUSH_BUFFERS: ioctl::Opcode = 0x1261;
    // SAFETY: the call takes no pointer.
    unsafe { ioctl::ioctl(&device, ioctl::NoArg::<FLUSH_BUFFERS>::new()) }?;
    // It says nothing of what could not be written; this does.
    rustix::fs::fsync(device).map_err(io::Error::from)
}

/// Where a device of this number is opened: by the kernel's own name, or by the link that udev makes.
fn node_of(device: u64) -> PathBuf {
    let told = fs::read_to_string(sysfs_of(device).join("uevent")).unwrap_or_default();
    let name = told.lines().find_map(|line| line.strip_prefix("DEVNAME="));
    let node = name.map(|name| Path::new("/dev").join(name));
    let is_it = |node: &PathBuf| fs::metadata(node).is_ok_and(|found| found.rdev() == device);
    node.filter(is_it).unwrap_or_else(|| Path::new("/dev/block").join(in_words(device)))
}

/// Where the kernel tells of a device of this number.
fn sysfs_of(device: u64) -> PathBuf {
    Path::new("/sys/dev/block").join(in_words(device))
}

fn in_words(device: u64) -> String {
    format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device))
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

/// Whether a file system on a device is mounted, in whatever mount namespace.
fn is_mounted_anywhere(number: u64) -> bool {
    seers().iter().any(|process| {
        let mounts = fs::read_to_string(process.join("mountinfo")).unwrap_or_default();
        mounts_on(number, &mounts).next().is_some()
    })
}

/// The mounts whose file systems have their bytes on a device.
fn mounts_on(number: u64, mountinfo: &str) -> impl Iterator<Item = MountLine<'_>> {
    let is_on = move |mount: &MountLine<'_>| {
        mount.device().is_some_and(|device| mdspace_io::lies_on(device, number))
    };
    MountLine::all(mountinfo).filter(is_on)
}

/// The processes that have one of these devices open, by whatever name.
pub(crate) fn openers(devices: &[u64]) -> impl Iterator<Item = u32> {
    let entries = |place: &Path| fs::read_dir(place).into_iter().flatten().flatten();
    // Other files are not asked, for their file systems may hang.
    let is_it = |open: fs::DirEntry| {
        let is_device = fs::read_link(open.path())
            .is_ok_and(|leads| leads.components().any(|part| part.as_os_str() == "dev"));
        is_device && block_device_at(&open.path()).is_some_and(|number| devices.contains(&number))
    };
    let has_it = move |process: &u32| entries(Path::new(&format!("/proc/{process}/fd"))).any(is_it);
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    entries(Path::new("/proc")).filter_map(number).filter(has_it)
}

/// The number of the block device that a descriptor of another process leads to.
fn block_device_at(open: &Path) -> Option<u64> {
    let asked = statx(CWD, open, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE).ok()?;
    let is_block = FileType::from_raw_mode(asked.stx_mode.into()) == FileType::BlockDevice;
    is_block.then(|| rustix::fs::makedev(asked.stx_rdev_major, asked.stx_rdev_minor))
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

/// A device's number, as the kernel tells it.
pub(crate) fn number_of(device: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(place_of(device).join("dev"))?;
    let number = text.trim().split_once(':').and_then(|(major, minor)| {
        Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
    });
    number.ok_or_else(|| io::Error::other(format!("{} has no number", device.display())))
}

/// Whether a block device of this number is there.
pub(crate) fn is_node(path: &Path, number: u64) -> bool {
    fs::metadata(path)
        .is_ok_and(|found| found.file_type().is_block_device() && found.rdev() == number)
}

/// Whether drivers do what this process says: for the host's root with `CAP_SYS_ADMIN`. The nbd driver would log a
/// question.
pub(crate) fn is_host_root() -> io::Result<bool> {
    /// `PROC_USER_INIT_INO`, of `include/linux/proc_ns.h`: the host's own. A kernel without user namespaces has no such
    /// file.
    const HOST: &str = "user:[4026531837]";
    let is_host = fs::read_link("/proc/self/ns/user").map_or(true, |own| own == Path::new(HOST));
    let may = capabilities(None)?.effective.contains(CapabilitySet::SYS_ADMIN);
    Ok(rustix::process::geteuid().is_root() && is_host && may)
}

/// Whether something uses a device that no process serves, as far as that shows without opening it: that might wait for
/// it.
pub(crate) fn is_left_used(device: &Path, number: u64) -> bool {
    let left = Left { path: device.to_owned(), number };
    !left.users(None).is_empty()
        || is_mounted_anywhere(number)
        || loop_device::all_files().any(|file| is_on_disk(&file, device))
}

/// Whether a path is that of a disk or of a partition of it.
pub(crate) fn is_on_disk(path: &Path, disk: &Path) -> bool {
    let rest = path.to_str().zip(disk.to_str()).and_then(|(path, disk)| path.strip_prefix(disk));
    rest.is_some_and(|rest| {
        let number = rest.strip_prefix('p').unwrap_or_default();
        rest.is_empty() || (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

/// A device that no process serves.
struct Left {
    path: PathBuf,
    number: u64,
}

impl HostDevice for Left {
    fn path(&self) -> &Path {
        &self.path
    }

    fn number(&self) -> u64 {
        self.number
    }

    fn is_detached(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
