//! A socket, listening or connected, shared by the operations under way on it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::rc::Rc;

/// A socket (or any descriptor that can be polled) on a lane. Clones name the same one; it closes
/// when the last clone is gone and no operation is under way.
#[derive(Clone, Debug)]
pub struct Socket(Rc<OwnedFd>);

impl Socket {
    /// Takes over a descriptor: a `UnixListener`, a `TcpStream`, ... as an `OwnedFd`.
    pub fn new(fd: impl Into<OwnedFd>) -> io::Result<Self> {
        let fd = fd.into();
        // The ring waits by itself, and takes a non-blocking descriptor as a wish not to.
        // SAFETY: no pointer is passed.
        let done = unsafe {
            let flags = libc::fcntl(fd.as_raw_fd(), libc::F_GETFL);
            libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags & !libc::O_NONBLOCK)
        };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(Rc::new(fd)))
    }

    /// Takes over a descriptor that is only [polled](crate::LaneIo::poll); it stays as non-blocking as it is.
    pub fn polled(fd: OwnedFd) -> Self {
        Self::from_owned(fd)
    }

    pub(super) fn from_owned(fd: OwnedFd) -> Self {
        Self(Rc::new(fd))
    }

    pub(super) fn fd(&self) -> Rc<OwnedFd> {
        self.0.clone()
    }

    pub(super) fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
