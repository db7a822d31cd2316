//! A block device of the host's own nbd driver, `/dev/nbdN`, whose connections this process serves.
//!
//! Source: `include/uapi/linux/nbd-netlink.h`. Only root has such devices.
//!
//! A device outlives the process that serves it: its requests wait for another one for ten minutes. The array's next
//! process knows it by the text that the driver keeps for it, and gives it new connections. The driver then sends again
//! what was not answered, within half a minute. What the dead process had under way of these requests is over by then:
//! the kernel keeps that process' locks on the members until its last I/O there has ended, and no array starts before
//! it has them. What it had sent over a network or a path, and nobody had answered, is in the records of late writes,
//! which are made before the first write, and which the start of a member reads.
//!
//! A process that serves a device must never wait for that device: when it is killed it would wait for its own answer.
//! So it never opens it. Who opens it may read from it (a look for partitions), and who closes it last writes to it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::{self, available_parallelism};
use std::time::Duration;

use crate::host_device::{HostDevice, is_mounted_anywhere, place_of};
use crate::making::{Held, Making};
use crate::nbd::pairs::{ConnectionNumber, PairServer};
use crate::netlink::{Attributes, Family};

/// Names and numbers of the driver's family.
mod driver {
    pub(super) const FAMILY: &str = "nbd";
    pub(super) const VERSION: u8 = 1;

    /// `NBD_CMD_*`.
    pub(super) mod command {
        pub(crate) const CONNECT: u8 = 1;
        pub(crate) const DISCONNECT: u8 = 2;
        pub(crate) const RECONFIGURE: u8 = 3;
    }

    /// `NBD_ATTR_*`.
    pub(super) mod attribute {
        /// N of `/dev/nbdN`: 4 bytes.
        pub(crate) const INDEX: u16 = 1;
        /// 8 bytes, as all that follow but for the last three.
        pub(crate) const SIZE_BYTES: u16 = 2;
        pub(crate) const BLOCK_SIZE_BYTES: u16 = 3;
        /// Seconds.
        pub(crate) const TIMEOUT: u16 = 4;
        /// The transmission flags of `doc/proto.md`.
        pub(crate) const SERVER_FLAGS: u16 = 5;
        /// One attribute [`SOCKET`] for each connection.
        pub(crate) const SOCKETS: u16 = 7;
        /// Seconds.
        pub(crate) const DEAD_CONN_TIMEOUT: u16 = 8;
        /// Text.
        pub(crate) const BACKEND_IDENTIFIER: u16 = 10;
        /// `NBD_SOCK_ITEM`: holds [`DESCRIPTOR`].
        pub(crate) const SOCKET: u16 = 1;
        /// `NBD_SOCK_FD`: 4 bytes.
        pub(crate) const DESCRIPTOR: u16 = 1;
    }
}

/// How long requests wait for another process when theirs is gone, in seconds. After that they fail.
const DEAD_CONNECTION_TIMEOUT_S: u64 = 600;

/// How often the lock of a device is asked for that may only be looked at, and after what time again.
const LOOKS: usize = 50;
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What the text begins with that the driver keeps for a device of ours.
const OURS: &str = "mdspace ";

/// The text by which a device is known for that of one array or multipath device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Identity(String);

/// N of `/dev/nbdN`.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Index(pub u32);

/// A device that this process serves. It stays when this is dropped: [`disconnect`] takes it away.
#[derive(Debug)]
pub struct NbdDevice {
    index: Index,
    path: PathBuf,
    number: u64,
    identity: Identity,
    connections: usize,
    _lock: ServedLock,
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
    #[error("only root has devices of the nbd driver")]
    NotRoot,
    /// Another process attaches one.
    #[error("another program holds the lock of {0}: see `lslocks`, then try again")]
    Held(PathBuf),
    /// A crash left one that is not what it would be now.
    #[error(
        "{0} was left by a crash, is in use, and has another size or another right to write: unmount it first"
    )]
    Differs(PathBuf),
    /// Larger than a page of this host's memory.
    #[error(
        "the nbd driver of this kernel takes no logical blocks of {0} bytes: serve it with loop, or over NBD"
    )]
    Block(u32),
    /// The system refused.
    #[error("the nbd driver gives no device: {0}")]
    System(#[from] io::Error),
}

impl Identity {
    /// Of an array, by its UUID in md's form.
    pub fn of_array(uuid: &str) -> Self {
        Self(format!("{OURS}array {uuid}"))
    }

    /// Of a multipath device that stands alone, by its name.
    pub fn of_multipath(name: &str) -> Self {
        Self(format!("{OURS}multipath {name}"))
    }
}

