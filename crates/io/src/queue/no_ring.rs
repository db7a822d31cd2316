//! Why a lane has no ring, in words that name the cure.

use std::io;
use std::sync::Arc;

use super::ring::{Entries, Ring};
use crate::lanes::EventFd;

/// Newer kernels, as 6.18, count rings there, beside registered buffers.
const LOCKED_MEMORY: &str = "the limit on locked memory of this user leaves it no room; cure: raise RLIMIT_MEMLOCK \
                             (`ulimit -l`, LimitMEMLOCK=infinity in the systemd unit)";

const FORBIDDEN: &str = "cure: a kernel from 5.19 on with sysctl kernel.io_uring_disabled=0, and no seccomp filter \
                         that forbids it";

/// Whether this process may have a ring as a lane has one; the error says what helps.
pub fn try_ring() -> io::Result<()> {
    let wake = EventFd::new().map(Arc::new)?;
    Ring::new(Entries::MANY, wake).map(drop).map_err(|error| explained(&error))
}

/// Whether an error says that memory may not be locked.
pub fn is_of_locked_memory(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOMEM) || error.kind() == io::ErrorKind::OutOfMemory
}

/// The same error, with what helps.
pub(super) fn explained(error: &io::Error) -> io::Error {
    let help = if is_of_locked_memory(error) { LOCKED_MEMORY } else { FORBIDDEN };
    io::Error::new(error.kind(), format!("io_uring is not available: {error}: {help}"))
}

#[cfg(test)]
mod tests;
