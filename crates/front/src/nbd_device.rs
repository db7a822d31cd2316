//! A block device of the host's own nbd driver, `/dev/nbdN`, whose connections this process serves.
//!
//! Source: `include/uapi/linux/nbd-netlink.h`. Only root has such devices.
//!
//! A device outlives the process that serves it: its requests wait for another one for ten minutes. The array's next
//! process knows it by the text that the driver keeps for it, and gives it new connections. The driver then sends again
//! what was not answered, within half a minute. What the dead process had under way of these requests is over by then:
//! the kernel keeps that process' locks on the members until its last I/O there has ended, and no array starts before
//! it has them. What it had sent over a network or a path without an answer is in the records of late writes,
//! which are made before the first write, and which the start of a member reads.
//!
//! A process that serves a device must never wait for that device: when it is killed it would wait for its own answer.
//! So it never opens it. Who opens it may read from it (a look for partitions), and who closes it last writes to it.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, available_parallelism};
use std::time::Duration;

use crate::driver_device::{DriverDevice, NoDevice, UnderWay};
use crate::host_device::{HostDevice, is_host_root, is_node};
use crate::identity::Identity;
use crate::making::Making;
use crate::nbd::Export;
use crate::nbd::pairs::{ConnectionNumber, PairServer};
use crate::pieces::PIECE_SECTORS;
use crate::served_lock::ServedLock;

mod driver;
mod index;
mod left;

use driver::Driver;
pub use index::Index;
use left::{devices_of, give_up, indices, is_used};
pub(crate) use left::{is_left, is_served, release_left};

/// How often a device is given connections whose old ones the driver has not found dead yet, and after what time.
const TRIES: usize = 200;
const TRY_EVERY: Duration = Duration::from_millis(5);

/// A device that this process serves. It stays when this is dropped: [`take_away`](DriverDevice::take_away) ends it.
#[derive(Debug)]
pub struct NbdDevice {
    index: Index,
    path: PathBuf,
    number: u64,
    identity: Identity,
    server: Arc<PairServer>,
    connections: usize,
    lock: Mutex<Option<ServedLock>>,
}

/// Why there is no device.
#[derive(Debug, thiserror::Error)]
pub enum NbdDeviceError {
    /// The kernel has no driver.
    #[error("this host's kernel has no nbd driver loaded: load it with `modprobe nbd`")]
    NoDriver,
    /// The kernel refused to be asked.
    #[error("the kernel's nbd driver cannot be asked: {0}")]
    Ask(io::Error),
    /// Not root.
    #[error("only the host's root with CAP_SYS_ADMIN has devices of the nbd driver")]
    NotRoot,
    /// For a reason that both drivers share.
    #[error(transparent)]
    NoDevice(#[from] NoDevice),
    /// Larger than a page of this host's memory.
    #[error(
        "the nbd driver of this kernel takes no logical blocks of {0} bytes: serve it with loop, or over NBD"
    )]
    Block(u32),
    /// The system refused.
    #[error("the nbd driver gives no device: {0}")]
    System(#[from] io::Error),
}

impl NbdDevice {
    /// Gives the array's device connections to `server`, which ends with it: that which a crash left, or a new one. `folder` has the locks of
    /// all processes that serve devices. True: there was one.
    ///
    /// Devices of other arrays stay as they are, for not every use of a device can be seen. So does one of this array that is
    /// left for a moment's lack: with a new one beside it, it would be written over later by what it holds back.
    pub fn attach(
        identity: Identity,
        server: PairServer,
        folder: &Path,
    ) -> Result<(Self, bool), NbdDeviceError> {
        let (driver, server) = (Driver::find()?, Arc::new(server));
        let _making = Making::begin(&folder.join("lock")).map_err(NoDevice::from)?;
        let mut unfit = Vec::new();
        for index in devices_of(&identity)? {
            let Some(lock) = ServedLock::take_patiently(&index.name(), folder)? else { continue };
            if !fits(index, server.export()) {
                unfit.push((index, lock));
                continue;
            }
            match Self::take_over(&driver, index, &identity, &server, lock) {
                Ok(device) => return Ok((device, true)),
                Err(NbdDeviceError::System(error)) if is_over(&error) => {
                    tracing::warn!(%error, "{} was left by a crash, and is disconnected", index.path().display());
                }
                Err(error) => return Err(error),
            }
        }
        if let Some((index, _)) = unfit.iter().find(|(index, _)| is_used(*index)) {
            return Err(NoDevice::Differs(index.path()).into());
        }
        unfit.iter().for_each(|(index, _)| give_up(&driver, *index, &identity));
        Ok((Self::new(&driver, identity, &server, folder)?, false))
    }

    fn new(
        driver: &Driver,
        identity: Identity,
        server: &Arc<PairServer>,
        folder: &Path,
    ) -> Result<Self, NbdDeviceError> {
        // The driver has no more queues than the host has CPUs.
        let cpus = available_parallelism().map_or(1, usize::from);
        let connections = server.lane_count().min(cpus);
        let sockets = connect_all(server, connections)?;
        let index = driver.connect(&identity, server.export(), server.flags(), &sockets)?;
        let lock = ServedLock::take_patiently(&index.name(), folder).and_then(|lock| {
            lock.ok_or_else(|| io::Error::other("another process has the lock of the device"))
        });
        let made = lock.map_err(NbdDeviceError::System);
        let made = made.and_then(|lock| Self::served(index, identity, server, connections, lock));
        made.inspect_err(|_| {
            let _ = driver.disconnect(index);
        })
    }

