//! What lies below a block device: the files and devices that keep its bytes.
//!
//! The kernel keeps two users of one block device apart, but not the user of a loop device and the
//! user of its file, nor two loop devices over one file. A member on a loop device therefore locks
//! its bytes in the file, as a member that is the file itself does. So does one on mappings over a loop device,
//! which the kernel gives to several mappings at once. A file that has no name for us cannot be locked: it is claimed
//! by its numbers.

mod mapping;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::holder::{self, Holder, SYSFS, SilentLoop};
use super::lock::{self, Bytes};
use super::loop_device::{
    self, Ask, Backing, Behind, FileId, LoopDevice, Over, Question, is_silence,
};
use super::mounts::device_number;
use super::place::PlaceLock;
use super::probe::sysfs;
use super::unnamed;
use mapping::Part;

/// Devices below each other; the kernel itself bears fewer.
const LEVELS_MAX: usize = 16;

/// Why the bytes below a device cannot be had.
#[derive(Debug)]
pub(super) enum Refused {
    /// Someone uses them; the holder, where it can be seen.
    InUse(Option<Holder>),
    /// A loop device has a file without a name, and does not say which.
    Hidden { device: PathBuf, source: io::Error },
    /// A loop device does not say whether it has the same bytes.
    Silent(SilentLoop),
    /// A loop device below it does not say where it keeps them.
    SilentBelow(PathBuf),
    /// The system refused.
    System(io::Error),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl From<SilentLoop> for Refused {
    fn from(silent: SilentLoop) -> Self {
        Self::Silent(silent)
    }
}

/// What keeps others from the bytes below a device, as long as it lives.
#[derive(Debug)]
pub(super) struct Claimed {
    /// Files and devices.
    pub(super) files: Vec<File>,
    /// Of files without a name.
    pub(super) unnamed: Vec<PlaceLock>,
}

/// Locks the bytes below an open block device; shared if only read.
pub(super) fn claim(device: &File, shared: bool) -> Result<Claimed, Refused> {
    let number = device.metadata()?.rdev();
    let disk = sysfs(number).and_then(|place| holder::number_of(disk_of(&place)?));
    // What is open is asked itself: there may be no other node of it here.
    let ask = |loop_device: u64, place: &Path| {
        let open = (Some(loop_device) == disk).then(|| device.try_clone().map(Arc::new));
        match open {
            Some(Ok(open)) => {
                Question::ask(&loop_device::node(place), move || Behind::of_open(&open))
            }
            Some(Err(error)) => Question::answered(Err(error)),
            None => loop_device::ask(loop_device, place),
        }
    };
    claim_in(&System { sysfs: Path::new(SYSFS), parts: &mapping::parts, ask: &ask }, number, shared)
}

fn claim_in(system: &System<'_>, device: u64, shared: bool) -> Result<Claimed, Refused> {
    let mut claim = Claim { system, held: Vec::new(), unnamed: Vec::new() };
    let way = Way { bytes: Bytes::ALL, shared, level: 0, is_kept_apart: true };
    claim.device(device, way)?;
    Ok(Claimed {
        files: claim.held.into_iter().map(|held| held.file).collect(),
        unnamed: claim.unnamed.into_iter().flat_map(|unnamed| unnamed.locks).collect(),
    })
}

/// The disk that sysfs shows at `place`, or that has the partition.
fn disk_of(place: &Path) -> Option<&Path> {
    if place.join("partition").exists() { place.parent() } else { Some(place) }
}

/// Whether a block device is another one or lies on it: as a partition of it, or as a mapping over it.
pub fn lies_on(device: u64, other: u64) -> bool {
    lies_on_within(device, other, 0)
}

/// The block devices that lie on another one, each before what it lies on, and that one last.
pub fn devices_on(device: u64) -> Vec<u64> {
    let number = |place: &PathBuf| device_number(place.file_name()?.to_str()?);
    let all = holder::entries(&Path::new(SYSFS).join("dev/block"));
    let over = all.iter().filter_map(number).filter(|one| lies_on(*one, device));
    let over: Vec<u64> = over.collect();
    let mut sorted = over.clone();
    sorted.sort_by_cached_key(|one| over.iter().filter(|other| lies_on(**other, *one)).count());
    sorted
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

/// Whether a block device stands on what `lower` leads to, at whatever distance: as a partition, a mapping or a loop
/// device. The names of their files are believed; no loop device is asked.
pub fn stands_on(upper: &Path, lower: &Path) -> bool {
    let (Some(upper), Some(lower)) = (Layer::at(upper), Layer::at(lower)) else { return false };
    upper.stands_on(&lower, 0)
}

/// Whether two loop devices have the same bytes of one file, by its name.
pub fn are_twins(one: &Path, other: &Path) -> bool {
    let backing = |path: &Path| match Layer::at(path) {
        Some(Layer::Device(device)) => Backing::of(&sysfs(device)?),
        _ => None,
    };
    let (Some(one), Some(other)) = (backing(one), backing(other)) else { return false };
    (one.path, one.bytes) == (other.path, other.bytes)
}

/// A device or file among those that stand on each other.
#[derive(Debug, PartialEq, Eq)]
enum Layer {
    Device(u64),
    File(PathBuf),
}

impl Layer {
    fn at(path: &Path) -> Option<Self> {
        let path = fs::canonicalize(path).ok()?;
        let metadata = fs::metadata(&path).ok()?;
        match Behind::of_metadata(&metadata) {
            Behind::Device(number) => Some(Self::Device(number)),
            Behind::File(_) => Some(Self::File(path)),
        }
    }

    /// What it stands on itself.
    fn below(&self) -> Vec<Self> {
        let Self::Device(device) = self else { return Vec::new() };
        let Some(place) = sysfs(*device) else { return Vec::new() };
        let disk = place.join("partition").exists().then(|| place.parent()).flatten();
        let devices = holder::entries(&place.join("slaves")).into_iter();
        let devices = devices.chain(disk.map(Path::to_owned));
        let devices = devices.filter_map(|below| holder::number_of(&below)).map(Self::Device);
        devices.chain(Backing::of(&place).map(|backing| Self::named(backing.path))).collect()
    }

    /// What a loop device has, by its name. No file system is asked about a file.
    fn named(path: PathBuf) -> Self {
        let device = path.starts_with("/dev").then(|| Self::at(&path)).flatten();
        device.unwrap_or(Self::File(path))
    }

    fn stands_on(&self, lower: &Self, level: usize) -> bool {
        let below = if level < LEVELS_MAX { self.below() } else { Vec::new() };
        below.iter().any(|layer| layer == lower || layer.stands_on(lower, level + 1))
    }
}

/// Who is asked.
struct System<'a> {
    sysfs: &'a Path,
    /// What a mapping is made of, where that can be known.
    parts: &'a dyn Fn(u64) -> Option<Vec<Part>>,
    ask: &'a Ask<'a>,
}

struct Claim<'a> {
    system: &'a System<'a>,
    held: Vec<Held>,
    unnamed: Vec<Unnamed>,
}

