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
    let kind = if shared { libc::F_RDLCK } else { libc::F_WRLCK };
    let lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: `lock` outlives the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(false),
        _ => Err(error),
    }
}
