//! One front: a socket of NBD or vhost-user, a mounted file, or a block device over that or of a driver of the host.

use std::cell::Cell;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use mdspace_front::address::{Address, Endpoint, Socket};
use mdspace_front::fuse::{self, FuseServer, Mount, Session};
use mdspace_front::identity::Identity;
use mdspace_front::listener::{ListenError, Listener};
use mdspace_front::loop_device::LoopDevice;
use mdspace_front::nbd::{Exports, Server, ServerLimits, SharedAddress};
use mdspace_front::vhost_user;
use mdspace_front::volume::Volume;
use mdspace_io::IoChoice;

use super::block_device::BlockDevice;
use super::broker;
use super::closing::Closing;
use super::driven::Driven;
use super::mount_guard::{End, MountGuard};
use super::opener::Opener;
use super::way::Way;
use crate::args::ArrayName;
use crate::failure::Failure;
use crate::member_probe::asked_of;
use crate::output::printable;
use crate::process::STOP_PATIENCE;
use crate::report::FrontReport;
use crate::run_dir::RunDir;

/// Between two looks whether users have gone.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Bytes of the path of a Unix socket (`sun_path` in `linux/un.h`, without the final zero).
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// A front that can be opened: what the user named is there and free. Nothing was written for it.
pub(in crate::process) enum Prepared {
    Nbd(Listener),
    SharedNbd(SharedAddress),
    VhostUser(Listener),
    File { address: Address, directory: PathBuf, own: Option<OwnDirectory> },
    Driven(Address, Way),
}

/// An open front.
pub(super) enum Front {
    Nbd(Server),
    VhostUser(vhost_user::Server),
    Mounted(Box<Mounted>),
    Driven(Arc<Driven>),
}

/// A file of the array, and the block device over it, if that was asked for.
pub(super) struct Mounted {
    address: Address,
    device: Option<BlockDevice<LoopDevice>>,
    server: FuseServer,
    guard: Option<MountGuard>,
    /// Removed last, when nothing is mounted there any more.
    own: Option<OwnDirectory>,
}

/// Says that a front has no users. As long as it is kept no file system is mounted from its device.
#[derive(Default)]
pub(super) struct Unused(Option<Claim>);

/// What keeps users from a device.
pub(super) enum Claim {
    Descriptor(#[expect(dead_code, reason = "it is the claim")] File),
    /// It has the device open, and takes it away.
    Process(Opener),
}

/// A directory that was made for a mount, and goes with it.
pub(in crate::process) struct OwnDirectory(PathBuf);

impl Drop for OwnDirectory {
    fn drop(&mut self) {
        // One that is still another front's is in use, and stays.
        if let Err(error) = fs::remove_dir(&self.0) {
            tracing::warn!(%error, "{} stays", self.0.display());
        }
    }
}

impl Prepared {
    /// Whether a front can be there now. For `create`, before anything is asked.
    pub(in crate::process) fn check(address: &Address) -> Result<(), Failure> {
        match &address.endpoint {
            // Others may be served there.
            Endpoint::Nbd(_) if address.shared => has_room(address),
            Endpoint::Nbd(_) | Endpoint::VhostUser(_) => listener(address).map(drop),
            Endpoint::Fuse(directory) => has_folder(address, directory),
            Endpoint::Ublk | Endpoint::Loop | Endpoint::NbdDevice | Endpoint::Block => {
                way(address).map(drop)
            }
        }
    }

