//! Opening a member.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mdspace_engine::backend::MemberInfo;

use super::holder::{self, Holder, SilentLoop};
use super::lock::{self, Bytes};
use super::nbd::NotOpened;
use super::probe::{self, Transfers};
use super::spec::Spec;
use super::{
    Device, EndOf, Locks, MemberFile, MemberTable, MultipathSpec, Nbd, Null, Ram, below,
    end_of_device, end_of_file, named, nbd, unnamed,
};

/// How long a claim may outlive the process that made it, as far as we wait.
const AFTERLIFE: Duration = Duration::from_secs(2);

/// How to open a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenMode {
    /// Refuse writes.
    pub read_only: bool,
    /// Refuse a member that someone else uses, and keep others out.
    pub exclusive: bool,
    /// Go through the page cache, also where direct I/O would work.
    pub buffered: bool,
}

impl OpenMode {
    /// For an array that is to run: to read and write, nobody else.
    pub const RUN: Self = Self { read_only: false, exclusive: true, buffered: false };
    /// To look only, whoever uses it.
    pub const LOOK: Self = Self { read_only: true, exclusive: false, buffered: false };
}

/// Why a member cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The name cannot be read.
    #[error("{name}: {why}")]
    Name {
        /// The member as the user named it.
        name: String,
        /// What is wrong with it, and what would be right.
        why: String,
    },
    /// It is neither a file nor a block device.
    #[error("{name}: neither a file nor a block device; give a disk, a partition or an image file")]
    Kind {
        /// The member as the user named it.
        name: String,
    },
    /// Someone uses it.
    #[error("{name}: in use by {holder}; {cure}")]
    InUse {
        /// The member as the user named it.
        name: String,
        /// Who holds it.
        holder: String,
        /// What to do.
        cure: String,
        /// Whoever had it has let go of it, and no call that the kernel still has there is a write.
        writes_are_over: bool,
    },
    /// The array would keep its data in itself.
    #[error("{name}: {}; {}", LEADS_BACK, LEADS_BACK_CURE)]
    LeadsBack {
        /// The member as the user named it.
        name: String,
    },
    /// Whether the array would keep its data in itself is not known.
    #[error("{name}: {}: {why}; {}", UNCLEAR, UNCLEAR_CURE)]
    Unclear {
        /// The member as the user named it.
        name: String,
        /// Who does not say it, and why.
        why: String,
    },
    /// Which file it keeps its bytes in is not known, so that others cannot be kept from that.
    #[error("{name}: {}; {}", hidden(.device, .source), HIDDEN_CURE)]
    Hidden {
        /// The member as the user named it.
        name: String,
        /// A loop device that it is, or that lies below it.
        device: PathBuf,
        /// Why that is not asked.
        source: io::Error,
    },
    /// A loop device does not answer: it may be over the member, or have the member's bytes.
    #[error("{name}: {why}; {cure}")]
    Silent {
        /// The member as the user named it.
        name: String,
        /// Which device does not answer, and what it has to do with the member.
        why: String,
        /// What to do about that device.
        cure: String,
    },
    /// The device's blocks are larger than md can serve.
    #[error("{name}: its logical blocks of {bytes} bytes are larger than 4096")]
    Blocks {
        /// The member as the user named it.
        name: String,
        /// Size of a block.
        bytes: u32,
    },
    /// The system refused.
    #[error("{name}: cannot {doing}: {source}{}", hint(.source))]
    System {
        /// The member as the user named it.
        name: String,
        /// What was refused.
        doing: &'static str,
        /// The system's own words.
        source: io::Error,
    },
    /// Several lanes would use it.
    #[error(transparent)]
    OneConnection(OneConnection),
    /// A lane would have no connection to it.
    #[error(transparent)]
    NoConnection(NoConnection),
    /// The table is full.
    #[error("65536 members are open; close some")]
    TooMany,
}

/// An export would be used by several lanes, and bears one connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name}: its server bears one connection, and each lane and worker needs one; use --lanes=1 and \
     group_thread_cnt=0, or let the server share the export (qemu-nbd --shared=0)"
)]
pub struct OneConnection {
    /// The member as the user named it.
    pub name: String,
}

/// A lane's own connection to an export does not come.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name}: of the connections that each lane and worker needs, one does not come: {why}; let its server take \
     more of them, or use fewer lanes (--lanes) and workers (group_thread_cnt)"
)]
pub struct NoConnection {
    /// The member as the user named it.
    pub name: String,
    /// What the system or the server said, or what tells against the connection.
    pub why: String,
}

