//! What a file or block device can do, found out when it is opened.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::PathBuf;

use mdspace_engine::memory::Buffer;

use super::member_file::file_system;

/// How bytes get to and from a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transfers {
    /// Addresses of memory are multiples of this, in bytes; 1 where the page cache copies.
    pub(super) memory_align: usize,
    /// Addresses on the member are multiples of this, in bytes.
    pub(super) block_bytes: u32,
    /// The system never waits here: calls are made on the spot.
    pub(super) inline: bool,
    /// The page cache keeps nothing.
    pub(super) direct: bool,
}

impl Transfers {
    pub(super) const BUFFERED: Self =
        Self { memory_align: 1, block_bytes: 512, inline: false, direct: false };

    /// Direct if that works, else through the page cache. Leaves `file` in that mode.
    pub(super) fn probe(file: &File, is_block: bool) -> Self {
        if !is_block && is_in_memory(file) {
            return Self { inline: true, ..Self::BUFFERED };
        }
        let block_bytes = if is_block { logical_block_bytes(file) } else { 512 };
        for (memory_align, offset_align) in alignments(file, block_bytes) {
            let fits = memory_align <= 4096 && offset_align <= 4096;
            if fits && direct_works(file, memory_align, offset_align) {
                let memory_align = memory_align as usize;
                let block_bytes = block_bytes.max(offset_align);
                return Self { memory_align, block_bytes, inline: false, direct: true };
            }
        }
        Self { block_bytes, ..Self::BUFFERED }
    }

    /// Through the page cache; the block size stays the device's.
    pub(super) fn buffered_block(file: &File) -> Self {
        Self { block_bytes: logical_block_bytes(file), ..Self::BUFFERED }
    }
}

/// Alignments of memory and offset worth a trial, in bytes, from `statx` where it tells (Linux 6.1;
/// none when it says that direct I/O does not work), else the usual ones.
fn alignments(file: &File, block_bytes: u32) -> Vec<(u32, u32)> {
    /// `STATX_DIOALIGN` of linux/stat.h.
    const DIO_ALIGN: u32 = 0x2000;
    // SAFETY: all zeroes is an empty answer.
    let mut answer: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the path is an empty C string, and `answer` is as large as the system expects.
    let asked = unsafe {
        libc::statx(file.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, DIO_ALIGN, &mut answer)
    };
    if asked != 0 || answer.stx_mask & DIO_ALIGN == 0 {
        return vec![(block_bytes, block_bytes), (4096, 4096)];
    }
    match answer.stx_dio_offset_align {
        0 => Vec::new(),
        offset => vec![(answer.stx_dio_mem_align.max(1), offset.max(512))],
    }
}

/// Tries direct I/O with the least alignment that it is said to need.
fn direct_works(file: &File, memory_align: u32, offset_align: u32) -> bool {
    let len = offset_align as usize;
    let mut memory = Buffer::zeroed(memory_align as usize + len);
    let read = |memory: &mut Buffer| file.read_at(&mut memory[memory_align as usize..][..len], 0);
    let invalid = |error: io::Error| error.raw_os_error() == Some(libc::EINVAL);
    // Any other error is the medium's, and will be met again.
    let works = set_direct(file, true) && !read(&mut memory).is_err_and(invalid);
    if !works {
        set_direct(file, false);
    }
    works
}

/// Turns direct I/O on or off for an open file. False: it does not know it.
fn set_direct(file: &File, on: bool) -> bool {
    // SAFETY: no pointer is passed.
    unsafe {
        let flags = libc::fcntl(file.as_raw_fd(), libc::F_GETFL);
        let wanted = if on { flags | libc::O_DIRECT } else { flags & !libc::O_DIRECT };
        flags >= 0 && libc::fcntl(file.as_raw_fd(), libc::F_SETFL, wanted) == 0
    }
}

fn logical_block_bytes(file: &File) -> u32 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request writes one integer to `bytes`.
    let asked = unsafe { libc::ioctl(file.as_raw_fd(), libc::BLKSSZGET, &mut bytes) };
    match u32::try_from(bytes) {
        Ok(bytes @ 512..) if asked == 0 => bytes,
        _ => 512,
    }
}

/// Whether the file lives in tmpfs or ramfs. There direct I/O opens without meaning anything, and a
/// ring would hand every call to a thread, since these file systems do not know "do not wait".
fn is_in_memory(file: &File) -> bool {
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    const RAMFS_MAGIC: i64 = 0x8584_58f6;
    file_system(file).is_some_and(|kind| [TMPFS_MAGIC, RAMFS_MAGIC].contains(&kind))
}

pub(super) struct Traits {
    pub(super) rotational: bool,
    pub(super) discard_zeroes: bool,
    /// A file with holes.
    pub(super) is_sparse: bool,
}

/// What the system tells of the device, or of the disk under a file.
pub(super) fn traits(file: &File, metadata: &Metadata, bytes: u64) -> Traits {
    if metadata.file_type().is_block_device() {
        let queue = |key| queue_value(metadata.rdev(), key);
        let discard_zeroes = queue("discard_max_bytes").is_some_and(|max| max > 0)
            && queue("write_zeroes_max_bytes").is_some_and(|max| max > 0);
        Traits { rotational: queue("rotational") == Some(1), discard_zeroes, is_sparse: false }
    } else {
        let rotational = queue_value(metadata.dev(), "rotational") == Some(1);
        let discard_zeroes = punches_holes(file, bytes);
        // One that has all its room stays so: its user may have given it that.
        let is_sparse = discard_zeroes && metadata.blocks() * 512 < bytes;
        Traits { rotational, discard_zeroes, is_sparse }
    }
}

/// Tries to punch a hole beyond the end, which changes nothing.
fn punches_holes(file: &File, bytes: u64) -> bool {
    let Ok(offset) = libc::off_t::try_from(bytes) else { return false };
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: no pointer is passed.
    unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, 4096) == 0 }
}

/// A number from the request queue of a disk, or of a partition's disk.
fn queue_value(device: u64, key: &str) -> Option<u64> {
    let name = sysfs(device)?;
    let own = name.join("queue").join(key);
    let disk = name.parent()?.join("queue").join(key);
    let text = std::fs::read_to_string(own).or_else(|_| std::fs::read_to_string(disk)).ok()?;
    text.trim().parse().ok()
}

/// Where sysfs shows a block device.
pub(super) fn sysfs(device: u64) -> Option<PathBuf> {
    let (major, minor) = (libc::major(device), libc::minor(device));
    std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()
}
