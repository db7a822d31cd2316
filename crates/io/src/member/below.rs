//! What lies below a block device: the files and devices that keep its bytes.
//!
//! The kernel keeps two users of one block device apart, but not the user of a loop device and the
//! user of its file, nor two loop devices over one file. A member on a loop device therefore locks
//! its bytes in the file, as a member that is the file itself does. So does one on mappings over a loop device,
//! which the kernel gives to several mappings at once.

mod mapping;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::holder::{self, Holder};
use super::lock::{self, Bytes};
use super::named::Identity;
use super::probe::sysfs;
use mapping::Part;

/// Where the kernel shows its devices.
const SYSFS: &str = "/sys";

/// Devices below each other; the kernel itself bears fewer.
const LEVELS_MAX: usize = 16;

/// Why the bytes below a device cannot be had.
#[derive(Debug)]
pub(super) enum Refused {
    /// Someone uses them; the holder, where it can be seen.
    InUse(Option<Holder>),
    /// The system refused.
    System(io::Error),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// Locks the bytes below a block device for as long as the files live; shared if only read.
pub(super) fn claim(device: u64, shared: bool) -> Result<Vec<File>, Refused> {
    claim_in(Path::new(SYSFS), &mapping::parts, device, shared)
}

fn claim_in(
    sysfs: &Path,
    parts: &dyn Fn(u64) -> Option<Vec<Part>>,
    device: u64,
    shared: bool,
) -> Result<Vec<File>, Refused> {
    let mut claim = Claim { sysfs, parts, held: Vec::new() };
    claim.device(device, Bytes::ALL, shared, 0)?;
    Ok(claim.held.into_iter().map(|held| held.file).collect())
}

/// Whether a block device is another one or lies on it: as a partition of it, or as a mapping over it.
pub fn lies_on(device: u64, other: u64) -> bool {
    lies_on_within(device, other, 0)
}

fn lies_on_within(device: u64, other: u64, level: usize) -> bool {
    let place = sysfs(device).filter(|_| device != other && level < LEVELS_MAX);
    let Some(place) = place else { return device == other };
    let disk = place.join("partition").exists().then(|| place.parent()).flatten();
    let below = holder::entries(&place.join("slaves")).into_iter().chain(disk.map(Path::to_owned));
    below
        .filter_map(|below| holder::number_of(&below))
        .any(|below| lies_on_within(below, other, level + 1))
}

struct Claim<'a> {
    sysfs: &'a Path,
    /// What a mapping is made of, where that can be known.
    parts: &'a dyn Fn(u64) -> Option<Vec<Part>>,
    held: Vec<Held>,
}

/// A file of which bytes are locked, or a device that is opened exclusively. Once, whatever a mapping has of
/// it.
struct Held {
    identity: Identity,
    shared: bool,
    file: File,
}

