//! The structures of the protocol, as `include/uapi/linux/fuse.h` lays them out.
//!
//! Integers are in the machine's byte order. Lengths are in bytes.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The version that is spoken: 7.31 has all that is used here, and each later kernel takes it.
pub(super) const MAJOR: u32 = 7;
/// The part of the version after the dot.
pub(super) const MINOR: u32 = 31;

/// The directory that is mounted.
pub(super) const ROOT: u64 = 1;

/// Most bytes of one write: 256 pages.
pub(super) const WRITE_BYTES_MAX: usize = 1 << 20;
/// What one read of the device may bring: a write of the largest size, with its headers.
pub(super) const MESSAGE_BYTES_MAX: usize = WRITE_BYTES_MAX + 4096;

/// Most bytes of one read or write through the ring: 64 pages. Each entry of it has so much memory.
pub(super) const RING_BYTES_MAX: usize = 256 << 10;
/// Bytes of a page, which the kernel counts in.
pub(super) const PAGE_BYTES: usize = 4096;

/// What a request asks for.
pub(super) mod opcode {
    pub(in crate::fuse) const LOOKUP: u32 = 1;
    pub(in crate::fuse) const FORGET: u32 = 2;
    pub(in crate::fuse) const GETATTR: u32 = 3;
    pub(in crate::fuse) const SETATTR: u32 = 4;
    pub(in crate::fuse) const OPEN: u32 = 14;
    pub(in crate::fuse) const READ: u32 = 15;
    pub(in crate::fuse) const WRITE: u32 = 16;
    pub(in crate::fuse) const STATFS: u32 = 17;
    pub(in crate::fuse) const RELEASE: u32 = 18;
    pub(in crate::fuse) const FSYNC: u32 = 20;
    pub(in crate::fuse) const INIT: u32 = 26;
    pub(in crate::fuse) const OPENDIR: u32 = 27;
    pub(in crate::fuse) const READDIR: u32 = 28;
    pub(in crate::fuse) const RELEASEDIR: u32 = 29;
    pub(in crate::fuse) const FSYNCDIR: u32 = 30;
    pub(in crate::fuse) const DESTROY: u32 = 38;
    pub(in crate::fuse) const BATCH_FORGET: u32 = 42;
    pub(in crate::fuse) const FALLOCATE: u32 = 43;
    pub(in crate::fuse) const SYNCFS: u32 = 50;
}

/// What the two ends can do, in [`InitIn::flags`] and [`InitOut::flags`].
pub(super) mod init_flag {
    /// Reads of one file may be under way side by side.
    pub(in crate::fuse) const ASYNC_READ: u32 = 1 << 0;
    /// Writes of more than a page.
    pub(in crate::fuse) const BIG_WRITES: u32 = 1 << 5;
    /// Direct I/O is asynchronous too.
    pub(in crate::fuse) const ASYNC_DIO: u32 = 1 << 15;
    /// [`InitOut::max_pages`](super::InitOut::max_pages) counts.
    pub(in crate::fuse) const MAX_PAGES: u32 = 1 << 22;
    /// There are more flags: those of [`flags_2`](super::InitExtension::flags_2).
    pub(in crate::fuse) const EXTENDED: u32 = 1 << 30;
    /// `FUSE_OVER_IO_URING`, of the second flags (Linux 6.14).
    pub(in crate::fuse) const OVER_RING: u32 = 1 << (41 - 32);
}

/// How a file was opened, in [`OpenOut::open_flags`].
pub(super) mod open_flag {
    /// Reads and writes pass the page cache by.
    pub(in crate::fuse) const DIRECT_IO: u32 = 1 << 0;
    /// No request at `close`.
    pub(in crate::fuse) const NOFLUSH: u32 = 1 << 5;
    /// Direct writes of one file may be under way side by side.
    pub(in crate::fuse) const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// `fuse_in_header`: before each request.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct InHeader {
    pub(super) length: u32,
    pub(super) opcode: u32,
    pub(super) unique: u64,
    pub(super) node: u64,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) pid: u32,
    pub(super) extensions_length: u16,
    pub(super) padding: u16,
}

/// `fuse_out_header`: before each answer.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct OutHeader {
    pub(super) length: u32,
    /// 0, or the negative of an errno.
    pub(super) error: i32,
    pub(super) unique: u64,
}

/// `fuse_init_in`, as far as version 7.31 has it.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct InitIn {
    pub(super) major: u32,
    pub(super) minor: u32,
    pub(super) max_readahead: u32,
    pub(super) flags: u32,
}

/// `fuse_init_in` behind that, where [`init_flag::EXTENDED`] is set.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct InitExtension {
    pub(super) flags_2: u32,
    pub(super) unused: [u32; 11],
}

/// `fuse_init_out`: 64 bytes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct InitOut {
    pub(super) major: u32,
    pub(super) minor: u32,
    pub(super) max_readahead: u32,
    pub(super) flags: u32,
    pub(super) max_background: u16,
    pub(super) congestion_threshold: u16,
    pub(super) max_write: u32,
    pub(super) time_granularity_ns: u32,
    pub(super) max_pages: u16,
    pub(super) map_alignment: u16,
    pub(super) flags_2: u32,
    pub(super) reserved: [u32; 7],
}

