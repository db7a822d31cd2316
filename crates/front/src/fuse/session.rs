//! What each request of the kernel asks for: the file system is one directory with one file.
//!
//! The kernel is trusted no more than any other input: each message is checked as it is parsed.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::nbd::{Export, Exports};

use super::wire::{
    AllocateIn, Attributes, AttributesOut, BY_HANDLE, DirectoryEntry, EntryOut, FileSystemOut,
    InHeader, InitExtension, InitIn, InitOut, MAJOR, MINOR, OpenIn, OpenOut, OutHeader, PAGE_BYTES,
    RING_BYTES_MAX, ROOT, ReleaseIn, SET_SIZE, SetAttributesIn, TransferIn, WRITE_BYTES_MAX,
    WriteOut, init_flag, opcode, open_flag,
};

/// The file in the directory.
const FILE: u64 = 2;
/// For how long the kernel may keep what it was told of files: nothing changes. For ever: of a loop device over the
/// file of a process that was killed, it tells what that is attached to only as long as it may keep that.
const VALID_S: u64 = u32::MAX as u64;
/// Requests that the kernel keeps under way for one mount beyond those that programs wait for.
const BACKGROUND_MAX: u16 = 256;

/// `O_ACCMODE`: how a file is opened.
const ACCESS_MODE: u32 = 3;
/// `O_DSYNC`: each write is durable before it is answered.
const DATA_SYNC: u32 = 0o10_000;
/// `FALLOC_FL_KEEP_SIZE`.
const KEEP_SIZE: u32 = 1;
/// `FALLOC_FL_PUNCH_HOLE`.
const PUNCH_HOLE: u32 = 2;
/// `FALLOC_FL_ZERO_RANGE`.
const ZERO_RANGE: u32 = 16;
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;

/// One mount as the kernel sees it. Lanes share it; only `open` and `release` take its lock.
#[derive(Debug)]
pub struct Session {
    /// What is served: its first export is the file.
    exports: Exports,
    owner: (u32, u32),
    /// Whether requests may come through a ring.
    takes_ring: bool,
    open: Mutex<Open>,
}

/// Who has the file open.
#[derive(Debug, Default)]
struct Open {
    last_handle: u64,
    /// Process ids by handle.
    processes: BTreeMap<u64, u32>,
}

/// A request, parsed.
#[derive(Debug, PartialEq)]
pub struct Request {
    /// Names the request in its answer.
    pub unique: u64,
    /// What it asks for.
    pub wanted: Wanted,
}

/// What a request asks for.
#[derive(Debug, PartialEq)]
pub enum Wanted {
    /// This answer, and no more.
    Answer(Vec<u8>),
    /// This answer; the mount begins with it.
    Begin {
        /// The answer.
        answer: Vec<u8>,
        /// The kernel takes entries of a ring from then on.
        is_over_ring: bool,
    },
    /// Nothing: the kernel waits for no answer.
    Nothing,
    /// Bytes of the array, which may end before `length`.
    Read {
        /// The first byte.
        offset_bytes: u64,
        /// How many.
        length: usize,
    },
    /// That the array takes these bytes.
    Write {
        /// The first byte.
        offset_bytes: u64,
        /// Where the bytes are in the message.
        data: Range<usize>,
        /// Durable before the answer.
        durable: bool,
    },
    /// That all which was answered is durable.
    Flush,
    /// That a range reads as zeroes.
    Zero {
        /// The first byte.
        offset_bytes: u64,
        /// How many.
        length_bytes: u64,
        /// What it took may be given up.
        give_up: bool,
    },
}

/// A message that breaks the protocol: the mount is of no more use.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Broken {
    /// Shorter than its header says, or than its kind needs.
    #[error("the kernel's request {0} is too short")]
    Short(u32),
    /// A protocol of another age.
    #[error("the kernel speaks FUSE {0}.{1}; 7.31 or later is needed (Linux 5.4)")]
    Version(u32, u32),
}

impl Session {
    /// A mount of the first export as a file, which belongs to a user and a group.
    pub fn new(exports: Exports, uid: u32, gid: u32) -> Session {
        Session { exports, owner: (uid, gid), takes_ring: true, open: Mutex::default() }
    }

    /// The same without a ring, whatever the kernel offers.
    pub fn without_ring(self) -> Session {
        Session { takes_ring: false, ..self }
    }

    /// Whether requests may come through a ring.
    pub(super) fn takes_ring(&self) -> bool {
        self.takes_ring
    }