/// A file of which bytes are locked, or a device that is opened exclusively. Once, whatever a mapping has of
/// it.
struct Held {
    behind: Behind,
    shared: bool,
    file: File,
}

/// A file that has no name for us. Once, as above.
struct Unnamed {
    file: FileId,
    through: u64,
    locks: Vec<PlaceLock>,
}

/// What is asked for of a device, and how it was come to.
#[derive(Clone, Copy)]
struct Way {
    bytes: Bytes,
    shared: bool,
    level: usize,
    /// The kernel keeps out who else would have these bytes of this device.
    is_kept_apart: bool,
}

impl Way {
    fn below(self, bytes: Bytes) -> Self {
        Self { bytes, level: self.level + 1, ..self }
    }
}

impl Claim<'_> {
    /// Locks what lies below these bytes of a device that is claimed itself.
    fn device(&mut self, device: u64, way: Way) -> Result<(), Refused> {
        let place = self.place(device).filter(|_| way.level < LEVELS_MAX);
        let Some(place) = place else { return Ok(()) };
        if place.join("partition").exists() {
            let (Some(disk), Some(part)) = (place.parent(), partition(&place)) else {
                return Ok(());
            };
            let Some(disk) = holder::number_of(disk) else { return Ok(()) };
            return self.device(disk, way.below(way.bytes.within(part)));
        }
        if let Some(backing) = Backing::of(&place) {
            let bytes = way.bytes.within(backing.bytes);
            let shared = way.shared || holder::count_in(&place.join("ro")) == Some(1);
            return self.backing(device, &place, &backing.path, Way { bytes, shared, ..way });
        }
        let way = Way { is_kept_apart: false, ..way };
        let is_mapping = place.join("dm").exists();
        if let Some(parts) = is_mapping.then(|| (self.system.parts)(device)).flatten() {
            let below = |part: &Part| Some((part.device, way.below(part.below(way.bytes)?)));
            return parts
                .iter()
                .filter_map(below)
                .try_for_each(|(device, way)| self.device(device, way));
        }
        // Which bytes it uses is not known: it shares them with others of its kind, and excludes who
        // uses the file itself.
        for slave in holder::entries(&place.join("slaves")) {
            let slave = fs::canonicalize(slave).ok().and_then(|slave| holder::number_of(&slave));
            if let Some(slave) = slave {
                self.device(slave, Way { shared: true, ..way.below(Bytes::ALL) })?;
            }
        }
        Ok(())
    }

    fn place(&self, device: u64) -> Option<PathBuf> {
        let (major, minor) = (libc::major(device), libc::minor(device));
        fs::canonicalize(self.system.sysfs.join(format!("dev/block/{major}:{minor}"))).ok()
    }

    /// Locks what a loop device keeps its bytes in.
    fn backing(&mut self, device: u64, place: &Path, path: &Path, way: Way) -> Result<(), Refused> {
        match self.behind(device, place, path)? {
            behind @ Behind::Device(below) => {
                // Other loop devices over it are kept out by this alone.
                let is_held = self.hold(path, behind, true)?.is_some();
                let is_kept_apart = way.is_kept_apart && is_held;
                self.device(below, Way { is_kept_apart, ..way.below(way.bytes) })
            }
            Behind::File(file) => {
                match self.hold(path, Behind::File(file), way.shared)? {
                    Some(at) => self.lock(at, file, way)?,
                    None => self.claim_unnamed(file, device, way)?,
                }
                match self.used_twin(device, file, way.bytes)? {
                    Some(holder) => Err(Refused::InUse(Some(holder))),
                    None => Ok(()),
                }
            }
        }
    }

    /// What a loop device has. Where it cannot be asked, a name that leads somewhere is believed.
    fn behind(&self, device: u64, place: &Path, path: &Path) -> Result<Behind, Refused> {
        match (self.system.ask)(device, place).answer() {
            Err(error) if is_silence(&error) => Err(Refused::SilentBelow(loop_device::node(place))),
            told => told.or_else(|source| match Behind::of_name(path) {
                Err(error) if is_nowhere(&error) => {
                    Err(Refused::Hidden { device: loop_device::node(place), source })
                }
                named => Ok(named?),
            }),
        }
    }

    /// Opens it by this name, once; none if the name does not lead there.
    fn hold(
        &mut self,
        path: &Path,
        behind: Behind,
        shared: bool,
    ) -> Result<Option<usize>, Refused> {
        let known = |held: &Held| (held.behind, held.shared) == (behind, shared);
        if let Some(at) = self.held.iter().position(known) {
            return Ok(Some(at));
        }
        match Behind::of_name(path) {
            Ok(found) if found == behind => {}
            Ok(_) => return Ok(None),
            Err(error) if is_nowhere(&error) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let file = open(path, behind).map_err(|error| match (error.raw_os_error(), behind) {
            (Some(libc::EBUSY), Behind::Device(device)) => {
                Refused::InUse(holder::of_device(device))
            }
            _ => Refused::System(error),
        })?;
        // By now the name may lead elsewhere.
        if Behind::of_metadata(&file.metadata()?) != behind {
            return Ok(None);
        }
        self.held.push(Held { behind, shared, file });
        Ok(Some(self.held.len() - 1))
    }

    fn lock(&self, at: usize, file: FileId, way: Way) -> Result<(), Refused> {
        if !lock::bytes(&self.held[at].file, way.bytes, way.shared)? {
            return Err(Refused::InUse(holder::of_locked_file(file)));
        }
        match unnamed::is_claimed(file)? {
            true => Err(Refused::InUse(None)),
            false => Ok(()),
        }
    }

    fn claim_unnamed(&mut self, file: FileId, through: u64, way: Way) -> Result<(), Refused> {
        let known = |known: &Unnamed| (known.file, known.through) == (file, through);
        if self.unnamed.iter().any(known) {
            return Ok(());
        }
        let loops = holder::entries(&self.system.sysfs.join("block"));
        let loops = loops.into_iter().filter(|place| place.join("loop").exists());
        let others = loops.filter_map(|place| holder::number_of(&place));
        let locks = unnamed::claim(file, through, !way.is_kept_apart, others)?;
        let locks = locks.ok_or(Refused::InUse(None))?;
        self.unnamed.push(Unnamed { file, through, locks });
        Ok(())
    }

    /// Who uses, in the kernel, another loop device over these bytes of a file, or a partition of one.
    fn used_twin(
        &self,
        device: u64,
        file: FileId,
        bytes: Bytes,
    ) -> Result<Option<Holder>, SilentLoop> {
        let twins = LoopDevice::all(self.system.sysfs).into_iter();
        let twins = twins.filter(|twin| twin.number != device && twin.backing.bytes.meets(bytes));
        // Only those are asked what they have whom somebody uses: nobody waits for the others.
        let used = twins.filter(|twin| user_in_kernel(twin, bytes).is_some()).collect();
        let over = Over::of(Behind::File(file), used, self.system.ask);
        // Whoever used one of them may have left meanwhile.
        let user = over.sure.iter().find_map(|twin| user_in_kernel(twin, bytes));
        match (user, over.silent.first()) {
            (None, Some(silent)) => Err(SilentLoop(silent.node())),
            (user, _) => Ok(user),
        }
    }
}

