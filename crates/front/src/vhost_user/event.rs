//! Counters in the kernel by which a guest and its disk wake each other.

use std::fs::{self, File};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStringExt;

use mdspace_io::Socket;
use rustix::io::{Errno, FdFlags, ReadWriteFlags};

/// What the kernel calls such a descriptor, and a socket.
const EVENTFD: &[u8] = b"anon_inode:[eventfd]";
const SOCKET: &[u8] = b"socket:";

/// By which a guest wakes its disk. Other descriptors could make their user wait.
pub(super) fn kick(file: File) -> io::Result<File> {
    let name = name_of(&file)?;
    keep_from_children(&file)?;
    if name == EVENTFD { Ok(file) } else { Err(wrong("a kick is no eventfd")) }
}

/// By which a disk wakes its guest. User-Mode Linux gives a socket.
pub(super) fn call(file: File) -> io::Result<File> {
    let name = name_of(&file)?;
    keep_from_children(&file)?;
    let is_right = name == EVENTFD || name.starts_with(SOCKET);
    if is_right { Ok(file) } else { Err(wrong("a call is neither an eventfd nor a socket")) }
}

/// The crate receives descriptors that the programs which this process starts would have too.
pub(super) fn keep_from_children(file: &File) -> io::Result<()> {
    Ok(rustix::io::fcntl_setfd(file, FdFlags::CLOEXEC)?)
}

fn name_of(file: &File) -> io::Result<Vec<u8>> {
    let name = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    Ok(name.into_os_string().into_vec())
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// Takes back what woke this side. It never waits, whatever the descriptor's own flags: others have it too, and change them.
pub(super) fn clear(event: &Socket) -> io::Result<()> {
    let mut count = [0; 8];
    let mut into = [IoSliceMut::new(&mut count)];
    match rustix::io::preadv2(event.as_fd(), &mut into, u64::MAX, ReadWriteFlags::NOWAIT) {
        Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