    /// Looks where the user says. Before a member is written to, so that a wrong word costs nothing.
    pub(in crate::process) fn new(
        address: &Address,
        name: &ArrayName,
        run_dir: &RunDir,
    ) -> Result<Self, Failure> {
        let what = || cannot_serve(address);
        let (directory, own) = match &address.endpoint {
            Endpoint::Nbd(_) if address.shared => {
                has_room(address)?;
                return broker::find(address, run_dir).map(Self::SharedNbd);
            }
            Endpoint::Nbd(_) => return listener(address).map(Self::Nbd),
            Endpoint::VhostUser(_) => return listener(address).map(Self::VhostUser),
            Endpoint::Fuse(directory) => {
                has_folder(address, directory)?;
                (directory.clone(), None)
            }
            Endpoint::Ublk | Endpoint::Loop | Endpoint::NbdDevice | Endpoint::Block => {
                if let Some(way @ (Way::Ublk | Way::NbdDevice)) = way(address)? {
                    return Ok(Self::Driven(address.clone(), way));
                }
                let directory = run_dir.mount_point(name);
                fuse::mount::make_directory(&directory).map_err(|error| {
                    Failure::new(what(), error, "check the rights of the run directory")
                })?;
                (directory.clone(), Some(OwnDirectory(directory)))
            }
        };
        let directory = fuse::mount::prepare(&directory)
            .map_err(|error| Failure::new(what(), error, "then try again"))?;
        Ok(Self::File { address: address.clone(), directory, own })
    }

    /// Serves a volume there. Gives the front, and what the user reads of it.
    pub(super) fn open<V: Volume>(
        self,
        name: &ArrayName,
        identity: Identity,
        exports: Exports,
        limits: ServerLimits,
        volume: &V,
    ) -> Result<(Front, String), Failure> {
        match self {
            Self::Driven(address, way) => {
                let opened = Driven::open((address, way), name, identity, exports, limits, volume);
                opened.map(|(driven, note)| (Front::Driven(driven), note))
            }
            Self::Nbd(listener) => {
                let server = Server::start(listener, exports, limits, volume);
                let note = format!("{name}: served at {}", server.address());
                Ok((Front::Nbd(server), note))
            }
            Self::SharedNbd(shared) => {
                let address = shared.address().clone();
                let server = Server::share(shared, exports, limits, volume).map_err(|why| {
                    let cure = "choose another address, or the same options for all that share it";
                    Failure::new(cannot_serve(&address), why, cure)
                })?;
                let note = format!("{name}: served at {address}, beside others");
                Ok((Front::Nbd(server), note))
            }
            Self::VhostUser(listener) => {
                let what = format!("cannot serve {name} at {}", listener.address());
                let ServerLimits { budget, partial_writes, .. } = limits;
                let server =
                    vhost_user::Server::start(listener, exports, budget, partial_writes, volume)
                        .map_err(|why| {
                            Failure::new(what, why, "see `ulimit -u` and `ulimit -n`")
                        })?;
                let note = format!("{name}: served at {}", server.address());
                Ok((Front::VhostUser(server), note))
            }
            Self::File { address, directory, own } => {
                let what = || format!("cannot serve {name} at {address}");
                let failed = |error| Failure::new(what(), error, "see `mdspace doctor`");
                let exports = exports.at(&address);
                let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
                let mut session = Session::new(exports, uid.as_raw(), gid.as_raw());
                if IoChoice::from_env() == Ok(IoChoice::Preadv) {
                    session = session.without_ring();
                }
                let (block_bytes, read_only) = (session.block_bytes(), session.is_read_only());
                let path = directory.join(name.to_string());
                let mount = Mount::new(&directory).map_err(failed)?;
                let server = FuseServer::start(mount, session, limits.partial_writes, volume)
                    .map_err(failed)?;
                let (device, kept) = match address.endpoint {
                    Endpoint::Loop | Endpoint::Block => {
                        BlockDevice::over_file(&path, name, block_bytes, read_only)
                            .map(|(device, kept)| (Some(device), Some(kept)))
                            .map_err(|why| Failure::new(what(), why, "see `mdspace doctor`"))?
                    }
                    _ => (None, None),
                };
                let link = device.as_ref().map(BlockDevice::link_ends);
                let guard = match MountGuard::spawn(server.mount(), kept, link) {
                    Ok(guard) => Some(guard),
                    Err(error) => {
                        if let Some(device) = device {
                            device.let_go();
                            let why =
                                format!("cannot start the process that keeps the device: {error}");
                            return Err(Failure::new(what(), why, "see `mdspace doctor`"));
                        }
                        tracing::warn!(%error, "after a crash the mount stays until the next start");
                        None
                    }
                };
                let shown =
                    device.as_ref().map_or(path.display().to_string(), BlockDevice::describe);
                let way = match address.endpoint {
                    Endpoint::Block => format!(", {}", Way::Loop),
                    _ => String::new(),
                };
                let note = format!("{name}: served as {shown}{way}");
                let mounted = Mounted { address, device, server, guard, own };
                Ok((Front::Mounted(Box::new(mounted)), note))
            }
        }
    }
}

/// Listens where the user says.
fn listener(address: &Address) -> Result<Listener, Failure> {
    has_room(address)?;
    Listener::bind(address).map_err(|error| refused(address, &error))
}

/// That nothing can listen there, and what helps.
pub(super) fn refused(address: &Address, error: &ListenError) -> Failure {
    Failure::new(cannot_serve(address), error, cure(address, error))
}

/// Whether the file of a Unix socket can be made.
fn has_room(address: &Address) -> Result<(), Failure> {
    if let Some(path) = address.endpoint.unix_path() {
        let bytes = path.as_os_str().len();
        if bytes > SOCKET_PATH_BYTES_MAX {
            let why = format!(
                "a socket's path has {SOCKET_PATH_BYTES_MAX} bytes at most, and this one {bytes}"
            );
            return Err(Failure::new(cannot_serve(address), why, "choose a shorter path"));
        }
        path.parent().map_or(Ok(()), |folder| has_folder(address, folder))?;
    }
    Ok(())
}

/// What helps where nothing can listen.
fn cure(address: &Address, error: &ListenError) -> &'static str {
    let source = match error {
        ListenError::Io { source, .. } => source,
        ListenError::Tls(error) => return error.cure(),
        _ => return "choose another address",
    };
    match (source.kind(), &address.endpoint) {
        (io::ErrorKind::AddrInUse, _) => {
            "another program listens there: choose another port, or 0, which takes a free one"
        }
        (io::ErrorKind::AddrNotAvailable, _) => {
            "give an address of this host: `ip address` lists them"
        }
        (io::ErrorKind::PermissionDenied, Endpoint::Nbd(Socket::Tcp { port: 1..1024, .. })) => {
            "ports below 1024 are for root: choose a higher one, as 10809"
        }
        (io::ErrorKind::PermissionDenied, _) => "choose a folder that you may write to",
        _ => "choose another address",
    }
}