/// Why a lane cannot be counted on beside others.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotConnected {
    /// An export bears one connection.
    #[error(transparent)]
    One(#[from] OneConnection),
    /// Its own connection does not come.
    #[error(transparent)]
    None(#[from] NoConnection),
    /// Nobody waits for its connections.
    #[error("the array has ended")]
    Ended,
}

const LEADS_BACK: &str =
    "it leads back to the array itself, which would keep its data in its own export";
const LEADS_BACK_CURE: &str = "give another member";
const UNCLEAR: &str = "whether it leads back to the array itself cannot be told";
const UNCLEAR_CURE: &str =
    "have that server answer, or remove it from the array that has it as a member, and try again";

const HIDDEN_CURE: &str =
    "let this user read that loop device, or attach the file again by a name that it has";

fn hidden(device: &Path, source: &io::Error) -> String {
    format!(
        "the file of {} has lost its name, and which one it is cannot be asked: {source}",
        device.display()
    )
}

impl OpenError {
    /// What is wrong and what to do, where what lies behind the member is the trouble.
    pub fn why_and_cure(&self) -> Option<(String, &str)> {
        match self {
            Self::LeadsBack { name } => Some((format!("{name}: {LEADS_BACK}"), LEADS_BACK_CURE)),
            Self::Unclear { name, why } => {
                Some((format!("{name}: {UNCLEAR}: {why}"), UNCLEAR_CURE))
            }
            Self::Hidden { name, device, source } => {
                Some((format!("{name}: {}", hidden(device, source)), HIDDEN_CURE))
            }
            Self::Silent { name, why, cure } => Some((format!("{name}: {why}"), cure)),
            _ => None,
        }
    }

    /// Whether the member is in use by this process, as far as can be seen: the kernel may hold it for a
    /// moment after it was closed.
    pub fn may_be_of_this_process(&self) -> bool {
        let ours = [Holder::this_process().who, Holder::unknown().who];
        matches!(self, Self::InUse { holder, .. } if ours.contains(holder))
    }
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; ask for the right to it (for disks: run as root, or join its group)"
        }
        io::ErrorKind::ReadOnlyFilesystem => "; open it read-only",
        _ => "",
    }
}

/// A member that was opened, and is in no table yet.
pub(crate) struct Opened {
    pub(super) device: Device,
    pub(super) info: MemberInfo,
    pub(super) locks: Locks,
    /// The kernel keeps others out until it is closed.
    pub(super) is_claimed: bool,
}

impl Opened {
    /// One that needs no locks, or has them elsewhere.
    pub(crate) fn new(device: Device, info: MemberInfo) -> Self {
        Self::with(device, info, Locks::default())
    }

    fn with(device: Device, info: MemberInfo, locks: Locks) -> Self {
        Self { device, info, locks, is_claimed: false }
    }
}

/// Opens a member. `ordinal` tells devices that only pretend from others of the same name.
pub(super) fn open(
    name: &str,
    mode: OpenMode,
    ordinal: u64,
    members: &Arc<MemberTable>,
) -> Result<Opened, OpenError> {
    let spec = Spec::parse(name).map_err(|why| OpenError::Name { name: name.into(), why })?;
    let reserve = |source| OpenError::System { name: name.into(), doing: "reserve memory", source };
    let (device, bytes, rotational) = match spec {
        Spec::Path(path) => return Opening { name, path: &path, mode }.open(),
        Spec::Multipath { file } => return open_multipath(name, &file, members, mode),
        Spec::Nbd(uri) => return open_export(name, uri, members, mode),
        Spec::Null { bytes, drive } => {
            let rotational = drive.is_rotational();
            let null = Null::new(*drive, bytes, ordinal).map_err(reserve)?;
            (Device::Null(null), bytes, rotational)
        }
        Spec::Ram { bytes } => {
            let size = usize::try_from(bytes).unwrap_or(usize::MAX);
            (Device::Ram(Ram::new(size).map_err(reserve)?), bytes, false)
        }
    };
    let info = MemberInfo {
        name: name.into(),
        sectors: bytes / 512,
        logical_block_bytes: 512,
        rotational,
        discard_zeroes: !rotational && !mode.read_only,
        is_sparse: false,
    };
    Ok(Opened::new(device, info))
}

/// Opens the paths that a file names.
fn open_multipath(
    name: &str,
    file: &Path,
    members: &Arc<MemberTable>,
    mode: OpenMode,
) -> Result<Opened, OpenError> {
    let system = |source| OpenError::System { name: name.into(), doing: "read the file", source };
    let text = named::read_text(file).map_err(system)?;
    let spec = MultipathSpec::parse(&text);
    let spec = spec.map_err(|why| OpenError::Name { name: name.into(), why })?;
    let paths = spec.open(name, members, mode)?;
    let info = paths.info().clone();
    Ok(Opened::new(Device::Multipath(paths), info))
}

