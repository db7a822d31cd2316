//! Descriptors that who started the program left open.

use std::fs;

/// Passes none of them on to the processes that this one starts, but for input, output and errors. One of those may
/// run for months, and a lock or a pipe of a script is held by all who have it open.
///
/// For the start of the program, before it has descriptors that it means to pass on.
pub fn keep_from_children() {
    let open = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
    for descriptor in open.filter_map(number).filter(|descriptor| *descriptor > 2) {
        // SAFETY: the call takes no pointer, and a descriptor that is closed by now is an error.
        unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}
