//! Keeping a member file for one user at a time.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Locks the whole file as long as it stays open: for others' writes if `shared`, else for all
/// their locks. False: someone else has a lock.
///
/// An open file description lock: it ends with the last copy of the descriptor, also when the
/// process is killed, and two opens of one process exclude each other.
pub(super) fn whole_file(file: &File, shared: bool) -> io::Result<bool> {
    match set(file, if shared { libc::F_RDLCK } else { libc::F_WRLCK }) {
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
    drop(set(file, libc::F_UNLCK));
}

fn set(file: &File, kind: libc::c_int) -> io::Result<()> {
    let lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: `lock` outlives the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