impl Index {
    /// Of a device's path.
    pub fn of(device: &Path) -> Option<Self> {
        device.file_name()?.to_str()?.strip_prefix("nbd")?.parse().ok().map(Self)
    }

    /// Of the path of a device or of a partition of one.
    fn of_disk(device: &Path) -> Option<Self> {
        let name = device.file_name()?.to_str()?;
        let disk = name.rsplit_once('p').map_or(name, |(disk, _)| disk);
        Self::of(Path::new(name)).or_else(|| Self::of(Path::new(disk)))
    }

    fn path(self) -> PathBuf {
        PathBuf::from(format!("/dev/nbd{}", self.0))
    }

    /// The text that the driver keeps for it; none where it is no device of a process.
    fn identity(self) -> Option<Identity> {
        let text = fs::read_to_string(place_of(&self.path()).join("backend")).ok()?;
        Some(Identity(text.trim_end_matches('\n').to_owned()))
    }

    fn number(self) -> io::Result<u64> {
        let text = fs::read_to_string(place_of(&self.path()).join("dev"))?;
        let number = text.trim().split_once(':').and_then(|(major, minor)| {
            Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
        });
        number.ok_or_else(|| io::Error::other(format!("{} has no number", self.path().display())))
    }

    fn system_value(self, name: &str) -> Option<u64> {
        fs::read_to_string(place_of(&self.path()).join(name)).ok()?.trim().parse().ok()
    }
}

/// Whether the driver is there and would be asked by this user. It is not loaded for that.
pub fn is_loaded() -> Result<(), NbdDeviceError> {
    match Path::new("/sys/module/nbd").exists() {
        false => Err(NbdDeviceError::NoDriver),
        true if !rustix::process::geteuid().is_root() => Err(NbdDeviceError::NotRoot),
        true => Ok(()),
    }
}

/// The same, and has the kernel load it.
pub fn load() -> Result<(), NbdDeviceError> {
    if !rustix::process::geteuid().is_root() {
        return Err(NbdDeviceError::NotRoot);
    }
    family().map(drop)
}

fn family() -> Result<Family, NbdDeviceError> {
    Family::find(driver::FAMILY, driver::VERSION).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => NbdDeviceError::NoDriver,
        _ => NbdDeviceError::Ask(error),
    })
}

impl NbdDevice {
    /// Gives the array's device connections to `server`: that which a crash left, or a new one. `folder` has the locks of
    /// all processes that serve devices. True: there was one.
    pub fn attach(
        identity: Identity,
        server: &PairServer,
        folder: &Path,
    ) -> Result<(Self, bool), NbdDeviceError> {
        let family = family()?;
        let _making =
            Making::begin(&folder.join("lock")).map_err(|Held(at)| NbdDeviceError::Held(at))?;
        for (index, known) in devices() {
            let looks = if known == identity { LOOKS } else { 1 };
            let Some(lock) = ServedLock::take_within(looks, index, folder)? else { continue };
            if known == identity {
                match Self::take_over(&family, index, &identity, server, lock) {
                    Ok(device) => return Ok((device, true)),
                    Err(NbdDeviceError::System(error)) => {
                        tracing::warn!(%error, "{} was left by a crash, and is of no more use", index.path().display());
                    }
                    Err(error) => return Err(error),
                }
            }
            give_up(&family, index, &known);
        }
        Ok((Self::new(&family, identity, server, folder)?, false))
    }

    fn new(
        family: &Family,
        identity: Identity,
        server: &PairServer,
        folder: &Path,
    ) -> Result<Self, NbdDeviceError> {
        // The driver has no more queues than the host has CPUs.
        let cpus = available_parallelism().map_or(1, usize::from);
        let connections = server.lane_count().min(cpus);
        let sockets = connect_all(server, connections)?;
        let export = server.export();
        let attributes = waiting(Attributes::default())
            .u64(driver::attribute::SIZE_BYTES, export.size_bytes)
            .u64(driver::attribute::BLOCK_SIZE_BYTES, export.block_sizes.minimum().into())
            .u64(driver::attribute::SERVER_FLAGS, server.flags().into())
            .text(driver::attribute::BACKEND_IDENTIFIER, &identity.0);
        let told = family.ask(driver::command::CONNECT, &with_sockets(attributes, &sockets));
        let told = told.map_err(|error| refused(error, export.block_sizes.minimum()))?;
        let index = told.find(driver::attribute::INDEX);
        let index = index.and_then(|index| Some(u32::from_ne_bytes(index.try_into().ok()?)));
        let index = Index(index.ok_or_else(|| io::Error::other("it does not say which"))?);
        let lock = ServedLock::take(index, folder).and_then(|lock| {
            lock.ok_or_else(|| io::Error::other("another process has the lock of the device"))
        });
        let made = lock.and_then(|lock| Self::served(index, identity, connections, lock));
        made.map_err(|error| {
            let _ = disconnect(index);
            error.into()
        })
    }

