//! Sockets that wait for clients.

use std::fs;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::Mode;
use rustix::net::{AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType};

use crate::address::{Address, Endpoint, Socket};
use crate::making::{Held, Making};
use crate::rights::{Rights, RightsError, SocketMode};
use crate::tls::{Identity, TlsError};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;

/// How long who answers at a socket may be silent: an NBD server speaks first.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// How often a socket is asked whose owner hangs up.
const DYING_MAX: usize = 3;

/// A listening socket. Whoever accepts does so on a duplicate of its descriptor.
///
/// A Unix socket's path is removed when the listener is dropped.
#[derive(Debug)]
pub struct Listener {
    /// What names a Unix socket. Dropped before that: while it answers, the file is no other one's.
    file: Option<SocketFile>,
    socket: OwnedFd,
    address: Address,
    reachable_from: Option<IpAddr>,
    identity: Option<Arc<Identity>>,
}

/// The file that names a Unix socket, with what tells it from a later one at the same path.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    device_and_inode: (u64, u64),
}

/// Why no socket could be had.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another process answers there.
    #[error("{0} is in use: another process answers there; stop it or choose another path")]
    InUse(PathBuf),
    /// Another process makes a socket in the same folder, or holds it for other reasons.
    #[error("another program holds the lock of {0}: see `lslocks`, then try again")]
    Held(PathBuf),
    /// Something that is no socket has this name.
    #[error("{0} exists and is no socket: remove it or choose another path")]
    NotASocket(PathBuf),
    /// Other machines would reach the address.
    #[error(
        "{address} can be reached from other machines, and NBD asks nobody who they are: \
         use a loopback address, TLS (tls=DIRECTORY), or say --insecure, or ?insecure behind {front}"
    )]
    Insecure {
        /// The address that is no loopback address.
        address: IpAddr,
        /// The front end as written.
        front: Box<Address>,
    },
    /// Other machines would reach the address, and TLS asks none of them who it is.
    #[error(
        "{address} can be reached from other machines, and clients are not asked for a certificate: \
         put ca-cert.pem into {directory}, use a loopback address, or say --insecure, or \
         insecure behind {front}"
    )]
    Unasked {
        /// The address that is no loopback address.
        address: IpAddr,
        /// Where the certificates are.
        directory: PathBuf,
        /// The front end as written.
        front: Box<Address>,
    },
    /// There is no TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The host has no address.
    #[error("{0} has no address: check the name")]
    NoAddress(String),
    /// Another kind of front end.
    #[error("{0} is no socket to listen on")]
    NoSocket(Box<Address>),
    /// The socket cannot be given to whom it is for.
    #[error(transparent)]
    Rights(#[from] RightsError),
    /// The system refused.
    #[error("cannot listen at {front}: {source}")]
    Io {
        /// The front end as written.
        front: Box<Address>,
        /// What the system said.
        source: io::Error,
    },
}

impl Listener {
    /// Listens at an address that has a socket.
    ///
    /// A Unix socket is for the same user only (mode 0600) from its first moment. It gets the rights of its address before
    /// it takes clients. A socket file at which no process answers is replaced, any other file is left alone.
    pub fn bind(address: &Address) -> Result<Listener, ListenError> {
        let failed = |source| ListenError::Io { front: address.clone().into(), source };
        match &address.endpoint {
            Endpoint::Nbd(Socket::Unix(path)) | Endpoint::VhostUser(path) => {
                // Before the folder is held: it may take a while.
                let owners = address.rights.owners()?;
                // One that is bound, but does not listen yet, looks dead: another one would remove it.
                let _making =
                    Making::begin(path).map_err(|Held(folder)| ListenError::Held(folder))?;
                make_way(path)?;
                let socket = bind_unix(path).map_err(failed)?;
                let file = Some(SocketFile::new(path).map_err(failed)?);
                if address.rights != Rights::default() {
                    address.rights.give(path, owners)?;
                }
                rustix::net::listen(&socket, BACKLOG).map_err(|error| failed(error.into()))?;
                let address = address.clone();
                Ok(Listener { socket, address, reachable_from: None, identity: None, file })
            }
            Endpoint::Nbd(Socket::Tcp { host, port, insecure, tls }) => {
                // Before the system is asked: it may take a while, and a word of it be wrong.
                let identity = tls.as_ref().map(Identity::read).transpose()?.map(Arc::new);
                let places = resolve(host.as_deref(), *port).map_err(failed)?;
                if places.is_empty() {
                    return Err(ListenError::NoAddress(host.clone().unwrap_or_default()));
                }
                let open = places.iter().map(SocketAddr::ip).find(|ip| !ip.is_loopback());
                if let (Some(open), false) = (open, insecure) {
                    refuse_strangers(address, open, identity.as_deref())?;
                }
                Listener::bind_tcp(address, &places, identity).map_err(failed)
            }
            _ => Err(ListenError::NoSocket(address.clone().into())),
        }
    }

