//! Opening a member.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};

use mdspace_engine::backend::MemberInfo;

use super::spec::Spec;
use super::{Device, Ram};

/// How to open a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenMode {
    /// Refuse writes.
    pub read_only: bool,
    /// Refuse to share the member with any other user, and keep others out.
    pub exclusive: bool,
    /// Go through the page cache, also where direct I/O would work.
    pub buffered: bool,
}

impl OpenMode {
    /// For an array that is to run: to read and write, nobody else.
    pub const RUN: Self = Self { read_only: false, exclusive: true, buffered: false };
    /// To look only.
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
        /// What is wrong with it.
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
    },
    /// The system refused.
    #[error("{name}: cannot {doing}: {source}")]
    System {
        /// The member as the user named it.
        name: String,
        /// What was refused.
        doing: &'static str,
        /// The system's own words.
        source: io::Error,
    },
    /// The table is full.
    #[error("65536 members are open; close some")]
    TooMany,
}

pub(super) struct Opened {
    pub(super) device: Device,
    pub(super) info: MemberInfo,
    pub(super) read_only: bool,
}

pub(super) fn open(name: &str, mode: OpenMode) -> Result<Opened, OpenError> {
    let spec = Spec::parse(name).map_err(|why| OpenError::Name { name: name.into(), why })?;
    let system = |doing| move |source| OpenError::System { name: name.into(), doing, source };
    let (device, bytes) = match spec {
        Spec::Ram { bytes } => {
            let size = usize::try_from(bytes).unwrap_or(usize::MAX);
            (Device::Ram(Ram::new(size).map_err(system("map its memory"))?), bytes)
        }
        Spec::Null { bytes, null } => (Device::Null(null), bytes),
        Spec::Path(path) => {
            let kind = std::fs::metadata(&path).map_err(system("look at it"))?.file_type();
            if !kind.is_file() && !kind.is_block_device() {
                return Err(OpenError::Kind { name: name.into() });
            }
            let mut options = OpenOptions::new();
            options.read(true).write(!mode.read_only).custom_flags(libc::O_CLOEXEC);
            let file: File = options.open(&path).map_err(system("open it"))?;
            let bytes = file.metadata().map_err(system("look at it"))?.len();
            (Device::File { file, memory_align: 1 }, bytes)
        }
    };
    let info = MemberInfo {
        name: name.into(),
        sectors: bytes / 512,
        logical_block_bytes: 512,
        rotational: false,
        discard_zeroes: true,
    };
    Ok(Opened { device, info, read_only: mode.read_only })
}
