//! Keeping the bytes of a file for one user at a time.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bytes {
    start: u64,
    /// Their number; none for all up to the end, wherever that is.
    count: Option<u64>,
}

impl Bytes {
    pub(super) const ALL: Self = Self { start: 0, count: None };

    /// `count` bytes from `start`; 0 stands for all up to the end, as loop devices say it.
    pub(super) fn new(start: u64, count: u64) -> Self {
        Self { start, count: Some(count).filter(|count| *count > 0) }
    }

    /// The same bytes, counted in what lies below: `part` is where all of them are.
    pub(super) fn within(self, part: Self) -> Self {
        let start = part.start.saturating_add(self.start);
        let rest = part.count.map(|count| count.saturating_sub(self.start));
        let count = match (self.count, rest) {
            (Some(count), Some(rest)) => Some(count.min(rest)),
            (count, rest) => count.or(rest),
        };
        Self { start, count }
    }

    /// Whether some bytes are in both.
    pub(super) fn meets(self, other: Self) -> bool {
        self.start < other.end() && other.start < self.end()
    }

    /// Those that are in `other` too, counted from its start; none if there are none.
    pub(super) fn common_from(self, other: Self) -> Option<Self> {
        self.meets(other).then(|| {
            let (start, end) = (self.start.max(other.start), self.end().min(other.end()));
            let count = (end < u64::MAX).then_some(end - start);
            Self { start: start - other.start, count }
        })
    }

    fn end(self) -> u64 {
        self.count.map_or(u64::MAX, |count| self.start.saturating_add(count))
    }
}

/// A byte that no member has.
const MARK: Bytes = Bytes { start: 1 << 62, count: Some(1) };

/// Locks bytes of a file as long as it stays open: for others' writes if `shared`, else for all
/// their locks. False: someone else has a lock.
///
/// An open file description lock: it ends with the last copy of the descriptor, also when the
/// process is killed, and two opens of one process exclude each other.
pub(super) fn bytes(file: &File, bytes: Bytes, shared: bool) -> io::Result<bool> {
    match set(file, bytes, if shared { libc::F_RDLCK } else { libc::F_WRLCK }) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Ends the lock. Closing the file would, but a ring may keep it open a moment longer.
pub(super) fn release(file: &File) {
    // Nothing was locked, or the file closes anyway.
    drop(set(file, Bytes::ALL, libc::F_UNLCK));
}

/// Marks a member that was claimed by this open file: its user has let go of it, and no call that the kernel has there is
/// a write. The kernel keeps the mark as long as the open file, which each call keeps.
pub(super) fn mark_writes_over(file: &File) -> io::Result<()> {
    set(file, MARK, libc::F_RDLCK)
}

/// Whether somebody has [marked](mark_writes_over) what this open file leads to.
pub(crate) fn are_writes_over(file: &File) -> io::Result<bool> {
    let mut lock = described(MARK, libc::F_WRLCK)?;
    // SAFETY: `lock` outlives the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut lock) } {
        0 => {}
        _ => return Err(io::Error::last_os_error()),
    }
    let mark = described(MARK, libc::F_RDLCK)?;
    let place = |lock: libc::flock| (lock.l_type, lock.l_start, lock.l_len);
    // Of a lock of more bytes it is no part: that keeps others out of the member itself.
    Ok(place(lock) == place(mark))
}

fn set(file: &File, bytes: Bytes, kind: libc::c_int) -> io::Result<()> {
    let lock = described(bytes, kind)?;
    // SAFETY: `lock` outlives the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn described(bytes: Bytes, kind: libc::c_int) -> io::Result<libc::flock> {
    let offset = |bytes: u64| libc::off_t::try_from(bytes).map_err(io::Error::other);
    Ok(libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: offset(bytes.start)?,
        // 0 means up to the end.
        l_len: offset(bytes.count.unwrap_or(0))?,
        l_pid: 0,
    })
}

#[cfg(test)]
mod tests;