/// Who uses, in the kernel, a loop device or a partition of it that has some of these bytes of its file.
fn user_in_kernel(device: &LoopDevice, bytes: Bytes) -> Option<Holder> {
    let LoopDevice { place, number, backing } = device;
    let on_partition = |part: PathBuf| {
        let its = partition(&part)?.within(backing.bytes);
        its.meets(bytes).then_some(())?;
        holder::in_kernel(&part, holder::number_of(&part)?)
    };
    let whole = holder::in_kernel(place, *number);
    whole.or_else(|| holder::entries(place).into_iter().find_map(on_partition))
}

/// The name leads nowhere: whoever had it may have been deleted.
fn is_nowhere(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Opened to be locked only: for writing where that is allowed, since only such a file takes an
/// exclusive lock.
fn open(path: &Path, behind: Behind) -> io::Result<File> {
    let is_block = matches!(behind, Behind::Device(_));
    let flags = if is_block { libc::O_NONBLOCK | libc::O_EXCL } else { libc::O_NONBLOCK };
    OpenOptions::new().read(true).write(!is_block).custom_flags(flags).open(path)
}

/// The bytes of its disk that a partition is.
fn partition(place: &Path) -> Option<Bytes> {
    place.join("partition").exists().then_some(())?;
    Some(Bytes::new(sectors(place, "start")?, sectors(place, "size").unwrap_or(0)))
}

fn sectors(place: &Path, key: &str) -> Option<u64> {
    holder::count_in(&place.join(key))?.checked_mul(512)
}

#[cfg(test)]
mod tests;