    fn bind_tcp(
        address: &Address,
        places: &[SocketAddr],
        identity: Option<Arc<Identity>>,
    ) -> io::Result<Listener> {
        let socket = TcpListener::bind(places)?;
        let place = socket.local_addr()?;
        let mut address = address.clone();
        if let Endpoint::Nbd(Socket::Tcp { port, tls, .. }) = &mut address.endpoint {
            *port = place.port();
            // Who starts it by this address the next time lets no more in because a file has gone meanwhile.
            if let (Some(tls), Some(identity)) = (tls, &identity)
                && identity.asks_clients()
            {
                tls.verify = Some(true);
                tls.needs_list |= identity.has_list();
            }
        }
        let reachable_from = (!place.ip().is_loopback()).then_some(place.ip());
        Ok(Listener { socket: socket.into(), address, reachable_from, identity, file: None })
    }

    /// What tells whether clients find it, for one who looks now and then.
    pub(crate) fn place(&self) -> Place {
        let file = self.file.as_ref().map(|file| file.device_and_inode);
        Place { address: self.address.clone(), file }
    }

    /// Where it listens, with the port that the system chose, and with `tls-verify` and `tls-crl` as the directory has their files.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// What its clients are served over TLS with, and nothing else.
    pub fn identity(&self) -> Option<&Arc<Identity>> {
        self.identity.as_ref()
    }

    /// What the operator must know about this socket.
    pub fn warnings(&self) -> Vec<String> {
        let may = if self.address.read_only { "read" } else { "read and overwrite" };
        let asks = self.identity.as_ref().is_some_and(|identity| identity.asks_clients());
        let of_tcp = self.reachable_from.filter(|_| !asks).map(|ip| {
            format!("whoever can connect to {ip} may {may} the array: NBD asks nobody who they are")
        });
        let is_for_all = self.address.rights.mode.is_some_and(SocketMode::is_for_all);
        let of_unix = is_for_all.then(|| format!("every user of this host may {may} the array"));
        let open_key = self.identity.as_ref().and_then(|identity| identity.open_key());
        let of_key = open_key.map(|path| {
            let path = path.display();
            format!("other users of this host can read {path}: take that from them with chmod 600")
        });
        of_tcp.into_iter().chain(of_unix).chain(of_key).collect()
    }

    /// Refuses further clients. The path of a Unix socket is free when this returns.
    pub fn shut_down(&self) {
        self.file.iter().for_each(SocketFile::remove);
        // A socket that cannot be shut down any more is shut down.
        let _ = rustix::net::shutdown(self.as_fd(), Shutdown::Both);
    }
}

/// A listener that is made anew where clients do not find it any more.
#[derive(Debug)]
pub(crate) struct Renewable {
    listener: Mutex<Listener>,
    renewals: AtomicU64,
}

impl Renewable {
    /// Tells the log what the operator must know about it.
    pub(crate) fn new(listener: Listener) -> Renewable {
        for warning in listener.warnings() {
            tracing::warn!(front = %listener.address(), "{warning}");
        }
        Renewable { listener: Mutex::new(listener), renewals: AtomicU64::new(0) }
    }

    /// How often it was made anew. Who asks before a [duplicate](Self::duplicate) notices one that comes in between.
    pub(crate) fn renewals(&self) -> u64 {
        self.renewals.load(Ordering::Acquire)
    }