    /// A device that was left.
    fn take_over(
        family: &Family,
        index: Index,
        identity: &Identity,
        server: &PairServer,
        lock: ServedLock,
    ) -> Result<Self, NbdDeviceError> {
        let export = server.export();
        let is_it = index.system_value("size") == Some(export.size_bytes / 512)
            && index.system_value("ro") == Some(export.read_only.into());
        if !is_it && is_used(index) {
            return Err(NbdDeviceError::Differs(index.path()));
        }
        if !is_it {
            return Err(io::Error::other("it has another size, or another right to write").into());
        }
        // It has as many connections as it had; the driver has a queue for each.
        let queues = fs::read_dir(place_of(&index.path()).join("mq")).map_or(1, Iterator::count);
        let device = Self::served(index, identity.clone(), queues.max(1), lock)?;
        let sockets = connect_all(server, device.connections)?;
        give(family, index, identity, &sockets)?;
        Ok(device)
    }

    fn served(
        index: Index,
        identity: Identity,
        connections: usize,
        lock: ServedLock,
    ) -> io::Result<Self> {
        let (path, number) = (index.path(), index.number()?);
        Ok(Self { index, path, number, identity, connections, _lock: lock })
    }

    /// Its connections that the driver has cut off.
    pub fn cut_off(&self, server: &PairServer) -> Vec<ConnectionNumber> {
        server.cut_off(self.connections)
    }

    /// Gives it new connections in place of these.
    pub fn reconnect(
        &self,
        server: &PairServer,
        cut_off: &[ConnectionNumber],
    ) -> Result<(), NbdDeviceError> {
        // What is written to make room in memory may wait for this very thread: none of its own allocations may wait
        // for that in turn.
        let _ = rustix::process::configure_io_flusher_behavior(true);
        let family = family()?;
        let sockets = cut_off.iter().map(|number| server.connect(*number));
        let sockets = sockets.collect::<io::Result<Vec<_>>>()?;
        Ok(give(&family, self.index, &self.identity, &sockets)?)
    }

    /// N of `/dev/nbdN`.
    pub fn index(&self) -> Index {
        self.index
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
        self.index.identity().as_ref() != Some(&self.identity)
    }
}

/// Has the driver end a device: what is under way there fails, and so does what programs that have it open ask for.
/// Its number is free when they have closed it.
pub fn disconnect(index: Index) -> Result<(), NbdDeviceError> {
    let attributes = Attributes::default().u32(driver::attribute::INDEX, index.0);
    family()?.ask(driver::command::DISCONNECT, &attributes)?;
    Ok(())
}

/// Whether this is a device of ours, or a partition of one, that no process serves: who opens it waits for its array.
pub fn is_left(device: &Path, folder: &Path) -> bool {
    Index::of_disk(device).is_some_and(|index| {
        let is_ours = index.identity().is_some_and(|identity| identity.0.starts_with(OURS));
        is_ours && !is_served(&index.path(), folder)
    })
}

/// Whether a process serves this device of ours.
pub fn is_served(device: &Path, folder: &Path) -> bool {
    let Some(index) = Index::of(device) else { return false };
    let is_ours = index.identity().is_some_and(|identity| identity.0.starts_with(OURS));
    is_ours && matches!(ServedLock::take(index, folder), Ok(None))
}

/// Devices of ours, by the driver's text.
fn devices() -> Vec<(Index, Identity)> {
    let all = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let indices = all.filter_map(|entry| Index::of(Path::new(&entry.file_name())));
    let known = indices.filter_map(|index| Some((index, index.identity()?)));
    let mut ours: Vec<_> = known.filter(|(_, identity)| identity.0.starts_with(OURS)).collect();
    ours.sort_by_key(|(index, _)| *index);
    ours
}

/// Ends what a crash left of an array that is served in another way now; gives the devices that are in use, and stay.
pub fn release_left(identity: &Identity, folder: &Path) -> Vec<PathBuf> {
    let left = devices().into_iter().filter(|(_, known)| known == identity);
    let Ok(family) = family() else { return Vec::new() };
    let is_left = |index| matches!(ServedLock::take(index, folder), Ok(Some(_)));
    let left: Vec<Index> = left.map(|(index, _)| index).filter(|index| is_left(*index)).collect();
    left.iter().for_each(|index| give_up(&family, *index, identity));
    left.into_iter()
        .filter(|index| index.identity().as_ref() == Some(identity))
        .map(Index::path)
        .collect()
}