impl Claim<'_> {
    /// Locks what lies below these bytes of a device that is claimed itself.
    fn device(
        &mut self,
        device: u64,
        bytes: Bytes,
        shared: bool,
        level: usize,
    ) -> Result<(), Refused> {
        let Some(place) = self.place(device).filter(|_| level < LEVELS_MAX) else { return Ok(()) };
        if place.join("partition").exists() {
            let (Some(disk), Some(part)) = (place.parent(), partition(&place)) else {
                return Ok(());
            };
            let Some(disk) = holder::number_of(disk) else { return Ok(()) };
            return self.device(disk, bytes.within(part), shared, level + 1);
        }
        if let Some(backing) = Backing::of(&place) {
            let shared = shared || number(&place.join("ro")) == Some(1);
            return self.backing(device, &backing, bytes, shared, level);
        }
        let is_mapping = place.join("dm").exists();
        if let Some(parts) = is_mapping.then(|| (self.parts)(device)).flatten() {
            let below = |part: &Part| Some((part.device, part.below(bytes)?));
            return parts
                .iter()
                .filter_map(below)
                .try_for_each(|(device, bytes)| self.device(device, bytes, shared, level + 1));
        }
        // Which bytes it uses is not known: it shares them with others of its kind, and excludes who
        // uses the file itself.
        for slave in holder::entries(&place.join("slaves")) {
            let slave = fs::canonicalize(slave).ok().and_then(|slave| holder::number_of(&slave));
            if let Some(slave) = slave {
                self.device(slave, Bytes::ALL, true, level + 1)?;
            }
        }
        Ok(())
    }

    fn place(&self, device: u64) -> Option<PathBuf> {
        let (major, minor) = (libc::major(device), libc::minor(device));
        fs::canonicalize(self.sysfs.join(format!("dev/block/{major}:{minor}"))).ok()
    }

    /// Locks what a loop device keeps its bytes in.
    fn backing(
        &mut self,
        device: u64,
        backing: &Backing,
        bytes: Bytes,
        shared: bool,
        level: usize,
    ) -> Result<(), Refused> {
        let metadata = match fs::metadata(&backing.path) {
            Ok(metadata) => metadata,
            // A file without a name can be opened by nobody else.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let bytes = bytes.within(backing.bytes);
        let is_block = metadata.file_type().is_block_device();
        let held = (Identity::of_metadata(&metadata), shared || is_block);
        let at = match self.held.iter().position(|known| (known.identity, known.shared) == held) {
            Some(known) => known,
            None => {
                let file =
                    open(&backing.path, is_block).map_err(|error| match error.raw_os_error() {
                        Some(libc::EBUSY) => Refused::InUse(holder::of_device(metadata.rdev())),
                        _ => Refused::System(error),
                    })?;
                self.held.push(Held { identity: held.0, shared: held.1, file });
                self.held.len() - 1
            }
        };
        if is_block {
            return self.device(metadata.rdev(), bytes, shared, level + 1);
        }
        let id = (metadata.dev(), metadata.ino());
        if !lock::bytes(&self.held[at].file, bytes, shared)? {
            return Err(Refused::InUse(holder::of_locked_file(id)));
        }
        match self.mounted_twin(device, id, bytes) {
            Some(holder) => Err(Refused::InUse(Some(holder))),
            None => Ok(()),
        }
    }

    /// Who uses, in the kernel, another loop device over these bytes of a file, or a partition of one.
    fn mounted_twin(&self, device: u64, file: (u64, u64), bytes: Bytes) -> Option<Holder> {
        holder::entries(&self.sysfs.join("block")).into_iter().find_map(|place| {
            let twin = Backing::of(&place).filter(|twin| twin.bytes.meets(bytes))?;
            let found = fs::metadata(&twin.path).ok()?;
            let number = holder::number_of(&place).filter(|number| *number != device)?;
            if (found.dev(), found.ino()) != file {
                return None;
            }
            let on_partition = |part: PathBuf| {
                let its = partition(&part)?.within(twin.bytes);
                its.meets(bytes).then_some(())?;
                holder::in_kernel(&part, holder::number_of(&part)?)
            };
            let whole = holder::in_kernel(&place, number);
            whole.or_else(|| holder::entries(&place).into_iter().find_map(on_partition))
        })
    }
}

/// Opened to be locked only: for writing where that is allowed, since only such a file takes an
/// exclusive lock.
fn open(path: &Path, is_block: bool) -> io::Result<File> {
    let flags = if is_block { libc::O_NONBLOCK | libc::O_EXCL } else { libc::O_NONBLOCK };
    OpenOptions::new().read(true).write(!is_block).custom_flags(flags).open(path)
}

/// The file or device of a loop device, and its part of it.
struct Backing {
    path: PathBuf,
    bytes: Bytes,
}

impl Backing {
    fn of(place: &Path) -> Option<Self> {
        let path = fs::read_to_string(place.join("loop/backing_file")).ok()?;
        let start = number(&place.join("loop/offset")).unwrap_or(0);
        let limit = number(&place.join("loop/sizelimit")).unwrap_or(0);
        let path = PathBuf::from(path.strip_suffix('\n').unwrap_or(&path));
        Some(Self { path, bytes: Bytes::new(start, limit) })
    }
}

/// The bytes of its disk that a partition is.
fn partition(place: &Path) -> Option<Bytes> {
    place.join("partition").exists().then_some(())?;
    Some(Bytes::new(sectors(place, "start")?, sectors(place, "size").unwrap_or(0)))
}

fn sectors(place: &Path, key: &str) -> Option<u64> {
    number(&place.join(key))?.checked_mul(512)
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests;
