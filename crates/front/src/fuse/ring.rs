//! FUSE over io_uring: the kernel's requests and the answers to them through a ring, instead of reads and writes of
//! `/dev/fuse`.
//!
//! Source: `include/uapi/linux/fuse.h`, version 7.42 (Linux 6.14), and `Documentation/filesystems/fuse-io-uring.rst`.
//! The kernel has a queue for each CPU, and uses them when each has an entry. An entry is memory for one request: a
//! header, and a payload. The kernel fills it, the answer is put there, and one command hands that over and asks for the
//! next request. Commands leave together: one system call answers and brings as many requests as there are.
//!
//! The ring is the mount's own: it ends with the mount, and the kernel gives its entries up then.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use io_uring::squeue::Entry128;
use io_uring::{opcode, types};
use mdspace_io::Socket;
use zerocopy::{FromBytes, IntoBytes};

use super::wire::{
    InHeader, OutHeader, PAGE_BYTES, RING_BYTES_MAX, RingCommand, RingHeader, ring_command,
};
use crate::command_ring::CommandRing;

/// Where the payload begins in an entry. What stands before it in a message is put directly before it.
const PAYLOAD_AT: usize = PAGE_BYTES;
const ENTRY_BYTES: usize = PAYLOAD_AT + RING_BYTES_MAX;

/// Entries of one CPU's queue: so many requests of its programs are under way at once.
const DEPTH_MAX: usize = 64;
const DEPTH_MIN: usize = 4;
/// Memory of all entries of a mount together, where that is enough for the fewest.
const BYTES_MAX: usize = 64 << 20;

/// Which of the kernel's queues one lane serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) lane: usize,
    pub(super) lanes: usize,
}

/// One lane's part.
pub(super) struct Ring {
    commands: CommandRing<Entry128>,
    /// Of `/dev/fuse`, once it has begun.
    device: i32,
    /// It goes after the ring: no request is put there any more.
    entries: Vec<Entry>,
    /// Where the requests are that were not answered, by what the kernel calls them.
    taken: HashMap<u64, usize>,
    is_over: bool,
}

/// Memory of one request.
struct Entry {
    queue: u16,
    memory: Memory,
}

/// Memory that the kernel writes to, while it has the entry.
struct Memory(NonNull<[u8]>);

/// A request that has come.
pub(super) struct Arrived {
    entry: usize,
    /// Where its message stands in the entry's memory.
    message: Range<usize>,
}

impl Ring {
    /// A ring with entries for this share of all queues, for the thread that [begins](Self::begin) it. Made before the kernel
    /// is told that there is one: from then on it waits until all queues have entries.
    pub(super) fn new(share: Share) -> io::Result<Ring> {
        let cpus = possible_cpus()?;
        let depth = depth(cpus);
        let queues = (0..cpus).filter(|cpu| cpu % share.lanes == share.lane);
        let queues = queues.flat_map(|cpu| std::iter::repeat_n(cpu as u16, depth));
        let entries: Vec<Entry> =
            queues.map(|queue| Entry { queue, memory: Memory::new() }).collect();
        let commands = CommandRing::new(entries.len().max(1) as u32)?;
        let (device, taken) = (-1, HashMap::with_capacity(entries.len()));
        Ok(Ring { commands, device, entries, taken, is_over: false })
    }

    /// Makes it this thread's, and gives the kernel the entries with the next [`turn`](Self::turn). Gives what is readable
    /// where the kernel has signalled something since the last [`clear_news`](Self::clear_news).
    pub(super) fn begin(&mut self, device: BorrowedFd<'_>) -> io::Result<Socket> {
        let signalled = Socket::polled(self.commands.news()?);
        self.commands.enable()?;
        self.device = device.as_raw_fd();
        (0..self.entries.len()).for_each(|index| self.register(index));
        Ok(signalled)
    }

    /// Takes note of the kernel's signals: a turn follows.
    pub(super) fn clear_news(&self) {
        self.commands.clear_news();
    }

    /// Whether the kernel has ended it.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Hands answers over, and lets the kernel put requests into entries.
    pub(super) fn turn(&mut self) {
        // What a busy kernel has not taken goes with the next turn.
        let entered = self.commands.enter();
        entered.unwrap_or_else(|error| panic!("a ring of our own refuses to be entered: {error}"));
    }

    /// The next request that has come. None: there is none now.
    pub(super) fn next(&mut self) -> Option<Arrived> {
        loop {
            let end = self.commands.next()?;
            let entry = end.user_data() as usize;
            match end.result() {
                0 => match self.arrived(entry) {
                    Some(arrived) => return Some(arrived),
                    None => {
                        tracing::error!(
                            "the kernel's request has no length: the mount is given up"
                        );
                        self.is_over = true;
                    }
                },
                error => {
                    if error != -libc::ENOTCONN {
                        let error = io::Error::from_raw_os_error(-error);
                        tracing::warn!(%error, "the kernel gives an entry of its ring up");
                    }
                    self.is_over |= error == -libc::ENOTCONN;
                }
            }
        }
    }

    /// Puts what stands before the payload there, so that the message is in one piece.
    fn arrived(&mut self, entry: usize) -> Option<Arrived> {
        let memory = self.entries[entry].memory.bytes();
        let (header, _) = RingHeader::read_from_prefix(memory).expect("the memory is longer");
        let (request, _) =
            InHeader::read_from_prefix(&header.in_out).expect("the header is longer");
        let payload = header.entry.payload_length as usize;
        let before = (request.length as usize).checked_sub(payload)?;
        let argument = before.checked_sub(size_of::<InHeader>())?;
        if payload > RING_BYTES_MAX || argument > header.argument.len() {
            return None;
        }
        let start = PAYLOAD_AT - before;
        memory[start..start + size_of::<InHeader>()].copy_from_slice(request.as_bytes());
        memory[PAYLOAD_AT - argument..PAYLOAD_AT].copy_from_slice(&header.argument[..argument]);
        self.taken.insert(request.unique, entry);
        Some(Arrived { entry, message: start..PAYLOAD_AT + payload })
    }

