//! A minimal file system on the crate `fuser`: one file of memory, for `mdspace bench fronts` to compare with.
//!
//! ```text
//! cargo run --release -p mdspace-front --example fuser_ram -- DIR 256
//! ```
//!
//! Arguments: the directory, and the size of the file `ram` in MiB. It has two threads with a descriptor each and
//! direct I/O, as the front of mdspace, and ends when it is unmounted.

use std::error::Error;
use std::ffi::OsStr;
use std::io;
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr,
    ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

const FILE: INodeNo = INodeNo(2);
const NAME: &str = "ram";
/// Attributes never change.
const VALID: Duration = Duration::from_secs(3600);
/// Bytes behind one lock. No request waits for another one unless both touch the same of them.
const PART_BYTES: usize = 64 << 10;
/// As the front of mdspace.
const BACKGROUND_MAX: u16 = 256;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [directory, size] = &words[..] else { return Err("give DIR MIB".into()) };
    let bytes = size.parse::<usize>()? << 20;
    let part = || RwLock::new(vec![0; PART_BYTES].into_boxed_slice());
    let ram = Ram { parts: (0..bytes / PART_BYTES).map(|_| part()).collect() };
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("fuser_ram".into())];
    config.n_threads = Some(2);
    config.clone_fd = true;
    Ok(fuser::mount(ram, directory, &config)?)
}

/// The file's memory.
struct Ram {
    parts: Vec<RwLock<Box<[u8]>>>,
}

/// What a range of the file has in one part: the part's index, where in it, and where in the range.
struct Piece {
    part: usize,
    within: std::ops::Range<usize>,
    of_range: std::ops::Range<usize>,
}

impl Ram {
    fn bytes(&self) -> usize {
        self.parts.len() * PART_BYTES
    }

    /// The length of a range as far as it lies in the file.
    fn length(&self, offset: u64, length: usize) -> usize {
        self.bytes().saturating_sub(offset as usize).min(length)
    }

    fn attributes(&self, node: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match node {
            INodeNo::ROOT => (FileType::Directory, 0o700, 0),
            FILE => (FileType::RegularFile, 0o600, self.bytes() as u64),
            _ => return None,
        };
        Some(FileAttr {
            ino: node,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}

/// The pieces of a range that lies in the file.
fn pieces(offset: u64, length: usize) -> impl Iterator<Item = Piece> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset as usize + done;
        let count = (PART_BYTES - at % PART_BYTES).min(length - done);
        let within = at % PART_BYTES..at % PART_BYTES + count;
        let piece = Piece { part: at / PART_BYTES, within, of_range: done..done + count };
        done += count;
        (count > 0).then_some(piece)
    })
}

impl Filesystem for Ram {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // A kernel may refuse each of these. The program works without them.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.set_max_background(BACKGROUND_MAX);
        let _ = config.set_congestion_threshold(BACKGROUND_MAX);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attributes(FILE).filter(|_| parent == INodeNo::ROOT && name == NAME) {
            Some(attributes) => reply.entry(&VALID, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(node) {
            Some(attributes) => reply.attr(&VALID, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        request: &Request,
        node: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        _size: Option<u64>,
        _accessed: Option<TimeOrNow>,
        _modified: Option<TimeOrNow>,
        _changed: Option<std::time::SystemTime>,
        handle: Option<FileHandle>,
        _created: Option<std::time::SystemTime>,
        _checked: Option<std::time::SystemTime>,
        _backed_up: Option<std::time::SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        self.getattr(request, node, handle, reply);
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_DIRECT_IO
            | FopenFlags::FOPEN_NOFLUSH
            | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(1), flags);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let length = self.length(offset, size as usize);
        let at = offset as usize % PART_BYTES;
        if at + length <= PART_BYTES && length > 0 {
            // What lies in one part goes to the kernel from there.
            let part = self.parts[offset as usize / PART_BYTES].read();
            let part = part.unwrap_or_else(PoisonError::into_inner);
            return reply.data(&part[at..at + length]);
        }
        let mut data = vec![0; length];
        for piece in pieces(offset, length) {
            let part = self.parts[piece.part].read().unwrap_or_else(PoisonError::into_inner);
            data[piece.of_range].copy_from_slice(&part[piece.within]);
        }
        reply.data(&data);
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let length = self.length(offset, data.len());
        for piece in pieces(offset, length) {
            let mut part = self.parts[piece.part].write().unwrap_or_else(PoisonError::into_inner);
            part[piece.within].copy_from_slice(&data[piece.of_range]);
        }
        reply.written(length as u32);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }
}