    /// The file that is served.
    pub fn file(&self) -> &Export {
        &self.exports.as_slice()[0]
    }

    /// The array's logical block in bytes.
    pub fn block_bytes(&self) -> u32 {
        self.file().block_sizes.minimum()
    }

    /// The processes that have it open, in the order of their opening.
    pub fn processes(&self) -> Vec<u32> {
        self.open().processes.values().copied().collect()
    }

    /// Parses a message of the kernel.
    pub fn parse(&self, message: &[u8]) -> Result<Request, Broken> {
        let (header, arguments) = split::<InHeader>(message, 0)?;
        if header.length as usize != message.len() {
            return Err(Broken::Short(header.opcode));
        }
        let wanted = match self.wanted(&header, arguments) {
            Ok(wanted) => wanted,
            Err(Refusal::Errno(errno)) => Wanted::Answer(error(header.unique, errno)),
            Err(Refusal::Broken(broken)) => return Err(broken),
        };
        Ok(Request { unique: header.unique, wanted })
    }

    fn wanted(&self, header: &InHeader, arguments: &[u8]) -> Result<Wanted, Refusal> {
        let code = header.opcode;
        match code {
            opcode::READ => self.read(&split(arguments, code)?.0),
            opcode::WRITE => self.write(arguments),
            opcode::FSYNC | opcode::SYNCFS => Ok(Wanted::Flush),
            opcode::FALLOCATE => self.allocate(&split(arguments, code)?.0),
            opcode::FORGET | opcode::BATCH_FORGET => Ok(Wanted::Nothing),
            opcode::RELEASE => {
                let (release, _) = split::<ReleaseIn>(arguments, code)?;
                self.open().processes.remove(&release.handle);
                // What it wrote stays as durable as it was: only `fsync` promises more.
                answer(header, &[])
            }
            opcode::DESTROY | opcode::RELEASEDIR | opcode::FSYNCDIR => answer(header, &[]),
            opcode::INIT => {
                let (answer, is_over_ring) = init(arguments, self.takes_ring)?;
                let answer = whole(header.unique, answer.as_bytes());
                Ok(Wanted::Begin { answer, is_over_ring })
            }
            opcode::LOOKUP => answer(header, self.lookup(header.node, arguments)?.as_bytes()),
            opcode::GETATTR => answer(header, self.attributes_out(header.node)?.as_bytes()),
            opcode::SETATTR => {
                let (change, _) = split(arguments, code)?;
                answer(header, self.set_attributes(header.node, &change)?.as_bytes())
            }
            opcode::OPEN => {
                let (open, _) = split(arguments, code)?;
                answer(header, self.open_file(header, &open)?.as_bytes())
            }
            opcode::OPENDIR => answer(header, OpenOut::default().as_bytes()),
            opcode::READDIR => answer(header, &self.list(&split(arguments, code)?.0)),
            opcode::STATFS => answer(header, self.file_system().as_bytes()),
            _ => Err(Refusal::Errno(Errno::NOSYS)),
        }
    }

    fn read(&self, read: &TransferIn) -> Result<Wanted, Refusal> {
        let end = self.file().size_bytes;
        let left = end.saturating_sub(read.offset_bytes);
        let length = u64::from(read.length).min(left) as usize;
        self.exports.note_read(read.offset_bytes..read.offset_bytes.saturating_add(length as u64));
        Ok(Wanted::Read { offset_bytes: read.offset_bytes.min(end), length })
    }

    fn write(&self, arguments: &[u8]) -> Result<Wanted, Refusal> {
        let (write, data) = split::<TransferIn>(arguments, opcode::WRITE)?;
        if data.len() != write.length as usize {
            return Err(Refusal::Broken(Broken::Short(opcode::WRITE)));
        }
        self.may_write()?;
        let left = self.file().size_bytes.saturating_sub(write.offset_bytes);
        let length = u64::from(write.length).min(left) as usize;
        if length == 0 && write.length > 0 {
            return Err(Refusal::Errno(Errno::NOSPC));
        }
        let start = size_of::<InHeader>() + size_of::<TransferIn>();
        let durable = write.flags & DATA_SYNC != 0;
        Ok(Wanted::Write { offset_bytes: write.offset_bytes, data: start..start + length, durable })
    }