    /// A device that was left, of the export's size, blocks and right to write.
    fn take_over(
        driver: &Driver,
        index: Index,
        identity: &Identity,
        server: &Arc<PairServer>,
        lock: ServedLock,
    ) -> Result<Self, NbdDeviceError> {
        let connections = index.connections();
        let device = Self::served(index, identity.clone(), server, connections, lock)?;
        device.fill(driver)?;
        Ok(device)
    }

    /// Gives it connections. The driver takes none in place of one that is alive: two processes never serve a device.
    fn fill(&self, driver: &Driver) -> Result<(), NbdDeviceError> {
        for _ in 0..TRIES {
            self.give(driver, &self.cut_off())?;
            if self.cut_off().is_empty() {
                return Ok(());
            }
            thread::sleep(TRY_EVERY);
        }
        Err(NoDevice::Served(self.path.clone()).into())
    }

    fn give(&self, driver: &Driver, numbers: &[ConnectionNumber]) -> io::Result<()> {
        let sockets = numbers.iter().map(|number| self.server.connect(*number));
        driver.give(self.index, &self.identity, &sockets.collect::<io::Result<Vec<_>>>()?)
    }

    fn served(
        index: Index,
        identity: Identity,
        server: &Arc<PairServer>,
        connections: usize,
        lock: ServedLock,
    ) -> Result<Self, NbdDeviceError> {
        let (path, number) = (index.path(), index.number()?);
        if !is_node(&path, number) {
            return Err(NoDevice::NoNode(path).into());
        }
        let (server, lock) = (server.clone(), Mutex::new(Some(lock)));
        Ok(Self { index, path, number, identity, server, connections, lock })
    }

    /// Its connections that the driver has cut off.
    fn cut_off(&self) -> Vec<ConnectionNumber> {
        self.server.cut_off(self.connections)
    }
}

impl HostDevice for NbdDevice {
    fn path(&self) -> &Path {
        &self.path
    }

    fn number(&self) -> u64 {
        self.number
    }

    fn is_detached(&self) -> bool {
        !self.index.is_of(&self.identity)
    }
}

impl DriverDevice for NbdDevice {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Makes connections anew that the driver has cut off.
    fn keep(&self) -> Result<(), String> {
        let cut_off = self.cut_off();
        if cut_off.is_empty() {
            return Ok(());
        }
        let shown = self.name();
        if self.is_detached() {
            // Its number may be another array's from now on.
            *self.lock.lock().unwrap_or_else(PoisonError::into_inner) = None;
            return Err(format!(
                "the kernel has given up {shown}: close that front with `mdspace unserve`, and open it again"
            ));
        }
        let made = Driver::find().and_then(|driver| Ok(self.give(&driver, &cut_off)?));
        made.map_err(|error| format!("connections of {shown} were cut off: {error}"))?;
        tracing::warn!("the kernel has cut off connections of {shown}: made anew");
        Ok(())
    }

    fn close(&self, patience: Duration) -> Result<(), UnderWay> {
        self.server.close(patience).map_err(|_| UnderWay(self.name()))
    }

    fn take_away(&self) -> io::Result<()> {
        match self.is_detached() {
            true => Ok(()),
            false => disconnect(self.index).map_err(io::Error::other),
        }
    }
}

/// Whether a device is what this export would be.
fn fits(index: Index, export: &Export) -> bool {
    let block_bytes = index.system_value("queue/logical_block_size");
    index.system_value("size") == Some(export.size_bytes / 512)
        && block_bytes == Some(export.block_sizes.minimum().into())
        && index.system_value("ro") == Some(export.read_only.into())
}

/// Whether the driver refuses connections since the device has been disconnected: it never gets any again.
fn is_over(refusal: &io::Error) -> bool {
    refusal.kind() == io::ErrorKind::InvalidInput
}

fn connect_all(server: &PairServer, count: usize) -> io::Result<Vec<OwnedFd>> {
    (0..count).map(|number| server.connect(ConnectionNumber(number))).collect()
}

/// Whether the driver is there, takes orders of this process, and its devices can be opened. It is not loaded for that.
pub fn is_loaded() -> Result<(), NbdDeviceError> {
    match Path::new("/sys/module/nbd").exists() {
        false => Err(NbdDeviceError::NoDriver),
        true => load(),
    }
}

/// The same, and has the kernel load it.
pub fn load() -> Result<(), NbdDeviceError> {
    if !is_host_root()? {
        return Err(NbdDeviceError::NotRoot);
    }
    Driver::find()?;
    // One alone may be about to get its node.
    let known = indices()?;
    match known.first() {
        Some(index) if !known.iter().any(|index| index.has_node()) => {
            Err(NoDevice::NoNode(index.path()).into())
        }
        _ => Ok(()),
    }
}

/// Has the driver ask for discards of one piece each at most: many longer ones would outlast the half minute after which it
/// cuts a connection off, and asks for all of them again.
pub(crate) fn shorten_discards(index: Index) -> io::Result<()> {
    const LONGEST: &str = "queue/discard_max_bytes";
    match index.system_value(LONGEST) {
        Some(bytes) if bytes > PIECE_SECTORS * 512 => {
            index.set_system_value(LONGEST, PIECE_SECTORS * 512)
        }
        _ => Ok(()),
    }
}

/// Has the driver end a device: what is under way there fails, and so does what programs that have it open ask for.
/// Its number is free when they have closed it.
pub(crate) fn disconnect(index: Index) -> Result<(), NbdDeviceError> {
    Ok(Driver::find()?.disconnect(index)?)
}