/// `fuse_attr`: 88 bytes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Attributes {
    pub(super) inode: u64,
    pub(super) size_bytes: u64,
    /// In 512 bytes.
    pub(super) blocks: u64,
    pub(super) times_s: [u64; 3],
    pub(super) times_ns: [u32; 3],
    pub(super) mode: u32,
    pub(super) links: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) device: u32,
    pub(super) block_bytes: u32,
    pub(super) flags: u32,
}

/// `fuse_entry_out`: 128 bytes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct EntryOut {
    pub(super) node: u64,
    pub(super) generation: u64,
    pub(super) entry_valid_s: u64,
    pub(super) attributes_valid_s: u64,
    pub(super) entry_valid_ns: u32,
    pub(super) attributes_valid_ns: u32,
    pub(super) attributes: Attributes,
}

/// `fuse_attr_out`: 104 bytes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct AttributesOut {
    pub(super) valid_s: u64,
    pub(super) valid_ns: u32,
    pub(super) padding: u32,
    pub(super) attributes: Attributes,
}

/// `fuse_setattr_in`, as far as its size.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct SetAttributesIn {
    /// Which of the attributes are to change.
    pub(super) valid: u32,
    pub(super) padding: u32,
    pub(super) handle: u64,
    pub(super) size_bytes: u64,
}

/// [`SetAttributesIn::valid`]: the size.
pub(super) const SET_SIZE: u32 = 1 << 3;
/// [`SetAttributesIn::valid`]: of a file that is open.
pub(super) const BY_HANDLE: u32 = 1 << 6;

/// `fuse_open_in`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct OpenIn {
    pub(super) flags: u32,
    pub(super) open_flags: u32,
}

/// `fuse_open_out`: 16 bytes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct OpenOut {
    pub(super) handle: u64,
    pub(super) open_flags: u32,
    pub(super) backing: u32,
}

/// `fuse_read_in` and `fuse_write_in`, which are laid out alike: 40 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct TransferIn {
    pub(super) handle: u64,
    pub(super) offset_bytes: u64,
    pub(super) length: u32,
    pub(super) transfer_flags: u32,
    pub(super) lock_owner: u64,
    /// Of the open file: `O_DSYNC` and `O_SYNC` among them.
    pub(super) flags: u32,
    pub(super) padding: u32,
}

/// `fuse_write_out`: 8 bytes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct WriteOut {
    pub(super) length: u32,
    pub(super) padding: u32,
}

/// `fuse_release_in`, as far as the handle.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct ReleaseIn {
    pub(super) handle: u64,
}

/// `fuse_fallocate_in`: 32 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct AllocateIn {
    pub(super) handle: u64,
    pub(super) offset_bytes: u64,
    pub(super) length_bytes: u64,
    pub(super) mode: u32,
    pub(super) padding: u32,
}

/// `fuse_kstatfs`: 80 bytes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct FileSystemOut {
    pub(super) blocks: u64,
    pub(super) blocks_free: u64,
    pub(super) blocks_available: u64,
    pub(super) files: u64,
    pub(super) files_free: u64,
    pub(super) block_bytes: u32,
    pub(super) name_length_max: u32,
    pub(super) fragment_bytes: u32,
    pub(super) padding: u32,
    pub(super) spare: [u32; 6],
}

/// `fuse_dirent`, before the name, which zeroes fill up to a multiple of 8 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct DirectoryEntry {
    pub(super) inode: u64,
    /// Where the next entry begins.
    pub(super) offset: u64,
    pub(super) name_length: u32,
    /// `DT_DIR` or `DT_REG`.
    pub(super) kind: u32,
}

/// `fuse_uring_req_header`: 288 bytes, before the payload of an entry.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RingHeader {
    /// `fuse_in_header`, or `fuse_out_header` of the answer.
    pub(super) in_out: [u8; 128],
    /// The first argument of the request.
    pub(super) argument: [u8; 128],
    pub(super) entry: RingEntry,
}

/// `fuse_uring_ent_in_out`: 32 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RingEntry {
    pub(super) flags: u64,
    /// Names the request in the command that answers it.
    pub(super) commit_id: u64,
    /// Of the request, and of its answer.
    pub(super) payload_length: u32,
    pub(super) padding: u32,
    pub(super) reserved: u64,
}

/// `fuse_uring_cmd_req`, at the start of a command: 24 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RingCommand {
    pub(super) flags: u64,
    pub(super) commit_id: u64,
    pub(super) queue: u16,
    pub(super) padding: [u8; 6],
}

/// `fuse_uring_cmd`: what a command of the ring asks for.
pub(super) mod ring_command {
    /// Takes an entry, and gives it back with a request.
    pub(in crate::fuse) const REGISTER: u32 = 1;
    /// Takes an answer, and gives the entry back with the next request.
    pub(in crate::fuse) const COMMIT_AND_FETCH: u32 = 2;
}

const _: () = {
    assert!(size_of::<RingHeader>() == 288 && size_of::<RingCommand>() == 24);
    assert!(size_of::<InHeader>() == 40 && size_of::<OutHeader>() == 16);
    assert!(size_of::<InitIn>() == 16 && size_of::<InitOut>() == 64);
    assert!(size_of::<Attributes>() == 88 && size_of::<EntryOut>() == 128);
    assert!(size_of::<AttributesOut>() == 104 && size_of::<OpenOut>() == 16);
    assert!(size_of::<TransferIn>() == 40 && size_of::<AllocateIn>() == 32);
    assert!(size_of::<FileSystemOut>() == 80 && size_of::<DirectoryEntry>() == 24);
};