    fn allocate(&self, range: &AllocateIn) -> Result<Wanted, Refusal> {
        self.may_write()?;
        let give_up = range.mode & PUNCH_HOLE != 0;
        let known = [PUNCH_HOLE | KEEP_SIZE, ZERO_RANGE, ZERO_RANGE | KEEP_SIZE];
        if !known.contains(&range.mode) {
            return Err(Refusal::Errno(Errno::OPNOTSUPP));
        }
        let end = range.offset_bytes.checked_add(range.length_bytes);
        if end.is_none_or(|end| end > self.file().size_bytes && !give_up) {
            return Err(Refusal::Errno(Errno::NOSPC));
        }
        // A hole may reach beyond the end, where there is nothing.
        let offset_bytes = range.offset_bytes.min(self.file().size_bytes);
        let length_bytes = range.length_bytes.min(self.file().size_bytes - offset_bytes);
        Ok(Wanted::Zero { offset_bytes, length_bytes, give_up })
    }

    fn may_write(&self) -> Result<(), Refusal> {
        match self.is_read_only() {
            true => Err(Refusal::Errno(Errno::ROFS)),
            false => Ok(()),
        }
    }

    /// Whether no program may write now.
    pub fn is_read_only(&self) -> bool {
        self.file().read_only || self.exports.switch().is_on()
    }

    fn lookup(&self, node: u64, name: &[u8]) -> Result<EntryOut, Refusal> {
        let name = name.strip_suffix(b"\0").unwrap_or(name);
        if node != ROOT || name != self.file().name.as_bytes() {
            return Err(Refusal::Errno(Errno::NOENT));
        }
        Ok(EntryOut {
            node: FILE,
            generation: 0,
            entry_valid_s: VALID_S,
            attributes_valid_s: VALID_S,
            attributes: self.attributes(FILE)?,
            ..EntryOut::default()
        })
    }

    fn attributes_out(&self, node: u64) -> Result<AttributesOut, Refusal> {
        let attributes = self.attributes(node)?;
        Ok(AttributesOut { valid_s: VALID_S, attributes, ..AttributesOut::default() })
    }

    fn attributes(&self, node: u64) -> Result<Attributes, Refusal> {
        let (uid, gid) = self.owner;
        let common = Attributes { inode: node, uid, gid, ..Attributes::default() };
        match node {
            ROOT => Ok(Attributes { mode: DIRECTORY | 0o700, links: 2, ..common }),
            FILE => Ok(Attributes {
                size_bytes: self.file().size_bytes,
                blocks: self.file().size_bytes / 512,
                mode: REGULAR | if self.file().read_only { 0o400 } else { 0o600 },
                links: 1,
                block_bytes: self.block_bytes().max(4096),
                ..common
            }),
            _ => Err(Refusal::Errno(Errno::NOENT)),
        }
    }

    /// As on a device, times may be set, without effect; the size, the mode and the owner stay. A program that
    /// opens a file to empty it goes on with all of it: the answer tells the kernel its true size.
    fn set_attributes(
        &self,
        node: u64,
        change: &SetAttributesIn,
    ) -> Result<AttributesOut, Refusal> {
        /// The mode, the user and the group.
        const RIGHTS: u32 = 0b111;
        let emptied_at_open = change.valid & BY_HANDLE == 0 && change.size_bytes == 0;
        let resized = change.valid & SET_SIZE != 0
            && change.size_bytes != self.file().size_bytes
            && !emptied_at_open;
        match resized || change.valid & RIGHTS != 0 {
            true => Err(Refusal::Errno(Errno::PERM)),
            false => self.attributes_out(node),
        }
    }

    fn open_file(&self, header: &InHeader, open: &OpenIn) -> Result<OpenOut, Refusal> {
        if header.node != FILE {
            return Err(Refusal::Errno(Errno::ISDIR));
        }
        if open.flags & ACCESS_MODE != 0 {
            self.may_write()?;
        }
        let mut who = self.open();
        who.last_handle += 1;
        let handle = who.last_handle;
        who.processes.insert(handle, process_of(header.pid));
        let flags = open_flag::DIRECT_IO | open_flag::NOFLUSH | open_flag::PARALLEL_DIRECT_WRITES;
        Ok(OpenOut { handle, open_flags: flags, backing: 0 })
    }

    /// The entries from an offset on. There are three, which always fit.
    fn list(&self, read: &TransferIn) -> Vec<u8> {
        const DT_DIR: u32 = 4;
        const DT_REG: u32 = 8;
        let names = [(ROOT, DT_DIR, "."), (ROOT, DT_DIR, ".."), (FILE, DT_REG, &*self.file().name)];
        let mut list = Vec::new();
        for (index, (inode, kind, name)) in names.into_iter().enumerate() {
            if (index as u64) < read.offset_bytes {
                continue;
            }
            let name_length = u32::try_from(name.len()).expect("a name of at most 32 bytes");
            let offset = index as u64 + 1;
            let entry = DirectoryEntry { inode, offset, name_length, kind };
            let length = (size_of::<DirectoryEntry>() + name.len()).next_multiple_of(8);
            if list.len() + length > read.length as usize {
                break;
            }
            let end = list.len() + length;
            list.extend_from_slice(entry.as_bytes());
            list.extend_from_slice(name.as_bytes());
            list.resize(end, 0);
        }
        list
    }