/// Opens an export, and locks it for this table: other arrays of this host do not take it. NBD
/// itself knows no locks, so another host may use it too.
fn open_export(
    name: &str,
    uri: nbd::Uri,
    members: &MemberTable,
    mode: OpenMode,
) -> Result<Opened, OpenError> {
    let system = |doing| move |source| OpenError::System { name: name.into(), doing, source };
    // Listed before it is asked: of two arrays that add each other's export one is refused.
    let below = mode.exclusive.then(|| members.lineage().begin(&uri));
    let question = mode.exclusive.then(|| members.lineage().question());
    let mut nbd = Nbd::open(uri, question).map_err(|refused| match refused {
        NotOpened::LeadsBack => OpenError::LeadsBack { name: name.into() },
        NotOpened::Unclear(why) => OpenError::Unclear { name: name.into(), why },
        NotOpened::System(source) => system("open the export")(source),
    })?;
    if let Some(below) = below.as_ref().filter(|_| nbd.leaf) {
        below.end_here();
    }
    nbd.below = below;
    let place = match mode.exclusive {
        true => match members.lock_place(&nbd.lock_name).map_err(system("lock the export"))? {
            Ok(place) => Some(place),
            Err(holder) => return Err(in_use(name, Some(holder))),
        },
        false => None,
    };
    let export = nbd.export;
    if export.block_bytes > 4096 {
        return Err(OpenError::Blocks { name: name.into(), bytes: export.block_bytes });
    }
    if export.is_read_only() && !mode.read_only {
        return Err(system("open it for writing")(io::ErrorKind::ReadOnlyFilesystem.into()));
    }
    if let Some(unproved) = members.unproved().filter(|_| !mode.read_only) {
        let record = unproved.begin(name, &nbd.lock_name);
        nbd.record = Some(record.map_err(system("keep a record that it is written to"))?);
    }
    let block = u64::from(export.block_bytes);
    let info = MemberInfo {
        name: name.into(),
        sectors: export.bytes / block * block / 512,
        logical_block_bytes: export.block_bytes,
        rotational: export.is_rotational(),
        discard_zeroes: export.writes_zeroes() && !mode.read_only,
        is_sparse: false,
    };
    let locks = Locks { place, ..Locks::default() };
    Ok(Opened::with(Device::Nbd(Box::new(nbd)), info, locks))
}

fn in_use(name: &str, holder: Option<Holder>) -> OpenError {
    let holder = holder.unwrap_or_else(Holder::unknown);
    let writes_are_over = false;
    OpenError::InUse { name: name.into(), holder: holder.who, cure: holder.cure, writes_are_over }
}

/// `device` does not answer; `may_be` says what that has to do with the member.
fn silent(name: &str, device: &Path, may_be: &str) -> OpenError {
    let device = device.display();
    OpenError::Silent {
        name: name.into(),
        why: format!("{device} does not answer, and {may_be}"),
        cure: format!(
            "find what serves the file of {device}, and let it answer; or detach it: \
             losetup -d {device}"
        ),
    }
}

/// A file or block device on its way.
struct Opening<'a> {
    name: &'a str,
    path: &'a Path,
    mode: OpenMode,
}

