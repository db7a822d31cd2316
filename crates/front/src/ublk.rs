//! A block device of the host's ublk driver, `/dev/ublkbN`, whose requests this process takes over io_uring.
//!
//! Source: `include/uapi/linux/ublk_cmd.h`, `drivers/block/ublk_drv.c`. Only root has such devices: data are copied by
//! reads and writes of `/dev/ublkcN`, which the driver gives to no one else. Zero copy is not used: parity needs to see
//! the bytes, and drivers as that of Linux 6.12 hand over none.
//!
//! A device outlives the process that serves it (`UBLK_F_USER_RECOVERY`, `_REISSUE`): requests wait, and what was not
//! answered comes again. The array's next process knows it by what the driver keeps for it and by a record beside its
//! lock, and takes it over. What the dead process had under way is over by then: the kernel keeps that process' locks on
//! the members until its last I/O there has ended, and no array starts before it has them. What it had sent over a network
//! or a path without an answer is in the records of late writes, which the start of a member reads.
//!
//! A process that serves a device must never wait for that device: when it is killed it would wait for its own answer.
//! So it never opens it. Who opens it may read from it (a look for partitions), and who closes it last writes to it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;
use std::time::Duration;

use rustix::io::Errno;

use crate::driver_device::{DriverDevice, NoDevice, UnderWay};
use crate::host_device::{HostDevice, is_host_root, is_node, place_of};
use crate::identity::Identity;
use crate::making::Making;
use crate::nbd::Exports;
use crate::partial_writes::PartialWrites;
use crate::rights::{Owners, Rights, RightsError};
use crate::served_lock::ServedLock;
use crate::volume::Volume;

mod control;
mod index;
mod left;
mod parameters;
mod queue;
mod request;
mod ring;
mod server;
mod slots;
mod wire;

use control::{Control, is};
use index::{Index, mark};
use left::{devices_of, forget_process, give_up, is_used, open, take_away, wait_until_quiet};
pub(crate) use left::{is_left, is_served, release_left};
use parameters::Shape;
use server::{Server, Terms, shape_of};
use wire::{ANY_DEVICE, DeviceInfo, feature, state};

/// Entries of a queue: requests that the kernel may have under way there.
const DEPTH: u16 = 256;

/// What a device must be able to do.
const FEATURES: u64 = feature::USER_RECOVERY
    | feature::USER_RECOVERY_REISSUE
    | feature::IOCTL_ENCODE
    | feature::USER_COPY;

/// A device that this process serves. It stays when this is dropped: [`take_away`](DriverDevice::take_away) ends it.
#[derive(Debug)]
pub struct UblkDevice {
    index: Index,
    path: PathBuf,
    number: u64,
    identity: Identity,
    server: Server,
    /// Closed before the device is deleted.
    served_by: Mutex<Option<Arc<File>>>,
    rights: Rights,
    owners: Owners,
    _lock: ServedLock,
}

