//! The kernel's error numbers as the engine's kinds of trouble.

use mdspace_engine::backend::{IoError, IoErrorKind};

/// The error of a member I/O that ended with `errno`.
pub(crate) fn io_error(errno: i32) -> IoError {
    IoError { kind: kind(errno), errno }
}

fn kind(errno: i32) -> IoErrorKind {
    match errno {
        // ENODATA is the block layer's critical medium error, EILSEQ its protection error.
        libc::EIO | libc::EILSEQ | libc::ENODATA | libc::EBADMSG => IoErrorKind::Medium,
        libc::ENODEV | libc::ENXIO | libc::ESHUTDOWN | libc::ENOMEDIUM => IoErrorKind::Gone,
        libc::ENOSPC | libc::EDQUOT => IoErrorKind::NoSpace,
        // The block layer's reservation conflict.
        libc::EBADE => IoErrorKind::Reserved,
        libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY => IoErrorKind::Unsupported,
        libc::ECANCELED => IoErrorKind::Cancelled,
        _ => IoErrorKind::Other,
    }
}

#[cfg(test)]
mod tests;
