//! One front: a socket of NBD, a mounted file, or a block device.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use mdspace_front::address::{Address, Endpoint};
use mdspace_front::fuse::{self, FuseServer, Mount, Session};
use mdspace_front::listener::Listener;
use mdspace_front::nbd::{Exports, Keeper, Server, ServerLimits};
use mdspace_front::volume::Volume;

use super::block_device::BlockDevice;
use super::mount_guard::MountGuard;
use crate::args::ArrayName;
use crate::failure::Failure;
use crate::report::FrontReport;
use crate::run_dir::RunDir;

/// Between two looks whether users have gone.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A front that can be opened: what the user named is there and free. Nothing was written for it.
pub(in crate::process) enum Prepared {
    Nbd(Listener),
    File { address: Address, directory: PathBuf },
}

/// An open front.
pub(super) enum Front {
    Nbd(Server),
    Mounted(Mounted),
}

/// A file of the array, and the block device over it, if that was asked for.
pub(super) struct Mounted {
    address: Address,
    device: Option<BlockDevice>,
    server: FuseServer,
    guard: Option<MountGuard>,
}

impl Prepared {
    /// Looks where the user says. Before a member is written to, so that a wrong word costs nothing.
    pub(in crate::process) fn new(
        address: &Address,
        name: &ArrayName,
        run_dir: &RunDir,
    ) -> Result<Self, Failure> {
        let what = || format!("cannot serve at {address}");
        let directory = match &address.endpoint {
            Endpoint::Nbd(_) => {
                return Listener::bind(address)
                    .map(Self::Nbd)
                    .map_err(|error| Failure::new(what(), error, "choose another address"));
            }
            Endpoint::Fuse(directory) => directory.clone(),
            Endpoint::Loop | Endpoint::Block => {
                BlockDevice::is_possible().map_err(|why| {
                    let cure = "run it as root, or serve a file with --serve=fuse:/DIR";
                    Failure::new(what(), why, cure)
                })?;
                let directory = run_dir.mount_point(name);
                fuse::mount::make_directory(&directory).map_err(|error| {
                    Failure::new(what(), error, "check the rights of the run directory")
                })?;
                directory
            }
        };
        fuse::mount::prepare(&directory)
            .map_err(|error| Failure::new(what(), error, "then try again"))?;
        Ok(Self::File { address: address.clone(), directory })
    }

    /// Serves a volume there. Gives the front, and what the user reads of it.
    pub(super) fn open<V: Volume>(
        self,
        name: &ArrayName,
        exports: Exports,
        limits: ServerLimits,
        volume: &V,
    ) -> Result<(Front, String), Failure> {
        match self {
            Self::Nbd(listener) => {
                let server = Server::start(listener, exports, limits, volume);
                let note = format!("{name}: served at {}", server.address());
                Ok((Front::Nbd(server), note))
            }
            Self::File { address, directory } => {
                let what = || format!("cannot serve {name} at {address}");
                let failed = |error| Failure::new(what(), error, "see `mdspace doctor`");
                let exports = if address.read_only { exports.read_only() } else { exports };
                let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
                let session = Session::new(exports, uid.as_raw(), gid.as_raw());
                let (block_bytes, read_only) = (session.block_bytes(), session.file().read_only);
                let path = directory.join(name.to_string());
                let mount = Mount::new(&directory).map_err(failed)?;
                let server = FuseServer::start(mount, session, volume).map_err(failed)?;
                let guard = MountGuard::spawn(&directory)
                    .inspect_err(|error| {
                        tracing::warn!(%error, "after a crash the mount stays until the next start");
                    })
                    .ok();
                let device = match address.endpoint {
                    Endpoint::Loop | Endpoint::Block => Some(
                        BlockDevice::attach(&path, name, block_bytes, read_only)
                            .map_err(|why| Failure::new(what(), why, "see `mdspace doctor`"))?,
                    ),
                    _ => None,
                };
                let shown =
                    device.as_ref().map_or(path.display().to_string(), BlockDevice::describe);
                let note = format!("{name}: served as {shown}");
                Ok((Front::Mounted(Mounted { address, device, server, guard }), note))
            }
        }
    }
}

impl Front {
    pub(super) fn address(&self) -> &Address {
        match self {
            Self::Nbd(server) => server.address(),
            Self::Mounted(mounted) => &mounted.address,
        }
    }

    /// What keeps its socket in its place, if it has one.
    pub(super) fn keeper(&self) -> Option<Keeper> {
        match self {
            Self::Nbd(server) => Some(server.keeper()),
            Self::Mounted(_) => None,
        }
    }

    /// Who uses it, as words for the user.
    pub(super) fn clients(&self) -> Vec<String> {
        match self {
            Self::Nbd(server) => server.clients(),
            Self::Mounted(mounted) => {
                let device = mounted.device.iter().flat_map(BlockDevice::users);
                device.chain(mounted.server.clients()).collect()
            }
        }
    }

    /// Who still uses it after `patience`.
    pub(super) fn clients_that_stay(&self, patience: Duration) -> Vec<String> {
        if let Self::Nbd(server) = self {
            return server.clients_that_stay(patience);
        }
        let until = Instant::now() + patience;
        loop {
            let clients = self.clients();
            if clients.is_empty() || Instant::now() >= until {
                return clients;
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Ends it. An error says whose requests still run after `patience`.
    pub(super) fn close(self, patience: Duration) -> Result<(), String> {
        match self {
            Self::Nbd(server) => server.close(patience).map_err(|error| error.to_string()),
            Self::Mounted(Mounted { device, server, guard, .. }) => {
                let directory = device.is_some().then(|| server.directory().to_owned());
                // What the kernel keeps of the device is written while the file is served still.
                drop(device);
                let closed = server.close(patience).map_err(|error| error.to_string());
                drop(guard);
                if let Some(directory) = directory
                    && let Err(error) = std::fs::remove_dir(&directory)
                {
                    tracing::warn!(%error, "{} stays", directory.display());
                }
                closed
            }
        }
    }

    pub(super) fn report(&self) -> FrontReport {
        let device = match self {
            Self::Nbd(_) => None,
            Self::Mounted(Mounted { device: Some(device), .. }) => Some(device.describe()),
            Self::Mounted(mounted) => Some(mounted.server.path().display().to_string()),
        };
        FrontReport { address: self.address().to_string(), device, clients: self.clients() }
    }
}