/// Gives a device connections. The driver takes each in place of one that is dead, and closes those that it has no place
/// for.
fn give(family: &Family, index: Index, identity: &Identity, sockets: &[OwnedFd]) -> io::Result<()> {
    let attributes = waiting(Attributes::default())
        .u32(driver::attribute::INDEX, index.0)
        .text(driver::attribute::BACKEND_IDENTIFIER, &identity.0);
    family.ask(driver::command::RECONFIGURE, &with_sockets(attributes, sockets)).map(drop)
}

/// Whether all connections of a device are alive. One of another container shows nothing else: neither its process nor
/// the lock. A request that the driver sends here meanwhile it sends again elsewhere.
fn is_alive(family: &Family, index: Index, identity: &Identity) -> io::Result<bool> {
    let (ours, theirs) = UnixStream::pair()?;
    let theirs = [OwnedFd::from(theirs)];
    give(family, index, identity, &theirs)?;
    drop(theirs);
    // It has an end where the driver did not take the other one.
    ours.set_nonblocking(true)?;
    Ok((&ours).read(&mut [0]).is_ok_and(|bytes| bytes == 0))
}

/// Ends a device that a crash left, unless it is in use: its array may come back.
fn give_up(family: &Family, index: Index, identity: &Identity) {
    let device = index.path();
    let device = device.display();
    if is_used(index) {
        return tracing::warn!(
            "{device} was left by a crash, and is in use: start its array, or unmount it"
        );
    }
    if is_alive(family, index, identity).unwrap_or(false) {
        return tracing::warn!("{device} is served by a process that is not seen here");
    }
    let attributes = Attributes::default().u32(driver::attribute::INDEX, index.0);
    match family.ask(driver::command::DISCONNECT, &attributes) {
        Ok(_) => tracing::warn!("{device} was left by a crash, and is disconnected"),
        Err(error) => tracing::warn!(%error, "{device} was left by a crash, and stays"),
    }
}

/// Whether something uses a device that was left, as far as that shows without opening it: that might wait for it.
fn is_used(index: Index) -> bool {
    let Ok(number) = index.number() else { return true };
    let left = Left { path: index.path(), number };
    !left.users(None).is_empty() || is_mounted_anywhere(number)
}

/// A device that no process serves.
struct Left {
    path: PathBuf,
    number: u64,
}

impl HostDevice for Left {
    fn path(&self) -> &Path {
        &self.path
    }

    fn number(&self) -> u64 {
        self.number
    }

    fn is_detached(&self) -> bool {
        false
    }
}

/// Why the driver gives no device.
fn refused(error: io::Error, block_bytes: u32) -> NbdDeviceError {
    let is_invalid = error.kind() == io::ErrorKind::InvalidInput;
    match is_invalid && block_bytes as usize > rustix::param::page_size() {
        true => NbdDeviceError::Block(block_bytes),
        false => error.into(),
    }
}

/// Each request takes as long as it takes, and waits for another process when this one is gone.
fn waiting(attributes: Attributes) -> Attributes {
    attributes
        .u64(driver::attribute::TIMEOUT, 0)
        .u64(driver::attribute::DEAD_CONN_TIMEOUT, DEAD_CONNECTION_TIMEOUT_S)
}

fn with_sockets(attributes: Attributes, sockets: &[OwnedFd]) -> Attributes {
    let list = sockets.iter().fold(Attributes::default(), |list, socket| {
        let descriptor = socket.as_raw_fd().cast_unsigned();
        let one = Attributes::default().u32(driver::attribute::DESCRIPTOR, descriptor);
        list.nest(driver::attribute::SOCKET, &one)
    });
    attributes.nest(driver::attribute::SOCKETS, &list)
}

fn connect_all(server: &PairServer, count: usize) -> io::Result<Vec<OwnedFd>> {
    (0..count).map(|number| server.connect(ConnectionNumber(number))).collect()
}

/// Says that a process serves a device, as long as the process has it.
#[derive(Debug)]
struct ServedLock(#[expect(dead_code, reason = "its descriptor is the lock")] File);

impl ServedLock {
    /// The same, with patience for those who only look whether a process has it.
    fn take_within(looks: usize, index: Index, folder: &Path) -> io::Result<Option<Self>> {
        for _ in 1..looks {
            if let Some(lock) = Self::take(index, folder)? {
                return Ok(Some(lock));
            }
            thread::sleep(LOOK_EVERY);
        }
        Self::take(index, folder)
    }

    /// None: a process has it. The file stays: another process may be about to lock it.
    fn take(index: Index, folder: &Path) -> io::Result<Option<Self>> {
        let path = folder.join(format!(".nbd{}.lock", index.0));
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
