//! What a client's messages ask for. It lives on the control thread: rings get orders from here, and are waited for.

use std::fs::File;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};

use vhost::VhostUserMemoryRegionBase;

use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig,
    VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Backend, Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};

use super::disk::{Disk, feature};
use super::event;
use super::memory::{Memory, REGIONS_MAX, Region, RegionPlace};
use super::record::{self, Records};
use super::ring::{Change, Client, Places, SIZE_MAX, Setup, Stop};

/// Rings of one client. How many a guest uses is said in its disk's configuration, or by whoever starts it.
pub(super) const RINGS_MAX: u16 = 64;

/// Regions of a client that are mapped at one time: those of its table, and others that requests still use.
const MAPPED_MAX: usize = 6 * REGIONS_MAX;

/// What a lane is to do with the rings of the client.
pub(super) enum Order {
    Start(Box<Setup>, Sender<()>),
    Change { index: usize, change: Change, done: Sender<()> },
    Stop { index: usize, stop: Stop, done: Sender<u16> },
}

/// Where orders go.
pub(super) trait Lanes: Send + Sync {
    /// Gives an order to the lane on which a ring lives. One that has ended drops it.
    fn order(&self, index: usize, order: Order);
}

/// One client's device.
pub(super) struct Device {
    disk: Arc<Disk>,
    client: Arc<dyn Client + Send + Sync>,
    lanes: Arc<dyn Lanes>,
    /// What the guest has agreed to.
    features: u64,
    /// The front end has agreed to answers.
    replies: bool,
    memory: Arc<Memory>,
    /// What it shares, or shared before.
    mapped: Vec<Weak<Region>>,
    records: Option<Arc<Records>>,
    rings: Vec<RingState>,
    /// The front end's ear for our messages, of which there are none. User-Mode Linux takes no disk that does not keep one.
    ear: Option<Backend>,
}

/// What is known of a ring.
#[derive(Default)]
struct RingState {
    size: u16,
    addresses: Option<Addresses>,
    next_available: u16,
    kick: Option<File>,
    call: Option<File>,
    is_enabled: bool,
    is_running: bool,
}

/// Where a ring is in the front end's process.
#[derive(Clone, Copy)]
struct Addresses {
    descriptors: u64,
    used: u64,
    available: u64,
}

impl Addresses {
    fn places(self, memory: &Memory) -> Option<Places> {
        Some(Places {
            descriptors: memory.guest_address(self.descriptors)?,
            used: memory.guest_address(self.used)?,
            available: memory.guest_address(self.available)?,
        })
    }
}

impl Device {
    pub(super) fn new(
        disk: Disk,
        client: Arc<dyn Client + Send + Sync>,
        lanes: Arc<dyn Lanes>,
    ) -> Device {
        Device {
            disk: Arc::new(disk),
            client,
            lanes,
            features: 0,
            replies: false,
            memory: Arc::default(),
            mapped: Vec::new(),
            records: None,
            rings: (0..RINGS_MAX).map(|_| RingState::default()).collect(),
            ear: None,
        }
    }

    /// The client is gone: waits until nothing that it asked for is under way, and nothing of its memory is used.
    pub(super) fn abandon(&mut self) {
        let running = self.rings.iter_mut().enumerate().filter(|(_, ring)| ring.is_running);
        let stop = |(index, ring): (usize, &mut RingState)| {
            ring.is_running = false;
            stop_ring(&*self.lanes, index, Stop::Abandon)
        };
        let stopped: Vec<Receiver<u16>> = running.map(stop).collect();
        for ring in stopped {
            // A lane that has ended has ended its rings.
            let _ = ring.recv();
        }
    }

    fn ring(&mut self, index: impl Into<u64>) -> Result<&mut RingState> {
        let index = usize::try_from(index.into()).map_err(|_| Error::InvalidParam)?;
        self.rings.get_mut(index).ok_or(Error::InvalidParam)
    }

    /// One that does not run.
    fn resting_ring(&mut self, index: u32) -> Result<&mut RingState> {
        let ring = self.ring(index)?;
        match ring.is_running {
            true => Err(Error::InvalidOperation("the ring runs")),
            false => Ok(ring),
        }
    }

