//! Streams whose reads and writes all end by one time, however few bytes the other end gives at once.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// A socket whose calls can be bounded, each alone.
pub(super) trait Timed: Read + Write {
    fn set_timeouts(&self, timeout: Option<Duration>) -> io::Result<()>;
}

impl Timed for UnixStream {
    fn set_timeouts(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(timeout)?;
        self.set_write_timeout(timeout)
    }
}

impl Timed for TcpStream {
    fn set_timeouts(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(timeout)?;
        self.set_write_timeout(timeout)
    }
}

pub(super) struct Bounded<S> {
    stream: S,
    until: Instant,
}

impl<S: Timed> Bounded<S> {
    pub(super) fn new(stream: S, until: Instant) -> Self {
        Self { stream, until }
    }

    /// Gives it so much time from now on.
    pub(super) fn extend(&mut self, span: Duration) {
        self.until = Instant::now() + span;
    }

    /// The stream, whose calls wait for as long as they must.
    pub(super) fn unbounded(self) -> io::Result<S> {
        self.stream.set_timeouts(None)?;
        Ok(self.stream)
    }

    fn bound(&self) -> io::Result<()> {
        let left = self.until.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => self.stream.set_timeouts(Some(left)),
        }
    }
}

impl<S: Timed> Read for Bounded<S> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.bound()?;
        self.stream.read(out).map_err(overdue)
    }
}

impl<S: Timed> Write for Bounded<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bound()?;
        self.stream.write(bytes).map_err(overdue)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The system says of a socket whose time is up that it would block.
fn overdue(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

/// Connects to a socket file, and waits no longer than `patience` for a server that takes no connections.
pub(super) fn connect_unix(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    // SAFETY: all zeroes is an address without a name.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    let name = path.as_os_str().as_bytes();
    if name.len() >= address.sun_path.len() || name.contains(&0) {
        let why = "the path of a socket has at most 107 bytes, none of them 0";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, byte) in address.sun_path.iter_mut().zip(name) {
        *to = *byte as libc::c_char;
    }
    // SAFETY: no pointer is passed.
    let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and nobody else's.
    let stream = UnixStream::from(unsafe { OwnedFd::from_raw_fd(fd) });
    // This bounds the wait for a place among those that wait to be accepted, too.
    stream.set_write_timeout(Some(patience))?;
    let size = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    let address: *const libc::sockaddr_un = &address;
    // SAFETY: the address is as long as is said, and outlives the call.
    match unsafe { libc::connect(stream.as_raw_fd(), address.cast(), size) } {
        0 => Ok(stream),
        _ => Err(overdue(io::Error::last_os_error())),
    }
}

#[cfg(test)]
mod tests;
