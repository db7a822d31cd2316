//! Who uses a would-be member on this host.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::control::client::Client;
use crate::run_dir::RunDir;

/// Someone who must let go first.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) who: String,
    /// The command that makes them let go.
    pub(super) cure: String,
}

impl Holder {
    fn new(who: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { who: who.into(), cure: cure.into() }
    }
}

/// The first holder found; none if the member is free.
pub(super) fn of(path: &Path, run_dir: &RunDir) -> io::Result<Option<Holder>> {
    let path = fs::canonicalize(path)?;
    if let Some(holder) = array(&path, run_dir) {
        return Ok(Some(holder));
    }
    let host = Host::this()?;
    let metadata = fs::metadata(&path)?;
    let found = if metadata.file_type().is_block_device() {
        let device = metadata.rdev();
        let numbers = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        host.holder_of_device(&numbers, &path)
    } else if metadata.is_file() {
        host.holder_of_file(&path)
    } else {
        return Err(io::Error::other("neither a file nor a block device"));
    };
    match found {
        Some(holder) => Ok(Some(holder)),
        None => busy(&path),
    }
}

/// The running mdspace array that has this member.
fn array(path: &Path, run_dir: &RunDir) -> Option<Holder> {
    run_dir.running().ok()?.into_iter().find_map(|name| {
        let report = Client::connect(run_dir, &name).and_then(|mut c| c.report()).ok()?;
        let same = |member: &str| fs::canonicalize(member).is_ok_and(|member| member == path);
        let holds = report.array.members.iter().any(|member| same(&member.member));
        holds.then(|| Holder::new(format!("mdspace array {name}"), format!("mdspace stop {name}")))
    })
}

/// What an open that wants the member alone says.
fn busy(path: &Path) -> io::Result<Option<Holder>> {
    match open_alone(path) {
        Ok(_) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            let cure = format!("see `lsblk` and `fuser -v {}`", path.display());
            Ok(Some(Holder::new("the kernel or a process that has locked it", cure)))
        }
        Err(error) => Err(error),
    }
}

/// The kernel's own lists, read from text files.
struct Host {
    sys: PathBuf,
    mountinfo: String,
    swaps: String,
}

impl Host {
    fn this() -> io::Result<Self> {
        Ok(Self {
            sys: "/sys".into(),
            mountinfo: fs::read_to_string("/proc/self/mountinfo")?,
            // No file without swap support in the kernel.
            swaps: fs::read_to_string("/proc/swaps").unwrap_or_default(),
        })
    }

    /// A block device, by its numbers `major:minor`; its partitions count as it.
    fn holder_of_device(&self, numbers: &str, path: &Path) -> Option<Holder> {
        let folder = self.sys.join("dev/block").join(numbers);
        self.stacked_on(&folder)
            .or_else(|| self.mounted(numbers, path))
            .or_else(|| self.swapped_to(path))
            .or_else(|| self.partition_holder(&folder))
    }

    fn holder_of_file(&self, path: &Path) -> Option<Holder> {
        self.behind_loop(path).or_else(|| self.swapped_to(path))
    }

    /// md, dm and bcache say on which devices they stand.
    fn stacked_on(&self, folder: &Path) -> Option<Holder> {
        let holder = fs::read_dir(folder.join("holders")).ok()?.flatten().next()?.file_name();
        let holder = holder.to_string_lossy().into_owned();
        if holder.starts_with("md") {
            return Some(Holder::new(&holder, format!("mdadm --stop /dev/{holder}")));
        }
        let name = fs::read_to_string(self.sys.join("block").join(&holder).join("dm/name"));
        let name = name.map_or(holder.clone(), |name| name.trim().to_owned());
        Some(Holder::new(format!("{holder} ({name})"), format!("dmsetup remove {name}")))
    }

    fn mounted(&self, numbers: &str, path: &Path) -> Option<Holder> {
        self.mountinfo.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(' ').collect();
            // Fields from the kernel's Documentation/filesystems/proc.rst, 3.5.
            let (device, mount_point) = (*fields.get(2)?, *fields.get(4)?);
            let source = fields.iter().skip_while(|field| **field != "-").nth(2);
            let same = device == numbers || source.is_some_and(|source| Path::new(source) == path);
            let mount_point = unescaped(mount_point);
            same.then(|| {
                Holder::new(format!("a mount at {mount_point}"), format!("umount {mount_point}"))
            })
        })
    }

    fn swapped_to(&self, path: &Path) -> Option<Holder> {
        let uses = |line: &str| {
            line.split_whitespace().next().is_some_and(|name| Path::new(&unescaped(name)) == path)
        };
        let cure = || Holder::new("swap", format!("swapoff {}", path.display()));
        self.swaps.lines().skip(1).any(uses).then(cure)
    }

    fn partition_holder(&self, folder: &Path) -> Option<Holder> {
        for entry in fs::read_dir(folder).ok()?.flatten() {
            if !entry.path().join("partition").exists() {
                continue;
            }
            let numbers = fs::read_to_string(entry.path().join("dev")).unwrap_or_default();
            let path = Path::new("/dev").join(entry.file_name());
            if let Some(mut holder) = self.holder_of_device(numbers.trim(), &path) {
                holder.who = format!("{} on its partition {}", holder.who, path.display());
                return Some(holder);
            }
        }
        None
    }

    fn behind_loop(&self, path: &Path) -> Option<Holder> {
        fs::read_dir(self.sys.join("block")).ok()?.flatten().find_map(|entry| {
            let backing = fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
            let device = entry.file_name().to_string_lossy().into_owned();
            (Path::new(backing.trim_end_matches('\n')) == path)
                .then(|| Holder::new(format!("/dev/{device}"), format!("losetup -d /dev/{device}")))
        })
    }
}

/// The kernel writes space, tab, newline and backslash as `\ooo`.
fn unescaped(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (escape, character)| text.replace(escape, character))
}

/// Keeps a member to itself: fails while anyone else has it.
pub(crate) fn open_alone(path: &Path) -> io::Result<File> {
    let is_device = fs::metadata(path)?.file_type().is_block_device();
    let flags = if is_device { OFlags::EXCL.bits().cast_signed() } else { 0 };
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(io::ErrorKind::ResourceBusy.into()),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests;
