//! The kernel's error numbers as the engine's kinds of trouble.

use mdspace_engine::backend::{IoError, IoErrorKind};

/// The error of a member I/O that ended with `errno`.
pub(crate) fn io_error(errno: i32) -> IoError {
    IoError { kind: kind(errno), errno }
}

/// The error of a call that makes durable what was written before it, and perhaps writes too. The system does
/// not say which of the two failed: it counts as a failed flush, for the next flush would say that all is well.
pub(crate) fn flush_error(errno: i32) -> IoError {
    let error = io_error(errno);
    match error.kind {
        IoErrorKind::Gone | IoErrorKind::Reserved | IoErrorKind::Cancelled => error,
        _ => IoError { kind: IoErrorKind::Flush, errno },
    }
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