    /// Starts a ring when all is known of it.
    fn start_if_ready(&mut self, index: usize) -> Result<()> {
        let ring = &mut self.rings[index];
        let Some(addresses) = ring.addresses.filter(|_| !ring.is_running && ring.size > 0) else {
            return Ok(());
        };
        let Some(places) = addresses.places(&self.memory) else { return Ok(()) };
        let Some(kick) = ring.kick.take() else { return Ok(()) };
        ring.is_running = true;
        let setup = Setup {
            index,
            memory: self.memory.clone(),
            places,
            size: ring.size,
            next_available: ring.next_available,
            features: self.features,
            kick,
            call: ring.call.take(),
            is_enabled: ring.is_enabled,
            records: self.records.clone(),
            disk: self.disk.clone(),
            client: self.client.clone(),
        };
        let (done, started) = channel();
        self.lanes.order(index, Order::Start(Box::new(setup), done));
        let _ = started.recv();
        Ok(())
    }

    /// Changes a ring that runs, and waits until its lane has done so.
    fn change(&self, index: usize, change: Change) {
        let (done, changed) = channel();
        self.lanes.order(index, Order::Change { index, change, done });
        let _ = changed.recv();
    }

    /// Whether orders are answered that want that.
    pub(super) fn replies(&self) -> bool {
        self.replies
    }

    /// The client shares these regions from now on.
    pub(super) fn use_regions(&mut self, regions: Vec<(RegionPlace, File)>) -> Result<()> {
        self.use_memory(Memory::new(regions).map_err(refused)?)
    }

    /// Requests that are under way keep the memory that they began with.
    fn use_memory(&mut self, memory: Memory) -> Result<()> {
        self.mapped.retain(|region| region.strong_count() > 0);
        self.mapped.extend(memory.regions_beside(&self.memory));
        if self.mapped.len() > MAPPED_MAX {
            return Err(Error::InvalidOperation("requests still use the memory of several tables"));
        }
        self.memory = Arc::new(memory);
        for index in 0..self.rings.len() {
            self.place(index)?;
            self.start_if_ready(index)?;
        }
        Ok(())
    }

    /// Tells a ring that runs where it is now.
    fn place(&self, index: usize) -> Result<()> {
        let ring = &self.rings[index];
        let Some(addresses) = ring.addresses.filter(|_| ring.is_running) else { return Ok(()) };
        let places = addresses.places(&self.memory).ok_or(Error::InvalidParam)?;
        self.change(index, Change::Memory(self.memory.clone(), places));
        Ok(())
    }
}

/// Orders the end of a ring. Gives who hears of it, and where the ring stood then.
fn stop_ring(lanes: &dyn Lanes, index: usize, stop: Stop) -> Receiver<u16> {
    let (done, stopped) = channel();
    lanes.order(index, Order::Stop { index, stop, done });
    stopped
}

/// The messages of vhost-user. An error is answered, where the client wants answers, and ends the connection.
impl VhostUserBackendReqHandlerMut for Device {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_device(&mut self) -> Result<()> {
        Err(not_offered())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(self.disk.features())
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !self.disk.known_features() != 0 {
            return Err(Error::FeatureMismatch);
        }
        self.features = features;
        if features & feature::PROTOCOL_FEATURES == 0 {
            self.rings.iter_mut().for_each(|ring| ring.is_enabled = true);
        }
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<VhostUserMemoryRegionBase>>> {
        let place = |region: &VhostUserMemoryRegion| RegionPlace {
            guest_address: region.guest_phys_addr,
            bytes: region.memory_size,
            user_address: region.user_addr,
            file_offset: region.mmap_offset,
        };
        self.use_regions(regions.iter().map(place).zip(files).collect()).map(|()| None)
    }

    fn set_vring_num(&mut self, index: u32, size: u32) -> Result<()> {
        let size = u16::try_from(size).map_err(|_| Error::InvalidParam)?;
        if !size.is_power_of_two() || size > SIZE_MAX {
            return Err(Error::InvalidParam);
        }
        self.resting_ring(index)?.size = size;
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptors: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        self.ring(index)?.addresses = Some(Addresses { descriptors, used, available });
        self.place(index as usize)?;
        self.start_if_ready(index as usize)
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let base = u16::try_from(base).map_err(|_| Error::InvalidParam)?;
        self.resting_ring(index)?.next_available = base;
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let ring = self.ring(index)?;
        ring.kick = None;
        // Where it starts again is said again: memory may be another by then.
        ring.addresses = None;
        if std::mem::take(&mut ring.is_running) {
            let stopped = stop_ring(&*self.lanes, index as usize, Stop::Drain);
            if let Ok(next_available) = stopped.recv() {
                self.rings[index as usize].next_available = next_available;
            }
        }
        let base = self.rings[index as usize].next_available;
        Ok(VhostUserVringState::new(index, base.into()))
    }

    fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let file = file.ok_or(Error::InvalidOperation("rings are not polled: give an eventfd"))?;
        let file = event::kick(file).map_err(Error::ReqHandlerError)?;
        let ring = self.resting_ring(index.into())?;
        ring.kick = Some(file);
        self.start_if_ready(index.into())
    }

    fn set_vring_call(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let file = file.map(event::call).transpose().map_err(Error::ReqHandlerError)?;
        let ring = self.ring(index)?;
        if ring.is_running {
            self.change(index.into(), Change::Call(file));
        } else {
            ring.call = file;
        }
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, _file: Option<File>) -> Result<()> {
        // Whatever is wrong with a ring ends the connection, which says more.
        self.ring(index).map(drop)
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(protocol_features())
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        let offered = protocol_features() | VhostUserProtocolFeatures::REPLY_ACK;
        match features & !offered.bits() {
            0 => {
                self.replies = features & VhostUserProtocolFeatures::REPLY_ACK.bits() != 0;
                Ok(())
            }
            _ => Err(Error::FeatureMismatch),
        }
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(RINGS_MAX.into())
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        let ring = self.ring(index)?;
        ring.is_enabled = enable;
        if ring.is_running {
            self.change(index as usize, Change::Enable(enable));
        }
        Ok(())
    }

    fn get_config(
        &mut self,
        offset: u32,
        bytes: u32,
        _flags: VhostUserConfigFlags,
    ) -> Result<Vec<u8>> {
        self.disk.config(offset, bytes).ok_or(Error::InvalidParam)
    }

    fn set_config(&mut self, _offset: u32, _bytes: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        // The one field that a guest may write is of a feature that is not offered.
        Err(not_offered())
    }

    fn set_backend_req_fd(&mut self, ear: Backend) {
        self.ear = Some(ear);
    }

    fn set_gpu_socket(&mut self, _socket: GpuBackend) -> Result<()> {
        Err(not_offered())
    }

    fn get_shared_object(&mut self, _object: VhostUserSharedMsg) -> Result<File> {
        Err(not_offered())
    }

    fn get_inflight_fd(&mut self, wanted: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        let (rings, size) = record_shape(wanted)?;
        let bytes = record::bytes_of(rings, size);
        let file = record::new_file(bytes).map_err(|error| Error::ReqHandlerError(error.into()))?;
        Ok((VhostUserInflight::new(bytes as u64, 0, rings, size), file))
    }

    fn set_inflight_fd(&mut self, kept: &VhostUserInflight, file: File) -> Result<()> {
        let (rings, size) = record_shape(kept)?;
        if kept.mmap_size < record::bytes_of(rings, size) as u64 {
            return Err(Error::InvalidParam);
        }
        let records = Records::map(file, kept.mmap_offset, rings, size).map_err(refused)?;
        self.records = Some(Arc::new(records));
        Ok(())
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(REGIONS_MAX as u64)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _postcopy: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        let memory = self.memory.with(place_of(region), file).map_err(refused)?;
        self.use_memory(memory).map(|()| None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        let memory = self.memory.without(place_of(region)).map_err(refused)?;
        self.use_memory(memory)
    }

    fn set_device_state_fd(
        &mut self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _file: File,
    ) -> Result<Option<File>> {
        Err(not_offered())
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(not_offered())
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(not_offered())
    }

    fn set_log_base(&mut self, _log: &VhostUserLog, _file: File) -> Result<()> {
        Err(not_offered())
    }
}

/// What is offered of the protocol; the crate adds `REPLY_ACK`.
fn protocol_features() -> VhostUserProtocolFeatures {
    VhostUserProtocolFeatures::MQ
        | VhostUserProtocolFeatures::CONFIG
        | VhostUserProtocolFeatures::BACKEND_REQ
        | VhostUserProtocolFeatures::INFLIGHT_SHMFD
        | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
}

fn record_shape(inflight: &VhostUserInflight) -> Result<(u16, u16)> {
    let (rings, size) = (inflight.num_queues, inflight.queue_size);
    let is_right = (1..=RINGS_MAX).contains(&rings) && (1..=SIZE_MAX).contains(&size);
    if is_right { Ok((rings, size)) } else { Err(Error::InvalidParam) }
}

fn place_of(region: &VhostUserSingleMemoryRegion) -> RegionPlace {
    RegionPlace {
        guest_address: region.guest_phys_addr,
        bytes: region.memory_size,
        user_address: region.user_addr,
        file_offset: region.mmap_offset,
    }
}

fn refused(why: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::ReqHandlerError(io::Error::other(why))
}

fn not_offered() -> Error {
    Error::InvalidOperation("it was not offered")
}