/// Why there is no device.
#[derive(Debug, thiserror::Error)]
pub enum UblkError {
    /// The kernel has no driver.
    #[error(
        "this host's kernel has no ublk driver loaded: load it with `modprobe ublk_drv` (Linux 6.5 or later, built with \
         CONFIG_BLK_DEV_UBLK)"
    )]
    NoDriver,
    /// The driver lacks what is needed.
    #[error(
        "the ublk driver of this kernel cannot copy data or give devices on: use Linux 6.5 or later"
    )]
    TooOld,
    /// io_uring is off.
    #[error("the ublk driver is asked over io_uring: {0}")]
    NoRing(io::Error),
    /// The kernel refused to be asked.
    #[error("the kernel's ublk driver cannot be asked: {0}")]
    Ask(io::Error),
    /// Not root.
    #[error("only the host's root with CAP_SYS_ADMIN has devices of the ublk driver")]
    NotRoot,
    /// For a reason that both drivers share.
    #[error(transparent)]
    NoDevice(#[from] NoDevice),
    /// The driver has lost requests.
    #[error(
        "{0} waits for requests that the ublk driver has lost, as that of Linux 6.12 may when a process is killed: only a \
         restart of the host ends it; serve the array in another way until then"
    )]
    Stuck(PathBuf),
    /// Larger than a page of this host's memory.
    #[error(
        "the ublk driver of this kernel takes no logical blocks of {0} bytes: serve it with loop, or over NBD"
    )]
    Block(u32),
    /// Its node cannot be given away.
    #[error(transparent)]
    Rights(#[from] RightsError),
    /// Queues have ended.
    #[error("the ublk driver gives no device: {0}")]
    Queue(String),
    /// The system refused.
    #[error("the ublk driver gives no device: {0}")]
    System(#[from] io::Error),
}

/// What a device serves, and how.
#[derive(Debug)]
pub struct Offer {
    /// The first of them is served.
    pub exports: Exports,
    /// All fronts of one volume have the same.
    pub partial_writes: PartialWrites,
    /// Of its node.
    pub rights: Rights,
}

impl UblkDevice {
    /// Serves a volume as the array's device: that which a crash left, or a new one. `folder` has the locks of all
    /// processes that serve devices. True: there was one.
    ///
    /// Devices of other arrays stay as they are, for not every use of a device can be seen.
    pub fn attach<V: Volume>(
        identity: Identity,
        offer: Offer,
        volume: &V,
        folder: &Path,
    ) -> Result<(Self, bool), UblkError> {
        let control = find()?;
        let owners = offer.rights.owners()?;
        let making = Making::begin(&folder.join("lock")).map_err(NoDevice::from)?;
        let shape = shape_of(&offer.exports, volume)?;
        let maker = Maker { control: &control, identity, offer, owners, shape, volume };
        let mut unfit = Vec::new();
        for (index, info) in devices_of(&control, &maker.identity, folder)? {
            let Some(lock) = ServedLock::take_patiently(&index.name(), folder)? else { continue };
            wait_until_quiet(&control, index)?;
            match info.state {
                state::DEAD => give_up(&control, index, &info),
                _ if !maker.fits(index) => unfit.push((index, info, lock)),
                _ => {
                    // Its lock is enough, and its process may take long to go.
                    drop(making);
                    return Ok((maker.take_over(index, &info, lock)?, true));
                }
            }
        }
        if let Some((index, ..)) = unfit.iter().find(|(index, ..)| is_used(*index)) {
            return Err(NoDevice::Differs(index.path()).into());
        }
        unfit.iter().for_each(|(index, info, _)| give_up(&control, *index, info));
        Ok((maker.make(folder, making)?, false))
    }

    fn served_by(&self) -> MutexGuard<'_, Option<Arc<File>>> {
        self.served_by.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HostDevice for UblkDevice {
    fn path(&self) -> &Path {
        &self.path
    }

    fn number(&self) -> u64 {
        self.number
    }

    /// As long as this process has it open its number is no other one's.
    fn is_detached(&self) -> bool {
        self.served_by().is_none() || !place_of(&self.path).exists()
    }
}

impl DriverDevice for UblkDevice {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    /// udev gives its node other rights when it looks at it again.
    fn keep(&self) -> Result<(), String> {
        if let Some(trouble) = self.server.trouble() {
            return Err(format!(
                "{} waits for another process ({trouble}): close that front with `mdspace unserve`, and open it again",
                self.path.display()
            ));
        }
        self.rights.give_to_device(&self.path, self.owners).map_err(|error| error.to_string())
    }

    fn close(&self, patience: Duration) -> Result<(), UnderWay> {
        match self.server.close(patience) {
            true => Ok(()),
            false => Err(UnderWay(self.name())),
        }
    }

    fn stop(&self) -> io::Result<()> {
        Control::open()?.stop_left(self.index)
    }

    fn take_away(&self) -> io::Result<()> {
        *self.served_by() = None;
        take_away(&Control::open()?, self.index)
    }
}

/// Makes the device of a volume.
struct Maker<'a, V> {
    control: &'a Control,
    identity: Identity,
    offer: Offer,
    owners: Owners,
    shape: Shape,
    volume: &'a V,
}

impl<V: Volume> Maker<'_, V> {
    /// Whether a device is what this volume would be.
    fn fits(&self, index: Index) -> bool {
        let parameters = self.control.parameters(index);
        parameters.is_ok_and(|parameters| parameters.fit(&self.shape.parameters()))
    }

    /// A device that was left, and that fits.
    fn take_over(
        self,
        index: Index,
        info: &DeviceInfo,
        lock: ServedLock,
    ) -> Result<UblkDevice, UblkError> {
        lock.record(&self.identity)?;
        forget_process(self.control, index)?;
        let mut limits = self.shape.limits();
        limits.request_bytes_max = self.control.parameters(index)?.request_bytes_max();
        let terms = Terms { queues: info.queues, depth: info.depth, limits };
        let (server, served_by) = self.serve(index, terms)?;
        let ended = self.control.end_recovery(index, || server.trouble().is_some());
        self.finish(index, lock, server, served_by, ended)
    }

    fn make(self, folder: &Path, making: Making) -> Result<UblkDevice, UblkError> {
        // The driver has no more queues than the host has CPUs.
        let cpus = available_parallelism().map_or(1, usize::from);
        let info = self.control.add(DeviceInfo {
            queues: u16::try_from(self.volume.lane_count().min(cpus)).unwrap_or(u16::MAX),
            depth: DEPTH,
            request_bytes_max: self.shape.request_bytes_max(),
            device: ANY_DEVICE,
            process: -1,
            features: FEATURES,
            mark: mark(&self.identity),
            ..DeviceInfo::default()
        })?;
        let (control, index) = (self.control, Index(info.device));
        self.make_disk(index, &info, folder, making).inspect_err(|_| {
            let _ = take_away(control, index);
        })
    }

    fn make_disk(
        self,
        index: Index,
        info: &DeviceInfo,
        folder: &Path,
        making: Making,
    ) -> Result<UblkDevice, UblkError> {
        let lock = ServedLock::take_patiently(&index.name(), folder)?
            .ok_or_else(|| io::Error::other("another process has the lock of the device"))?;
        lock.record(&self.identity)?;
        // Others see whose it is.
        drop(making);
        let block_bytes = self.shape.block_bytes;
        let told = self.control.set_parameters(index, &self.shape.parameters());
        told.map_err(|error| refused(error, block_bytes))?;
        let terms = Terms { queues: info.queues, depth: info.depth, limits: self.shape.limits() };
        let (server, served_by) = self.serve(index, terms)?;
        let started = self.control.start(index, || server.trouble().is_some());
        self.finish(index, lock, server, served_by, started)
    }

    /// Gives the driver the queues.
    fn serve(&self, index: Index, terms: Terms) -> Result<(Server, Arc<File>), UblkError> {
        let opened: Result<File, UblkError> = open(index).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => NoDevice::NoNode(index.server_path()).into(),
            _ if is(&error, Errno::BUSY) => NoDevice::Served(index.path()).into(),
            _ => error.into(),
        });
        let served_by = Arc::new(opened?);
        let Offer { exports, partial_writes, .. } = &self.offer;
        let (exports, partial_writes) = (exports.clone(), partial_writes.clone());
        let server = Server::start(exports, partial_writes, terms, &served_by, self.volume)?;
        Ok((server, served_by))
    }

    fn finish(
        self,
        index: Index,
        lock: ServedLock,
        server: Server,
        served_by: Arc<File>,
        begun: io::Result<()>,
    ) -> Result<UblkDevice, UblkError> {
        if let Some(trouble) = server.trouble() {
            return Err(UblkError::Queue(trouble));
        }
        begun?;
        let (path, number) = (index.path(), index.number()?);
        if !is_node(&path, number) {
            return Err(NoDevice::NoNode(path).into());
        }
        let Offer { rights, .. } = self.offer;
        rights.give_to_device(&path, self.owners)?;
        Ok(UblkDevice {
            index,
            path,
            number,
            identity: self.identity,
            server,
            served_by: Mutex::new(Some(served_by)),
            rights,
            owners: self.owners,
            _lock: lock,
        })
    }
}

