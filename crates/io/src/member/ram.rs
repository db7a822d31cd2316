//! A member in memory.

mod stream;

#[cfg(test)]
mod tests;

use std::io;
use std::ptr::NonNull;

/// `ram:SIZE`: zeroed memory, given back page by page when discarded.
#[derive(Debug)]
pub(crate) struct Ram {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory belongs to no thread. Lanes that move the same bytes at once may mix them, as
// they may on a disk; bytes have no invalid values, and no reference to them is ever made.
unsafe impl Send for Ram {}
// SAFETY: as for `Send`.
unsafe impl Sync for Ram {}

impl Ram {
    /// Memory for speed: in huge pages where the system has them.
    pub(crate) fn new(bytes: usize) -> io::Result<Self> {
        let ram = Self::sparse(bytes)?;
        // SAFETY: the range is the mapping just made. Huge pages are a wish, not a need.
        unsafe { libc::madvise(ram.at.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        Ok(ram)
    }

    /// Memory of which only the pages that were written exist.
    pub(crate) fn sparse(bytes: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, at an address of the kernel's choosing.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).expect("a mapping is never at null");
        Ok(Self { at, bytes })
    }

    /// Copies `len` bytes at `offset` to `to`.
    ///
    /// # Safety
    /// `to` has room for `len` bytes, outside this member.
    pub(crate) unsafe fn read(&self, offset: usize, to: *mut u8, len: usize) {
        let from = self.range(offset, len);
        // SAFETY: `from` is within the mapping; the caller answers for `to`.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
    }

    /// Where a byte lies, to name it to the CPU.
    pub(crate) fn address(&self, offset: usize) -> *const u8 {
        self.at.as_ptr().wrapping_add(offset)
    }

    /// Copies `len` bytes from `from` to `offset`.
    ///
    /// # Safety
    /// `from` holds `len` bytes, outside this member.
    pub(crate) unsafe fn write(&self, offset: usize, from: *const u8, len: usize) {
        let to = self.range(offset, len);
        // SAFETY: `to` is within the mapping; the caller answers for `from`.
        unsafe { stream::copy(from, to, len) };
    }

    /// Makes the range read as zeroes and gives its whole pages back.
    pub(crate) fn zero(&self, offset: usize, len: usize) {
        const PAGE: usize = 4096;
        let (first, end) = (offset.next_multiple_of(PAGE), (offset + len) / PAGE * PAGE);
        if first >= end {
            return self.fill_zeroes(offset, len);
        }
        self.fill_zeroes(offset, first - offset);
        self.fill_zeroes(end, offset + len - end);
        let pages = self.range(first, end - first);
        // SAFETY: whole pages of our mapping; a private anonymous mapping reads as zeroes after.
        let given_back =
            unsafe { libc::madvise(pages.cast(), end - first, libc::MADV_DONTNEED) } == 0;
        if !given_back {
            self.fill_zeroes(first, end - first);
        }
    }

    fn fill_zeroes(&self, offset: usize, len: usize) {
        let to = self.range(offset, len);
        // SAFETY: `to` is within the mapping.
        unsafe { std::ptr::write_bytes(to, 0, len) };
    }

    fn range(&self, offset: usize, len: usize) -> *mut u8 {
        let end = offset.checked_add(len).expect("an end within the address space");
        assert!(end <= self.bytes, "the range lies within the member");
        // SAFETY: `offset` is within the mapping.
        unsafe { self.at.as_ptr().add(offset) }
    }
}

impl Drop for Ram {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and the last user is gone.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}