    fn file_system(&self) -> FileSystemOut {
        let block_bytes = self.block_bytes().max(512);
        FileSystemOut {
            blocks: self.file().size_bytes / u64::from(block_bytes),
            files: 1,
            block_bytes,
            fragment_bytes: block_bytes,
            name_length_max: 255,
            ..FileSystemOut::default()
        }
    }

    /// A panic on one lane leaves the list as usable as it was.
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The process of a thread, for the kernel names the thread that opens, which may be gone soon. Its own number
/// where it is gone already.
fn process_of(thread: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
    process.unwrap_or(thread)
}

/// Why a request is not served.
#[derive(Debug)]
enum Refusal {
    /// It is answered with an error.
    Errno(Errno),
    /// The mount is given up.
    Broken(Broken),
}

impl From<Broken> for Refusal {
    fn from(broken: Broken) -> Refusal {
        Refusal::Broken(broken)
    }
}

/// The answer to a kernel that introduces itself, and whether both go on with a ring.
fn init(arguments: &[u8], takes_ring: bool) -> Result<(InitOut, bool), Broken> {
    let (theirs, rest) = split::<InitIn>(arguments, opcode::INIT)?;
    if theirs.major != MAJOR || theirs.minor < MINOR {
        return Err(Broken::Version(theirs.major, theirs.minor));
    }
    let is_extended = theirs.flags & init_flag::EXTENDED != 0;
    let extension = InitExtension::read_from_prefix(rest).ok().filter(|_| is_extended);
    let offered = extension.map_or(0, |(extension, _)| extension.flags_2);
    let is_over_ring = takes_ring && offered & init_flag::OVER_RING != 0;
    let (flags, flags_2, bytes_max) = match is_over_ring {
        true => (init_flag::EXTENDED, init_flag::OVER_RING, RING_BYTES_MAX),
        false => (0, 0, WRITE_BYTES_MAX),
    };
    let ours =
        init_flag::ASYNC_READ | init_flag::BIG_WRITES | init_flag::ASYNC_DIO | init_flag::MAX_PAGES;
    let answer = InitOut {
        major: MAJOR,
        minor: MINOR,
        max_readahead: theirs.max_readahead,
        flags: theirs.flags & ours | flags,
        max_background: BACKGROUND_MAX,
        congestion_threshold: BACKGROUND_MAX,
        max_write: bytes_max as u32,
        time_granularity_ns: 1,
        max_pages: (bytes_max / PAGE_BYTES) as u16,
        flags_2,
        ..InitOut::default()
    };
    Ok((answer, is_over_ring))
}

/// An answer's header, before `length` bytes.
pub(super) fn header(unique: u64, length: usize) -> OutHeader {
    let length = u32::try_from(size_of::<OutHeader>() + length).expect("at most a MiB");
    OutHeader { length, error: 0, unique }
}

/// The answer that a request has failed.
pub(super) fn error(unique: u64, errno: Errno) -> Vec<u8> {
    let header = OutHeader { error: -errno.raw_os_error(), ..header(unique, 0) };
    header.as_bytes().to_vec()
}

/// The answer that a write took so many bytes.
pub(super) fn written(unique: u64, length: usize) -> Vec<u8> {
    let length = u32::try_from(length).expect("at most a MiB");
    whole(unique, WriteOut { length, padding: 0 }.as_bytes())
}

/// An answer that is there as a whole.
pub(super) fn whole(unique: u64, body: &[u8]) -> Vec<u8> {
    [header(unique, body.len()).as_bytes(), body].concat()
}

fn answer(header: &InHeader, body: &[u8]) -> Result<Wanted, Refusal> {
    Ok(Wanted::Answer(whole(header.unique, body)))
}

/// The structure at the start of `bytes`, and what follows it.
fn split<T: FromBytes + Immutable>(bytes: &[u8], code: u32) -> Result<(T, &[u8]), Broken> {
    T::read_from_prefix(bytes).map_err(|_| Broken::Short(code))
}

#[cfg(test)]
mod tests;