    /// One more descriptor.
    pub(crate) fn duplicate(&self) -> io::Result<OwnedFd> {
        self.lock().as_fd().try_clone_to_owned()
    }

    /// Makes a Unix socket anew whose file is not there any more, or is another one that is no socket of a running
    /// process. True: it was, and whoever accepts there must hear of it. Not for a lane's thread.
    pub(crate) fn renew(&self, is_closing: impl Fn() -> bool) -> Result<bool, ListenError> {
        let place = self.lock().place();
        // Nothing is locked meanwhile: it may wait for who answers there.
        let Some(renewed) = place.renewed()? else { return Ok(false) };
        let mut listener = self.lock();
        if is_closing() {
            return Ok(false);
        }
        *listener = renewed;
        drop(listener);
        self.renewals.fetch_add(1, Ordering::Release);
        Ok(true)
    }

    /// As [`Listener::shut_down`].
    pub(crate) fn shut_down(&self) {
        self.lock().shut_down();
    }

    fn lock(&self) -> MutexGuard<'_, Listener> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a listener is, and the device and inode number of its file if it is a Unix socket.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    address: Address,
    file: Option<(u64, u64)>,
}

impl Place {
    /// A new listener there if the file is not there any more, or is another one: a cleaner of temporary files
    /// may have deleted it. None: clients find the one that there is.
    pub(crate) fn renewed(&self) -> Result<Option<Listener>, ListenError> {
        let (Some(path), Some(file)) = (self.address.endpoint.unix_path(), self.file) else {
            return Ok(None);
        };
        match identify(path) {
            Ok(found) if found == file => Ok(None),
            _ => Listener::bind(&self.address).map(Some),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl SocketFile {
    fn new(path: &Path) -> io::Result<SocketFile> {
        let device_and_inode = identify(path)?;
        Ok(SocketFile { path: path.to_path_buf(), device_and_inode })
    }

    /// Removes the file, unless another socket has taken its place. Once more does nothing.
    fn remove(&self) {
        let ours = identify(&self.path).is_ok_and(|found| found == self.device_and_inode);
        if ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "the socket file stays behind");
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        self.remove();
    }
}

fn identify(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Removes a socket file that nobody answers at.
fn make_way(path: &Path) -> Result<(), ListenError> {
    let Ok(metadata) = fs::symlink_metadata(path) else { return Ok(()) };
    if !metadata.file_type().is_socket() {
        return Err(ListenError::NotASocket(path.to_path_buf()));
    }
    for _ in 0..DYING_MAX {
        match connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                // What goes wrong here goes wrong again, and is told, when the socket is bound.
                let _ = fs::remove_file(path);
                return Ok(());
            }
            Ok(stream) if hangs_up(&stream) => {}
            _ => break,
        }
    }
    Err(ListenError::InUse(path.to_path_buf()))
}

/// Connects, and does not wait for one who takes no connections: then it would block.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Whether nobody is at the other end: the kernel lets go of a killed process's sockets a moment after
/// the process has gone, and takes connections until then.
fn hangs_up(mut stream: &UnixStream) -> bool {
    if stream.set_read_timeout(Some(ANSWERS_WITHIN)).is_err() {
        return false;
    }
    match stream.read(&mut [0]) {
        Ok(bytes) => bytes == 0,
        Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
    }
}

/// The mode is set before the file exists: Linux gives the file the socket's own mode.
fn bind_unix(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// A client of another machine is served only where it has to say who it is.
fn refuse_strangers(
    front: &Address,
    address: IpAddr,
    identity: Option<&Identity>,
) -> Result<(), ListenError> {
    let front = front.clone().into();
    match identity {
        None => Err(ListenError::Insecure { address, front }),
        Some(identity) if identity.asks_clients() => Ok(()),
        Some(identity) => {
            let directory = identity.directory().to_path_buf();
            Err(ListenError::Unasked { address, directory, front })
        }
    }
}

fn resolve(host: Option<&str>, port: u16) -> io::Result<Vec<SocketAddr>> {
    match host {
        None => Ok(vec![(Ipv4Addr::LOCALHOST, port).into()]),
        Some(host) => Ok((host, port).to_socket_addrs()?.collect()),
    }
}

#[cfg(test)]
mod tests;
