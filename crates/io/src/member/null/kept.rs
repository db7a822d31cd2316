//! What a device that pretends gives back.

use std::io;
use std::ops::Range;

use crate::member::Ram;

/// What is kept at either end in any case: md's metadata lie there, in all its formats.
const END_BYTES: u64 = 1 << 20;

/// Memory for the first and the last MiB, or for everything. The rest reads as zeroes.
#[derive(Debug)]
pub(crate) struct Kept {
    head: Ram,
    tail: Ram,
    /// What is forgotten, in bytes.
    forgotten: Range<u64>,
}

impl Kept {
    pub(super) fn new(bytes: u64, everything: bool) -> io::Result<Self> {
        let head = if everything { bytes } else { bytes.min(END_BYTES) };
        let tail = (bytes - head).min(END_BYTES);
        // A mapping has a byte at least.
        let ram = |bytes: u64| match usize::try_from(bytes.max(1)) {
            Ok(size) => Ram::sparse(size),
            Err(_) => Err(io::ErrorKind::OutOfMemory.into()),
        };
        Ok(Self { head: ram(head)?, tail: ram(tail)?, forgotten: head..bytes - tail })
    }

    /// Copies `len` bytes at `offset` to `to`.
    ///
    /// # Safety
    /// `to` has room for `len` bytes, outside this device.
    pub(crate) unsafe fn read(&self, offset: u64, to: *mut u8, len: usize) {
        let end = offset + len as u64;
        if offset < self.forgotten.end && end > self.forgotten.start {
            // SAFETY: the caller's room.
            unsafe { std::ptr::write_bytes(to, 0, len) };
        }
        self.each(offset, len, |ram, at, skip, len| {
            // SAFETY: `skip` and `len` are within the caller's room.
            unsafe { ram.read(at, to.add(skip), len) }
        });
    }

    /// Takes `len` bytes for `offset` from `from`, as far as they are kept.
    ///
    /// # Safety
    /// `from` holds `len` bytes, outside this device.
    pub(crate) unsafe fn write(&self, offset: u64, from: *const u8, len: usize) {
        self.each(offset, len, |ram, at, skip, len| {
            // SAFETY: `skip` and `len` are within the caller's bytes.
            unsafe { ram.write(at, from.add(skip), len) }
        });
    }

    /// Makes the range read as zeroes.
    pub(crate) fn zero(&self, offset: u64, len: usize) {
        self.each(offset, len, |ram, at, _, len| ram.zero(at, len));
    }

    /// Calls `act` with memory, the place in it, the bytes of the range before it and the length,
    /// for each part of the range that is kept.
    #[inline]
    fn each(&self, offset: u64, len: usize, mut act: impl FnMut(&Ram, usize, usize, usize)) {
        let end = offset + len as u64;
        let Range { start: head_end, end: tail_start } = self.forgotten;
        if offset < head_end {
            act(&self.head, offset as usize, 0, (end.min(head_end) - offset) as usize);
        }
        if end > tail_start {
            let start = offset.max(tail_start);
            let (at, skip) = ((start - tail_start) as usize, (start - offset) as usize);
            act(&self.tail, at, skip, len - skip);
        }
    }
}

#[cfg(test)]
mod tests;