impl Opening<'_> {
    fn open(&self) -> Result<Opened, OpenError> {
        // Looked at first: opening a tape would rewind it. And once more when it is open, for the
        // name may lead elsewhere by then.
        let named = std::fs::metadata(self.path).map_err(self.system("open it"))?;
        if !named::is_member(&named) {
            return Err(OpenError::Kind { name: self.name.into() });
        }
        let is_block = named.file_type().is_block_device();
        let (mut file, locks) = self.claim(is_block)?;
        let metadata = file.metadata().map_err(self.system("look at it"))?;
        let (end, bytes): (EndOf, _) = match is_block {
            true => (end_of_device, end_of_device(&file).ok_or_else(io::Error::last_os_error)),
            false => (end_of_file, file.seek(SeekFrom::End(0))),
        };
        let bytes = bytes.map_err(self.system("ask for its size"))?;
        let transfers = match (self.mode.buffered, is_block) {
            (false, _) => Transfers::probe(&file, is_block),
            (true, true) => Transfers::buffered_block(&file),
            (true, false) => Transfers::BUFFERED,
        };
        let logical_block_bytes = transfers.block_bytes;
        if logical_block_bytes > 4096 {
            return Err(OpenError::Blocks { name: self.name.into(), bytes: logical_block_bytes });
        }
        let traits = probe::traits(&file, &metadata, bytes);
        let info = MemberInfo {
            name: self.name.into(),
            sectors: bytes / 512,
            logical_block_bytes,
            rotational: traits.rotational,
            discard_zeroes: traits.discard_zeroes && !self.mode.read_only,
            is_sparse: traits.is_sparse && !self.mode.read_only,
        };
        let (memory_align, inline) = (transfers.memory_align, transfers.inline);
        let identity = named::Identity::of_metadata(&metadata);
        let file = MemberFile::new(file, identity, self.mode.exclusive && transfers.direct);
        let device = Device::File { file, memory_align, inline, end };
        let is_claimed = is_block && self.mode.exclusive;
        Ok(Opened { is_claimed, ..Opened::with(device, info, locks) })
    }

    /// Opens it, and claims it if it is to be exclusive. The kernel may hold a killed user's claim
    /// until that user's last I/O has ended: a holder who cannot be seen is given a moment.
    fn claim(&self, is_block: bool) -> Result<(File, Locks), OpenError> {
        let until = Instant::now() + AFTERLIFE;
        loop {
            let claimed = self.open_file(is_block).and_then(|file| {
                let locks = match self.mode.exclusive {
                    true if is_block => self.lock_below(&file)?,
                    true => self.lock(&file).map(|()| Locks::default())?,
                    false => Locks::default(),
                };
                Ok((file, locks))
            });
            match claimed {
                Err(OpenError::InUse { holder, .. })
                    if holder == Holder::unknown().who && Instant::now() < until =>
                {
                    std::thread::sleep(Duration::from_millis(10));
                }
                claimed => return claimed,
            }
        }
    }

    fn open_file(&self, is_block: bool) -> Result<File, OpenError> {
        let mut options = OpenOptions::new();
        options.read(true).write(!self.mode.read_only);
        // A pipe that has come into the place of a file is not waited for.
        let exclusive = is_block && self.mode.exclusive;
        options.custom_flags(libc::O_NONBLOCK | if exclusive { libc::O_EXCL } else { 0 });
        let file = options.open(self.path).map_err(|source| match source.raw_os_error() {
            Some(libc::EBUSY) => {
                let device = std::fs::metadata(self.path).map_or(0, |metadata| metadata.rdev());
                self.by_its_mark(in_use(self.name, holder::of_device(device)), self.look())
            }
            _ => self.system("open it")(source),
        })?;
        let kind = file.metadata().map_err(self.system("look at it"))?.file_type();
        match (kind.is_file(), kind.is_block_device()) == (!is_block, is_block) {
            true => named::let_wait(&file).map_err(self.system("open it")).map(|()| file),
            false => Err(OpenError::Kind { name: self.name.into() }),
        }
    }

    /// Locks a file, and refuses it where a lock does not show: behind a loop device, or as swap.
    fn lock(&self, file: &File) -> Result<(), OpenError> {
        let metadata = file.metadata().map_err(self.system("look at it"))?;
        let id = (metadata.dev(), metadata.ino());
        match lock::bytes(file, Bytes::ALL, self.mode.read_only) {
            Ok(true) => {}
            Ok(false) => {
                let refused = in_use(self.name, holder::of_locked_file(id));
                return Err(self.by_its_mark(refused, file.try_clone()));
            }
            Err(source) => return Err(self.system("lock it")(source)),
        }
        let is_claimed = unnamed::is_claimed(id).map_err(self.system("lock it"))?;
        match holder::of_file(id) {
            Ok(Some(holder)) => Err(in_use(self.name, Some(holder))),
            Ok(None) if is_claimed => Err(in_use(self.name, None)),
            Ok(None) => Ok(()),
            Err(SilentLoop(device)) => Err(silent(self.name, &device, "may be over this file")),
        }
    }

    /// Locks the bytes of a block device where it keeps them, and refuses one that has another user
    /// there.
    fn lock_below(&self, file: &File) -> Result<Locks, OpenError> {
        let claimed = below::claim(file, self.mode.read_only).map_err(|refused| match refused {
            below::Refused::InUse(holder) => in_use(self.name, holder),
            below::Refused::Hidden { device, source } => {
                OpenError::Hidden { name: self.name.into(), device, source }
            }
            below::Refused::Silent(SilentLoop(device)) => {
                silent(self.name, &device, "who uses it may use the same bytes")
            }
            below::Refused::SilentBelow(device) => {
                silent(self.name, &device, "keeps the bytes of this member")
            }
            below::Refused::System(source) => self.system("lock what lies below it")(source),
        })?;
        let below::Claimed { files: below, unnamed: _unnamed } = claimed;
        Ok(Locks { below, _unnamed, ..Locks::default() })
    }

    /// Opens it without a claim, beside whoever has it.
    fn look(&self) -> io::Result<File> {
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(self.path)
    }

    /// A refusal of what is in use, with what its user may have said of it.
    fn by_its_mark(&self, mut refused: OpenError, file: io::Result<File>) -> OpenError {
        if let OpenError::InUse { writes_are_over, .. } = &mut refused {
            let marked = file.and_then(|file| lock::are_writes_over(&file));
            *writes_are_over = marked.unwrap_or_default();
        }
        refused
    }

    fn system(&self, doing: &'static str) -> impl Fn(io::Error) -> OpenError {
        let name = self.name.to_owned();
        move |source| OpenError::System { name: name.clone(), doing, source }
    }
}
