//! A queue's own ring, over which its entries go to the driver and come back with requests.
//!
//! It is not the lane's: a queue ends before its lane does. A [`CommandRing`] is needed: a thread that is killed finishes
//! what has come before it gives its entries up. A driver as that of Linux 6.12 loses requests of entries that are given
//! up first, and the device hangs.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use io_uring::opcode;
use io_uring::squeue::Entry;
use io_uring::types::Fd;
use rustix::ioctl::Opcode;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use zerocopy::IntoBytes;

use super::wire::{Descriptor, IoCommand, descriptors_at, descriptors_bytes, io_order};
use crate::command_ring::{CommandRing, Entered};

/// The ring of one queue. From its first entry on one thread uses it: the driver takes a queue's entries from no other one.
pub(super) struct QueueRing {
    commands: ManuallyDrop<CommandRing<Entry>>,
    /// The driver has given all entries back.
    is_over: bool,
    descriptors: Descriptors,
    device: Arc<File>,
    queue: u16,
}

/// What the driver says of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) tag: u64,
    /// 0: a request came with it. Else a negative errno.
    pub(super) result: i32,
}

impl QueueRing {
    /// Of a queue of `depth` entries. The driver has none of them yet.
    pub(super) fn new(device: Arc<File>, queue: u16, depth: u16) -> io::Result<Self> {
        let descriptors = Descriptors::map(&device, queue, depth)?;
        // It holds what may come at once: each entry once, in each direction.
        let commands = ManuallyDrop::new(CommandRing::new(depth.into())?);
        Ok(Self { commands, is_over: false, descriptors, device, queue })
    }

    /// Gives the driver all entries, from the thread that serves the queue. All at once: a queue that is half ready when
    /// its process is killed cannot be taken over.
    pub(super) fn fetch(&mut self) -> io::Result<()> {
        self.commands.enable()?;
        (0..self.descriptors.depth).for_each(|tag| self.push(io_order::FETCH, tag, 0));
        self.turn()
    }

    /// What a task polls to wait for news.
    pub(super) fn news(&self) -> io::Result<OwnedFd> {
        self.commands.news()
    }

    /// Forgets that there are news, before it is looked for them.
    pub(super) fn clear_news(&self) {
        self.commands.clear_news();
    }

    /// Notes that the driver has given all entries back.
    pub(super) fn end(&mut self) {
        self.is_over = true;
    }

    /// What the driver has said next, as far as it was [turned](Self::turn).
    pub(super) fn next(&mut self) -> Option<Arrival> {
        let end = self.commands.next()?;
        Some(Arrival { tag: end.user_data(), result: end.result() })
    }

    /// What the request asks for that came with an entry.
    pub(super) fn asked(&self, tag: u16) -> Descriptor {
        self.descriptors.read(tag)
    }

    /// Answers the request that came with an entry, at the latest with the next [`turn`](Self::turn), and gives the
    /// driver the entry again.
    pub(super) fn commit(&mut self, tag: u16, result: i32) {
        self.push(io_order::COMMIT_AND_FETCH, tag, result);
    }

    fn push(&mut self, code: Opcode, tag: u16, result: i32) {
        let command = IoCommand { queue: self.queue, tag, result, address: 0 };
        let command: [u8; 16] = command.as_bytes().try_into().expect("it has 16 bytes");
        let entry = opcode::UringCmd16::new(Fd(self.device.as_raw_fd()), code).cmd(command).build();
        // SAFETY: the command holds no pointer.
        unsafe { self.commands.push(&entry.user_data(tag.into())) };
    }

    /// Hands the driver what was pushed, and has the kernel finish what has come.
    pub(super) fn turn(&mut self) -> io::Result<()> {
        loop {
            match self.commands.enter()? {
                Entered::Idle => return Ok(()),
                Entered::Done => {}
                Entered::Busy => std::thread::yield_now(),
            }
        }
    }
}

impl Drop for QueueRing {
    /// Entries that the driver has go back to it when their thread ends, and with them what comes until then: the thread
    /// finishes that at its end. A ring that is closed by itself does not.
    fn drop(&mut self) {
        if self.is_over {
            // SAFETY: it is used no more.
            unsafe { ManuallyDrop::drop(&mut self.commands) };
        }
    }
}

/// The descriptors of a queue's requests, which the driver writes before it sends one.
struct Descriptors {
    at: NonNull<Descriptor>,
    bytes: usize,
    depth: u16,
}

impl Descriptors {
    fn map(device: &File, queue: u16, depth: u16) -> io::Result<Self> {
        let page_bytes = rustix::param::page_size();
        let bytes = descriptors_bytes(depth.into(), page_bytes);
        let offset = descriptors_at(queue, page_bytes);
        // SAFETY: the kernel chooses a free place for the mapping.
        let at = unsafe {
            mmap(ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, device, offset)
        }?;
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { at, bytes, depth })
    }

    fn read(&self, tag: u16) -> Descriptor {
        assert!(tag < self.depth, "an entry of the queue");
        // SAFETY: the mapping holds that many descriptors, of which any bytes are one, at multiples of their size. The
        // driver writes this one no more before its request is answered; whatever it does, no reference is made.
        unsafe { self.at.add(tag.into()).read_volatile() }
    }
}

// SAFETY: the mapping belongs to the process, and only this reads it.
unsafe impl Send for Descriptors {}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's own, and no reference into it exists.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}