fn has_folder(address: &Address, folder: &Path) -> Result<(), Failure> {
    if asked_of(folder, Path::is_dir).unwrap_or(true) {
        return Ok(());
    }
    let why = format!("{} is no directory", printable(&folder.to_string_lossy()));
    let cure = "make it with `mkdir -p`, or choose another one";
    Err(Failure::new(cannot_serve(address), why, cure))
}

/// The way of a block device; none where the front is something else.
fn way(address: &Address) -> Result<Option<Way>, Failure> {
    Way::of(&address.endpoint).map_err(|why| {
        let cure = "see to that as root, or serve a file with --serve=fuse:/DIR";
        Failure::new(cannot_serve(address), why, cure)
    })
}

pub(super) fn cannot_serve(address: &Address) -> String {
    format!("cannot serve at {address}")
}

impl Front {
    pub(super) fn address(&self) -> &Address {
        match self {
            Self::Nbd(server) => server.address(),
            Self::VhostUser(server) => server.address(),
            Self::Mounted(mounted) => &mounted.address,
            Self::Driven(driven) => driven.address(),
        }
    }

    /// What keeps its socket in its place, or its connections, if it has some. True: the socket was made anew.
    pub(super) fn keeper(&self) -> Option<Box<dyn FnOnce() -> Result<bool, String>>> {
        let lost = |error| match error {
            ListenError::Tls(error) => format!("it keeps the certificates that it has: {error}"),
            error => format!("no client may find it: {error}"),
        };
        match self {
            Self::Nbd(server) => {
                let keeper = server.keeper();
                Some(Box::new(move || keeper.keep().map_err(lost)))
            }
            Self::VhostUser(server) => {
                let keeper = server.keeper();
                Some(Box::new(move || keeper.keep().map_err(lost)))
            }
            Self::Mounted(_) => None,
            Self::Driven(driven) => {
                let driven = Arc::downgrade(driven);
                let keep = move || driven.upgrade().map_or(Ok(()), |driven| driven.keep());
                Some(Box::new(move || keep().map(|()| false)))
            }
        }
    }