/// Why the driver takes no such parameters.
fn refused(error: io::Error, block_bytes: u32) -> UblkError {
    match is(&error, Errno::INVAL) && block_bytes as usize > rustix::param::page_size() {
        true => UblkError::Block(block_bytes),
        false => error.into(),
    }
}

/// Whether the driver is loaded, takes orders of this process, and can do what is needed.
pub fn is_loaded() -> Result<(), UblkError> {
    find().map(drop)
}

fn find() -> Result<Control, UblkError> {
    let control = Control::open();
    if control.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Err(UblkError::NoDriver);
    }
    if !is_host_root()? {
        return Err(UblkError::NotRoot);
    }
    let control = control.map_err(UblkError::Ask)?;
    mdspace_io::try_ring().map_err(UblkError::NoRing)?;
    match control.features() {
        Ok(features) if features & FEATURES == FEATURES => Ok(control),
        Ok(_) => Err(UblkError::TooOld),
        Err(error) if is(&error, Errno::OPNOTSUPP) || is(&error, Errno::INVAL) => {
            Err(UblkError::TooOld)
        }
        Err(error) => Err(UblkError::Ask(error)),
    }
}

/// Whether a path is that of a device of the driver.
pub(crate) fn is_device(path: &Path) -> bool {
    Index::of(path).is_some()
}

/// Whether a device is that array's. Also where the driver does not say: who believes that it is another one's leaves it
/// attached. As long as a process has it open its number is no other one's.
pub(crate) fn is_of(device: &Path, identity: &Identity, folder: &Path) -> bool {
    let Some(index) = Index::of(device) else { return false };
    let info = Control::open().and_then(|control| control.info(index));
    let record = crate::served_lock::recorded(&index.name(), folder);
    match info {
        Ok(info) => info.state != state::DEAD && index::is_of(&info, record.as_ref(), identity),
        Err(error) => !is(&error, Errno::NODEV),
    }
}

/// Has the driver look at requests that are old more often than every half a minute. It resets their time as long as their
/// process lives. Of a process that was killed while all entries of a queue were under way it notices the end so alone.
pub(crate) fn look_early(device: &Path) -> io::Result<()> {
    const TIMEOUT_MS: &str = "3000";
    std::fs::write(place_of(device).join("queue/io_timeout"), TIMEOUT_MS)
}

/// Takes the disk away, for a process that does not serve it: what programs ask for from now on fails.
pub(crate) fn stop(device: &Path) -> io::Result<()> {
    let index = Index::of(device).ok_or(io::ErrorKind::InvalidInput)?;
    Control::open()?.stop(index)
}
