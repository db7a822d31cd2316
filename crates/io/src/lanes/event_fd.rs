//! What wakes a sleeping lane.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use mdspace_engine::lane::Notify;

/// A counter in the kernel that a lane polls while it sleeps.
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no pointer is passed; the number is checked before it is owned.
        unsafe {
            match libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) {
                fd if fd >= 0 => Ok(Self(OwnedFd::from_raw_fd(fd))),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }

    /// Ends the lane's sleep, or its next one.
    pub(crate) fn wake(&self) {
        let one = 1u64;
        // SAFETY: eight bytes are read from `one`. A full counter (EAGAIN) has woken the lane too.
        unsafe { libc::write(self.as_raw_fd(), std::ptr::from_ref(&one).cast(), 8) };
    }

    /// Takes the wakes back that have done their work.
    pub(crate) fn clear(&self) {
        let mut count = 0u64;
        // SAFETY: eight bytes are written to `count`. An empty counter (EAGAIN) is as good.
        unsafe { libc::read(self.as_raw_fd(), std::ptr::from_mut(&mut count).cast(), 8) };
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Notify for EventFd {
    fn notify(&self) {
        self.wake();
    }
}
