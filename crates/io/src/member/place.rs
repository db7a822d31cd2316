//! Where an export is, for all users of this host the same, and the lock that it has there.
//!
//! NBD knows no locks. The lock is a name among the abstract unix sockets: all users of the host
//! share them, none can be planted in a folder or deleted, and the kernel frees the name with the
//! process. An export that arrays of several hosts take is not guarded by it.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::{self, UnixDatagram};
use std::path::Path;

use super::nbd::{Server, Uri};
use super::spec::Spec;

/// Bytes of an abstract socket's name (`<linux/un.h>`, without the first zero).
const NAME_BYTES_MAX: usize = 107;

/// What the address of a server leads to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServerPlace {
    /// The socket file, by its device and inode number, whatever links lead there.
    Unix(u64, u64),
    /// A port of this host, by whichever of its addresses.
    Here(u16),
    /// A port of another host.
    There(SocketAddr),
}

impl ServerPlace {
    /// Where the server of a member is that is called `name`; none for a member of another kind, and
    /// where no server can be there.
    pub fn of_member(name: &str) -> Option<Self> {
        match Spec::parse(name) {
            Ok(Spec::Nbd(Uri { server: Server::Unix(path), .. })) => Self::of_socket(&path).ok(),
            Ok(Spec::Nbd(Uri { server: Server::Tcp { host, port }, .. })) => {
                Self::of_port(&host, port)
            }
            _ => None,
        }
    }

    /// Of a socket file.
    pub fn of_socket(path: &Path) -> io::Result<Self> {
        std::fs::metadata(path).map(|found| Self::Unix(found.dev(), found.ino()))
    }

    /// Of a port of a host; nothing is sent to it.
    pub fn of_port(host: &str, port: u16) -> Option<Self> {
        let address = (host, port).to_socket_addrs().ok()?.next()?;
        let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any).ok()?;
        socket.connect(address).ok()?;
        Some(Self::between(socket.local_addr().ok()?, address))
    }

    /// Where the other end of a connection is. From one address of a host to another of the same
    /// host, both ends have the address that was asked for.
    pub(super) fn at_the_end_of(socket: &OwnedFd) -> io::Result<Self> {
        let stream = TcpStream::from(socket.try_clone()?);
        Ok(Self::between(stream.local_addr()?, stream.peer_addr()?))
    }

    fn between(ours: SocketAddr, theirs: SocketAddr) -> Self {
        // The kernel answers for all of 127.0.0.0/8 from 127.0.0.1.
        match ours.ip() == theirs.ip() || theirs.ip().to_canonical().is_loopback() {
            true => Self::Here(theirs.port()),
            false => Self::There(theirs),
        }
    }
}

impl fmt::Display for ServerPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(dev, ino) => write!(f, "unix:{dev}:{ino}"),
            Self::Here(port) => write!(f, "tcp:here:{port}"),
            Self::There(address) => write!(f, "tcp:{address}"),
        }
    }
}

/// The socket file of a server, which keeps its inode number as long as this lasts: what is named by the number
/// is this file, also when it is deleted.
#[derive(Debug)]
pub(super) struct SocketFile {
    pub(super) place: ServerPlace,
    /// Never read: that it is open is all.
    _file: File,
}

impl SocketFile {
    /// Nothing is asked of the server.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path)?;
        let found = file.metadata()?;
        Ok(Self { place: ServerPlace::Unix(found.dev(), found.ino()), _file: file })
    }
}

/// Multipath devices that have one export at the same time.
const SHARERS_MAX: u32 = 64;

/// The lock of an export; it ends with the value.
#[derive(Debug)]
pub(crate) struct PlaceLock {
    pub(super) name: String,
    /// Never read: its name is the lock.
    _socket: UnixDatagram,
}

impl PlaceLock {
    /// Takes the lock of an export; none if another process has it, alone or shared.
    pub(super) fn take(name: &str) -> io::Result<Option<Self>> {
        let Some(socket) = bind(name)? else { return Ok(None) };
        // Who shares it looks for this name after taking one of those: one of the two sees the other.
        let is_shared = (0..SHARERS_MAX).map(|sharer| is_taken(&shared(name, sharer)));
        let is_shared = is_shared.collect::<io::Result<Vec<_>>>()?.contains(&true);
        Ok((!is_shared).then(|| Self { name: name.to_owned(), _socket: socket }))
    }

    /// Takes a part of it; none if another process has it alone, or too many share it.
    pub(super) fn share(name: &str) -> io::Result<Option<Self>> {
        let mut taken = None;
        for sharer in 0..SHARERS_MAX {
            taken = bind(&shared(name, sharer))?;
            if taken.is_some() {
                break;
            }
        }
        let free = !is_taken(name)?;
        Ok(taken.filter(|_| free).map(|socket| Self { name: name.to_owned(), _socket: socket }))
    }
}

fn shared(name: &str, sharer: u32) -> String {
    format!("{name}/shared/{sharer}")
}

/// Takes a name; none if it is taken.
fn bind(name: &str) -> io::Result<Option<UnixDatagram>> {
    let address = net::SocketAddr::from_abstract_name(abstract_name(name))?;
    match UnixDatagram::bind_addr(&address) {
        Ok(socket) => Ok(Some(socket)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_taken(name: &str) -> io::Result<bool> {
    let address = net::SocketAddr::from_abstract_name(abstract_name(name))?;
    let reached = UnixDatagram::unbound()?.connect_addr(&address);
    Ok(!reached.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused))
}

/// What the lock of an export is called.
pub(super) fn lock_name(place: &ServerPlace, export: &str) -> String {
    format!("mdspace-member/{place}/{export}")
}

/// The same for an export by its member's name, if it is one and its server can be there.
pub(super) fn of_export(name: &str) -> Option<String> {
    match Spec::parse(name) {
        Ok(Spec::Nbd(uri)) => Some(lock_name(&ServerPlace::of_member(name)?, &uri.export)),
        _ => None,
    }
}

/// FNV-1a, 64 bits.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    let fold = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, fold)
}

/// The name of an abstract socket. One that is too long keeps its start, and a checksum of all.
pub fn abstract_name(name: &str) -> Vec<u8> {
    let bytes = name.as_bytes();
    if bytes.len() <= NAME_BYTES_MAX {
        return bytes.to_vec();
    }
    let mut short = bytes[..NAME_BYTES_MAX - 16].to_vec();
    short.extend(format!("{:016x}", checksum(bytes)).bytes());
    short
}

#[cfg(test)]
mod tests;