    /// Whether a block device of the host has its bytes here.
    pub(super) fn bears(&self, device: u64) -> bool {
        match self {
            Self::Nbd(_) | Self::VhostUser(_) => false,
            Self::Mounted(mounted) => mounted.device.as_ref().is_some_and(|own| own.bears(device)),
            Self::Driven(driven) => driven.device().bears(device),
        }
    }

    /// Who uses it, as words for the user. Who shows nowhere is found where it `claims` a device for a moment: a mount
    /// may be refused then.
    pub(super) fn clients(&self, claims: bool) -> Vec<String> {
        match self {
            Self::Nbd(server) => server.clients(),
            Self::VhostUser(server) => server.clients(),
            Self::Mounted(mounted) if claims => mounted.claim().err().unwrap_or_default(),
            Self::Mounted(mounted) => mounted.clients(),
            Self::Driven(driven) if claims => driven.claim().err().unwrap_or_default(),
            Self::Driven(driven) => driven.device().users(None),
        }
    }

    /// Waits `patience` for its users to leave. An error says who stays.
    pub(super) fn claim(&self, patience: Duration) -> Result<Unused, Vec<String>> {
        let until = Instant::now() + patience;
        loop {
            let claimed = match self {
                Self::Nbd(server) => return none_of(server.clients_that_stay(patience)),
                Self::VhostUser(server) => return none_of(server.clients_that_stay(patience)),
                Self::Mounted(mounted) => mounted.claim(),
                Self::Driven(driven) => driven.claim().map(Unused),
            };
            if claimed.is_ok() || Instant::now() >= until {
                return claimed;
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Its device, if a crash left that, and it goes on with it.
    pub(super) fn went_on(&self) -> Option<&Driven> {
        match self {
            Self::Driven(driven) if driven.was_left() => Some(driven),
            _ => None,
        }
    }

    /// Its device, if that can wait for the next process, with all its users.
    pub(super) fn can_wait(&self) -> Option<&Driven> {
        match self {
            Self::Driven(driven) if !driven.device().is_detached() => Some(driven),
            _ => None,
        }
    }

    /// Whether it takes clients until it is closed.
    pub(super) fn listens(&self) -> bool {
        matches!(self, Self::Nbd(_) | Self::VhostUser(_))
    }

    /// Ends it. An error says whose requests still run after a while. What the kernel holds back of a block
    /// device is written first, and waited for as long as it takes, but by force.
    pub(super) fn close(self, unused: Unused, closing: &Closing<'_>) -> Result<(), String> {
        match self {
            Self::Nbd(server) => requests_end(closing, || server.close(LOOK_EVERY)),
            Self::VhostUser(server) => requests_end(closing, || server.close(LOOK_EVERY)),
            Self::Driven(driven) => {
                let claimed = match unused.0 {
                    Some(Claim::Process(opener)) => Some(opener),
                    _ => None,
                };
                driven.close(claimed, closing)
            }
            Self::Mounted(mounted) => {
                let Mounted { device, server, guard, own, .. } = *mounted;
                // The file is served still meanwhile.
                let lateness =
                    Lateness::new(closing, || device.as_ref().and_then(BlockDevice::done));
                let is_late = || lateness.is_late();
                // The process that keeps the device claims it then.
                drop(unused);
                let mut end = guard.map_or(End::Written, |guard| guard.end(is_late));
                if let (End::Killed, Some(device)) = (end, &device) {
                    end = match (device.open(), Some(device.link_ends())) {
                        (None, _) => End::Written,
                        (kept, link) => MountGuard::spawn(server.mount(), kept, link)
                            .map_or(End::Killed, |guard| guard.end(is_late)),
                    };
                }
                let closed = requests_end(closing, || server.close(LOOK_EVERY));
                drop(own);
                let Some(device) = device.map(|device| device.describe()) else { return closed };
                match end {
                    End::Written => closed,
                    End::Unwritten => Err(format!(
                        "the kernel could not write all that programs wrote to {device}: see `dmesg`"
                    )),
                    End::Attached => Err(format!("{device} stays attached: see `losetup --list`")),
                    End::Late => Err(format!(
                        "what the kernel held back of {device} may be lost: a stop by force does not wait for it for long"
                    )),
                    End::Killed => Err(format!(
                        "{device} stays attached, for no process can be started that keeps it: see `losetup --list`"
                    )),
                }
            }
        }
    }

    pub(super) fn report(&self, claims: bool) -> FrontReport {
        let device = match self {
            Self::Nbd(_) | Self::VhostUser(_) => None,
            Self::Mounted(mounted) => Some(match &mounted.device {
                Some(device) => device.describe(),
                None => mounted.server.path().display().to_string(),
            }),
            Self::Driven(driven) => Some(driven.device().describe()),
        };
        let uri = match self {
            Self::Nbd(server) => server.uri(),
            _ => None,
        };
        let (address, clients) = (self.address().to_string(), self.clients(claims));
        FrontReport { address, device, uri, clients }
    }
}

/// A server without clients is claimed by nothing more.
fn none_of(clients: Vec<String>) -> Result<Unused, Vec<String>> {
    if clients.is_empty() { Ok(Unused::default()) } else { Err(clients) }
}

impl Mounted {
    fn clients(&self) -> Vec<String> {
        let device = self.device.iter().flat_map(|device| device.users(self.keeper()));
        device.chain(self.server.clients()).collect()
    }

    fn claim(&self) -> Result<Unused, Vec<String>> {
        let claimed = match &self.device {
            Some(device) => device.claim(self.keeper()),
            None => Ok(None),
        };
        let clients = self.server.clients();
        match claimed {
            Ok(claimed) if clients.is_empty() => Ok(Unused(claimed.map(Claim::Descriptor))),
            claimed => Err(claimed.err().into_iter().flatten().chain(clients).collect()),
        }
    }

    fn keeper(&self) -> Option<u32> {
        self.guard.as_ref().map(MountGuard::process)
    }
}

/// Whether a wait for what the kernel holds back of a device has taken as long as a closing allows.
pub(super) struct Lateness<'a, D> {
    closing: &'a Closing<'a>,
    /// How many requests the device has done; none where no system file tells.
    done: D,
    begin: Instant,
    /// When that number changed last.
    wrote: Cell<(Instant, Option<u64>)>,
}

impl<'a, D: Fn() -> Option<u64>> Lateness<'a, D> {
    /// The wait begins.
    pub(super) fn new(closing: &'a Closing<'a>, done: D) -> Self {
        let begin = Instant::now();
        Self { closing, done, begin, wrote: Cell::new((begin, None)) }
    }

    pub(super) fn is_late(&self) -> bool {
        let Some(done) = (self.done)() else { return self.closing.is_late(self.begin) };
        if self.wrote.get().1 != Some(done) {
            self.wrote.set((Instant::now(), Some(done)));
        }
        self.closing.is_late_to_write(self.begin, self.wrote.get().0)
    }
}

/// Looks again and again whether all requests have ended, for as long as a stop has patience.
pub(super) fn requests_end<E: ToString>(
    closing: &Closing<'_>,
    look: impl Fn() -> Result<(), E>,
) -> Result<(), String> {
    let begin = Instant::now();
    loop {
        let Err(still) = look() else { return Ok(()) };
        if closing.is_late(begin) || begin.elapsed() >= STOP_PATIENCE {
            return Err(still.to_string());
        }
    }
}

#[cfg(test)]
mod tests;