    /// A request's message.
    pub(super) fn message(&mut self, arrived: &Arrived) -> &[u8] {
        &self.entries[arrived.entry].memory.bytes()[arrived.message.clone()]
    }

    /// Answers a request that came from here, with the next [`turn`](Self::turn): the parts of the answer begin with its
    /// header. False: it came another way.
    pub(super) fn answer(&mut self, parts: &[&[u8]]) -> bool {
        let (header, first) = OutHeader::read_from_prefix(parts[0]).expect("an answer's header");
        let Some(index) = self.taken.remove(&header.unique) else { return false };
        let Entry { queue, memory } = &mut self.entries[index];
        let (queue, memory) = (*queue, memory.bytes());
        memory[..size_of::<OutHeader>()].copy_from_slice(header.as_bytes());
        let mut end = PAYLOAD_AT;
        for part in std::iter::once(first).chain(parts[1..].iter().copied()) {
            memory[end..end + part.len()].copy_from_slice(part);
            end += part.len();
        }
        let (in_entry, _) = RingHeader::mut_from_prefix(memory).expect("the memory is longer");
        in_entry.entry.payload_length = (end - PAYLOAD_AT) as u32;
        let commit_id = in_entry.entry.commit_id;
        let command = RingCommand { flags: 0, commit_id, queue, padding: [0; 6] };
        let entry = self.command(ring_command::COMMIT_AND_FETCH, command, None);
        self.push(&entry, index);
        true
    }

    fn register(&mut self, index: usize) {
        let Entry { queue, memory } = &mut self.entries[index];
        let (queue, places) = (*queue, memory.write_places());
        let command = RingCommand { flags: 0, commit_id: 0, queue, padding: [0; 6] };
        let mut entry = self.command(ring_command::REGISTER, command, Some(places));
        set_length(&mut entry, 2);
        self.push(&entry, index);
    }

    fn command(&self, operation: u32, command: RingCommand, address: Option<u64>) -> Entry128 {
        let mut bytes = [0; 80];
        bytes[..size_of::<RingCommand>()].copy_from_slice(command.as_bytes());
        let device = types::Fd(self.device);
        opcode::UringCmd80::new(device, operation).cmd(bytes).addr(address).build()
    }

    fn push(&mut self, entry: &Entry128, index: usize) {
        let entry = entry.clone().user_data(index as u64);
        // SAFETY: the memory that a command names is the entry's, which goes after the ring, and which this thread leaves
        // alone until the command has ended.
        unsafe { self.commands.push(&entry) };
    }
}

/// Whether the kernel offers rings to mounts that begin now.
pub(super) fn is_offered() -> bool {
    let told = fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
    told.is_ok_and(|told| told.starts_with('Y'))
}

/// The CPUs that the kernel has a queue for: those that may ever be there.
fn possible_cpus() -> io::Result<usize> {
    let text = fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = text.trim().rsplit([',', '-']).next().and_then(|word| word.parse::<u16>().ok());
    let last = last.ok_or_else(|| io::Error::other(format!("{text:?} are no CPUs")))?;
    Ok(usize::from(last) + 1)
}

/// Entries of each queue.
fn depth(cpus: usize) -> usize {
    (BYTES_MAX / ENTRY_BYTES / cpus).clamp(DEPTH_MIN, DEPTH_MAX)
}

/// Sets the length of an entry, which a command needs beside the address, and which the crate has no word for.
fn set_length(entry: &mut Entry128, length: u32) {
    /// `len` in `struct io_uring_sqe`, in bytes.
    const LENGTH_AT: usize = 24;
    // SAFETY: an entry is `struct io_uring_sqe` and 64 bytes more (`repr(C)`), and any number is a length.
    unsafe {
        std::ptr::from_mut(entry).cast::<u8>().add(LENGTH_AT).cast::<u32>().write_unaligned(length);
    }
}

// SAFETY: the memory is this one's alone, and the kernel touches it for the ring's thread only.
unsafe impl Send for Memory {}

impl Memory {
    /// Where the kernel finds the two parts of the memory, in the memory: behind the header.
    const PLACES_AT: usize = 1024;

    fn new() -> Memory {
        // Zeroes that nobody has touched cost no memory.
        Memory(NonNull::from(Box::leak(vec![0; ENTRY_BYTES].into_boxed_slice())))
    }

    /// Its bytes. The kernel writes there only when this thread enters the ring.
    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the memory is this one's alone, as long as it says, and initialised. The kernel, which knows it too,
        // touches it within [`Ring::turn`], which nobody calls who holds a part of it.
        unsafe { self.0.as_mut() }
    }

    /// Writes two `struct iovec`, of the header and of the payload; gives their address.
    fn write_places(&mut self) -> u64 {
        let start = self.0.cast::<u8>().as_ptr();
        let places = [(0, size_of::<RingHeader>()), (PAYLOAD_AT, RING_BYTES_MAX)];
        let places = places.map(|(at, length)| [start.expose_provenance() + at, length]);
        let to = &mut self.bytes()[Self::PLACES_AT..];
        to[..size_of_val(&places)].copy_from_slice(places.as_bytes());
        (start.addr() + Self::PLACES_AT) as u64
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it came from a box, and nobody else has it: the ring is gone, and with it what the kernel knew.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

#[cfg(test)]
mod tests;
