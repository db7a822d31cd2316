//! The other end, small, for tests: a front end with a driver of its own, without a virtual machine.
//!
//! It writes messages and rings by hand, and shares no code with the server: what one of them takes for the protocol
//! the other one must take for it too. Each ring has [`SLOTS`] places for requests, of three descriptors and
//! [`DATA_BYTES`] of data.

use std::fs::File;
use std::io::{self, IoSlice, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};
use rustix::fs::MemfdFlags;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};

/// Requests at a time of one ring.
pub const SLOTS: u16 = 80;
/// Bytes of data of a request.
pub const DATA_BYTES: usize = 8 << 10;
/// Descriptors of a ring.
pub const RING_SIZE: u16 = 256;

/// Where memory begins in the guest, and in the front end's process, which does not look there.
const GUEST_AT: u64 = 1 << 20;
const USER_AT: u64 = 0x7000_0000_0000;

/// Each ring's part of the memory, and what stands where in it; in bytes.
const PART_BYTES: u64 = 1 << 20;
const AVAILABLE_AT: u64 = 0x4000;
const USED_AT: u64 = 0x8000;
const HEADERS_AT: u64 = 0xc000;
const HEADER_BYTES: u64 = 64;
const STATUS_AT: u64 = 32;
const DATA_AT: u64 = 0x10000;

/// Numbers of messages.
#[allow(missing_docs, reason = "they are the protocol's own names")]
pub mod message {
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const GET_QUEUE_NUM: u32 = 17;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const GET_CONFIG: u32 = 24;
    pub const GET_INFLIGHT_FD: u32 = 31;
    pub const SET_INFLIGHT_FD: u32 = 32;
    pub const ADD_MEM_REG: u32 = 37;
}

/// Flags of a message: version 1, and whether an answer is wanted.
const VERSION: u32 = 1;
const NEED_REPLY: u32 = 1 << 3;

/// Protocol features: several rings, answers, configuration, a record of what is under way, single regions.
const PROTOCOL_FEATURES: u64 = 1 | 1 << 3 | 1 << 9 | 1 << 12 | 1 << 15;

/// A descriptor goes on in another one.
pub const NEXT: u16 = 1;
/// A descriptor is for the device to write to.
pub const WRITE: u16 = 2;
/// A descriptor names a table of others.
pub const INDIRECT: u16 = 4;

/// A front end and its guest.
#[derive(Debug)]
pub struct FrontEnd {
    socket: UnixStream,
    guest: Guest,
}

/// What outlives a connection: memory, rings, and the record of what is under way.
#[derive(Debug)]
pub struct Guest {
    file: File,
    memory: GuestMemoryMmap,
    rings: Vec<Ring>,
    record: Option<(Vec<u8>, File)>,
}

#[derive(Debug)]
struct Ring {
    kick: OwnedFd,
    call: OwnedFd,
    available: u16,
    used: u16,
}

/// What a request is to do. Addresses are sectors of 512 bytes.
#[derive(Clone, Copy, Debug)]
pub enum Ask<'a> {
    /// Reads so many bytes.
    Read(u64, usize),
    /// Writes bytes.
    Write(u64, &'a [u8]),
    /// Makes durable what was answered.
    Flush,
    /// Reads the name.
    Identify,
    /// Discards so many sectors.
    Discard(u64, u32),
    /// Zeroes so many sectors.
    Zero(u64, u32),
    /// Something else.
    Other(u32),
}

impl Guest {
    /// A guest with so many rings.
    pub fn new(rings: u16) -> io::Result<Guest> {
        let bytes = u64::from(rings) * PART_BYTES;
        let file = File::from(rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC)?);
        file.set_len(bytes)?;
        let offset = FileOffset::new(file.try_clone()?, 0);
        let range = (GuestAddress(GUEST_AT), bytes as usize, Some(offset));
        let memory = GuestMemoryMmap::from_ranges_with_files([range]).map_err(io::Error::other)?;
        let ring = || {
            let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
            Ok(Ring { kick: event()?, call: event()?, available: 0, used: 0 })
        };
        let rings = (0..rings).map(|_| ring()).collect::<io::Result<_>>()?;
        Ok(Guest { file, memory, rings, record: None })
    }

    /// The file behind its memory.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The file of the record of what is under way, if there is one.
    pub fn record(&self) -> Option<&File> {
        self.record.as_ref().map(|(_, file)| file)
    }

    /// Where a ring's part of the memory begins in the guest.
    pub fn part(&self, ring: usize) -> u64 {
        GUEST_AT + ring as u64 * PART_BYTES
    }

    /// Writes to its memory.
    pub fn put(&self, address: u64, bytes: &[u8]) {
        self.memory.write_slice(bytes, GuestAddress(address)).expect("in the memory");
    }

    fn get<const N: usize>(&self, address: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.memory.read_slice(&mut bytes, GuestAddress(address)).expect("in the memory");
        bytes
    }

    /// Writes a descriptor.
    pub fn describe(
        &self,
        ring: usize,
        index: u16,
        address: u64,
        bytes: u32,
        flags: u16,
        next: u16,
    ) {
        let at = self.part(ring) + 16 * u64::from(index);
        self.put(at, &descriptor(address, bytes, flags, next));
    }

    /// Makes the chain at `head` available.
    pub fn offer(&mut self, ring: usize, head: u16) {
        let at = self.part(ring) + AVAILABLE_AT;
        let own = &mut self.rings[ring];
        let entry = at + 4 + 2 * u64::from(own.available % RING_SIZE);
        own.available = own.available.wrapping_add(1);
        let available = own.available;
        self.put(entry, &head.to_le_bytes());
        fence(Ordering::SeqCst);
        self.put(at + 2, &available.to_le_bytes());
        fence(Ordering::SeqCst);
    }

    /// Says anything of how much is available.
    pub fn claim_available(&self, ring: usize, index: u16) {
        self.put(self.part(ring) + AVAILABLE_AT + 2, &index.to_le_bytes());
    }

    /// Lays a request into a slot, and makes it available.
    pub fn ask(&mut self, ring: usize, slot: u16, ask: Ask<'_>) {
        let (kind, sector) = match ask {
            Ask::Read(sector, _) => (0, sector),
            Ask::Write(sector, _) => (1, sector),
            Ask::Flush => (4, 0),
            Ask::Identify => (8, 0),
            Ask::Discard(..) => (11, 0),
            Ask::Zero(..) => (13, 0),
            Ask::Other(kind) => (kind, 0),
        };
        let (header, data) = (self.header_at(ring, slot), self.data_at(ring, slot));
        let status = header + STATUS_AT;
        self.put(header, &u32::to_le_bytes(kind));
        self.put(header + 4, &[0; 4]);
        self.put(header + 8, &u64::to_le_bytes(sector));
        self.put(status, &[0xff]);
        let range = |sector: u64, sectors: u32| {
            [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &[0; 4]].concat()
        };
        let (bytes, flags) = match ask {
            Ask::Read(_, bytes) => (bytes, WRITE),
            Ask::Identify => (20, WRITE),
            Ask::Write(_, bytes) => {
                self.put(data, bytes);
                (bytes.len(), 0)
            }
            Ask::Discard(sector, sectors) | Ask::Zero(sector, sectors) => {
                self.put(data, &range(sector, sectors));
                (16, 0)
            }
            Ask::Flush | Ask::Other(_) => (0, 0),
        };
        let head = slot * 3;
        if bytes == 0 {
            self.describe(ring, head, header, 16, NEXT, head + 2);
        } else {
            self.describe(ring, head, header, 16, NEXT, head + 1);
            self.describe(ring, head + 1, data, bytes as u32, flags | NEXT, head + 2);
        }
        self.describe(ring, head + 2, status, 1, WRITE, 0);
        self.offer(ring, head);
    }

    /// Wakes the disk.
    pub fn kick(&self, ring: usize) {
        rustix::io::write(&self.rings[ring].kick, &1_u64.to_ne_bytes()).expect("it has room");
    }

    /// The next answer: its slot and its status. None: there is none yet.
    pub fn answer(&mut self, ring: usize) -> Option<(u16, u8)> {
        let at = self.part(ring) + USED_AT;
        let index = u16::from_le_bytes(self.get(at + 2));
        fence(Ordering::SeqCst);
        let own = &mut self.rings[ring];
        if index == own.used {
            return None;
        }
        let entry = at + 4 + 8 * u64::from(own.used % RING_SIZE);
        own.used = own.used.wrapping_add(1);
        let slot = u32::from_le_bytes(self.get(entry)) as u16 / 3;
        let [status] = self.get(self.header_at(ring, slot) + STATUS_AT);
        Some((slot, status))
    }

    /// Waits for the next answer.
    pub fn wait(&mut self, ring: usize, patience: Duration) -> Option<(u16, u8)> {
        let until = Instant::now() + patience;
        loop {
            // The next answer is to be signalled (`used_event`). Before the look: one that comes in between is.
            let used_event = self.part(ring) + AVAILABLE_AT + 4 + 2 * u64::from(RING_SIZE);
            self.put(used_event, &self.rings[ring].used.to_le_bytes());
            fence(Ordering::SeqCst);
            if let Some(answer) = self.answer(ring) {
                return Some(answer);
            }
            let left = until.checked_duration_since(Instant::now())?;
            self.is_woken(ring, left);
        }
    }

    /// Waits for a signal of the disk, and takes it back. False: none came.
    pub fn is_woken(&self, ring: usize, patience: Duration) -> bool {
        let patience =
            Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() };
        let call = &self.rings[ring].call;
        let _ = rustix::event::poll(&mut [PollFd::new(call, PollFlags::IN)], Some(&patience));
        rustix::io::read(call, &mut [0; 8]).is_ok()
    }

    /// The data of a slot.
    pub fn data(&self, ring: usize, slot: u16, bytes: usize) -> Vec<u8> {
        let mut data = vec![0; bytes];
        let at = GuestAddress(self.data_at(ring, slot));
        self.memory.read_slice(&mut data, at).expect("in the memory");
        data
    }

    /// Where a slot's header stands in the guest.
    pub fn header_at(&self, ring: usize, slot: u16) -> u64 {
        self.part(ring) + HEADERS_AT + HEADER_BYTES * u64::from(slot)
    }

    /// Where a slot's data stand in the guest.
    pub fn data_at(&self, ring: usize, slot: u16) -> u64 {
        self.part(ring) + DATA_AT + DATA_BYTES as u64 * u64::from(slot)
    }
}

/// A descriptor as it stands in a table.
pub fn descriptor(address: u64, bytes: u32, flags: u16, next: u16) -> [u8; 16] {
    let mut entry = [0; 16];
    entry[..8].copy_from_slice(&address.to_le_bytes());
    entry[8..12].copy_from_slice(&bytes.to_le_bytes());
    entry[12..14].copy_from_slice(&flags.to_le_bytes());
    entry[14..].copy_from_slice(&next.to_le_bytes());
    entry
}

impl FrontEnd {
    /// Connects, and does nothing else.
    pub fn connect(path: &Path, guest: Guest) -> io::Result<FrontEnd> {
        Ok(FrontEnd { socket: UnixStream::connect(path)?, guest })
    }

    /// Connects, and starts all rings where the guest stands.
    pub fn start(path: &Path, guest: Guest) -> io::Result<FrontEnd> {
        let mut front = FrontEnd::connect(path, guest)?;
        front.agree()?;
        front.share()?;
        front.start_rings()?;
        Ok(front)
    }

    /// The guest.
    pub fn guest(&mut self) -> &mut Guest {
        &mut self.guest
    }

    /// Hangs up.
    pub fn leave(self) -> Guest {
        self.guest
    }

    /// Agrees to all features that are offered.
    pub fn agree(&mut self) -> io::Result<()> {
        let features = self.number(message::GET_FEATURES)?;
        self.order(message::SET_OWNER, &[], &[])?;
        self.number(message::GET_PROTOCOL_FEATURES)?;
        self.order(message::SET_PROTOCOL_FEATURES, &PROTOCOL_FEATURES.to_le_bytes(), &[])?;
        self.acknowledged(message::SET_FEATURES, &features.to_le_bytes(), &[])
    }

    /// Shares the memory, and the record of what is under way.
    pub fn share(&mut self) -> io::Result<()> {
        let rings = self.guest.rings.len() as u16;
        if self.guest.record.is_none() {
            let shape = record_shape(0, rings);
            self.send(message::GET_INFLIGHT_FD, 0, &shape, &[])?;
            let (body, file) = self.receive()?;
            let file = file.ok_or(io::ErrorKind::InvalidData)?;
            self.guest.record = Some((body, file.into()));
        }
        let (body, file) = self.guest.record.as_ref().expect("as just made");
        let (body, file) = (body.clone(), file.try_clone()?);
        self.acknowledged(message::SET_INFLIGHT_FD, &body, &[file.as_fd()])?;
        let file = self.guest.file.try_clone()?;
        self.acknowledged(message::SET_MEM_TABLE, &memory_table(rings), &[file.as_fd()])
    }

    /// Starts all rings.
    pub fn start_rings(&mut self) -> io::Result<()> {
        self.start_disabled_rings()?;
        for ring in 0..self.guest.rings.len() as u32 {
            self.acknowledged(message::SET_VRING_ENABLE, &state(ring, 1), &[])?;
        }
        Ok(())
    }

    /// Starts all rings, which take nothing yet.
    pub fn start_disabled_rings(&mut self) -> io::Result<()> {
        for ring in 0..self.guest.rings.len() {
            let index = ring as u32;
            let used = u16::from_le_bytes(self.guest.get(self.guest.part(ring) + USED_AT + 2));
            let part = USER_AT + ring as u64 * PART_BYTES;
            let mut addresses = [index.to_le_bytes(), [0; 4]].concat();
            for address in [part, part + USED_AT, part + AVAILABLE_AT, 0] {
                addresses.extend_from_slice(&address.to_le_bytes());
            }
            let Ring { kick, call, .. } = &self.guest.rings[ring];
            let (kick, call) = (kick.try_clone()?, call.try_clone()?);
            let number = u64::from(index).to_le_bytes();
            self.acknowledged(message::SET_VRING_NUM, &state(index, RING_SIZE.into()), &[])?;
            self.acknowledged(message::SET_VRING_BASE, &state(index, used.into()), &[])?;
            self.acknowledged(message::SET_VRING_ADDR, &addresses, &[])?;
            self.acknowledged(message::SET_VRING_CALL, &number, &[call.as_fd()])?;
            self.acknowledged(message::SET_VRING_KICK, &number, &[kick.as_fd()])?;
        }
        Ok(())
    }

    /// Reads a part of the configuration. Empty: it was refused.
    pub fn config(&mut self, offset: u32, bytes: u32) -> io::Result<Vec<u8>> {
        let mut body = [offset, bytes, 0].map(u32::to_le_bytes).concat();
        body.resize(body.len() + bytes as usize, 0);
        self.send(message::GET_CONFIG, 0, &body, &[])?;
        Ok(self.receive()?.0.split_off(12))
    }

    /// Asks for a number.
    pub fn number(&mut self, code: u32) -> io::Result<u64> {
        self.send(code, 0, &[], &[])?;
        let body = self.receive()?.0;
        let bytes = body.try_into().map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Stops a ring; gives where it stood.
    pub fn stop_ring(&mut self, ring: u32) -> io::Result<u32> {
        self.send(message::GET_VRING_BASE, 0, &state(ring, 0), &[])?;
        let body = self.receive()?.0;
        let number = body.get(4..8).and_then(|bytes| bytes.try_into().ok());
        Ok(u32::from_le_bytes(number.ok_or(io::ErrorKind::InvalidData)?))
    }

    /// Sends an order without an answer.
    pub fn order(&mut self, code: u32, body: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send(code, 0, body, files)
    }

    /// Sends an order, and waits until it is done. An error: it was refused, or the connection has ended.
    pub fn acknowledged(
        &mut self,
        code: u32,
        body: &[u8],
        files: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        self.send(code, NEED_REPLY, body, files)?;
        match self.receive()?.0[..] {
            [0, ..] => Ok(()),
            _ => Err(io::Error::other("the order was refused")),
        }
    }

    /// Sends any bytes.
    pub fn send_raw(&mut self, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [std::mem::MaybeUninit::uninit(); 256];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let flags = SendFlags::NOSIGNAL;
        let sent =
            rustix::net::sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut ancillary, flags)?;
        if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    fn send(
        &mut self,
        code: u32,
        flags: u32,
        body: &[u8],
        files: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        self.send_raw(&framed(code, VERSION | flags, body), files)
    }

    fn receive(&mut self) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
        let mut header = [0; 12];
        let mut space = [std::mem::MaybeUninit::uninit(); 64];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut into = [io::IoSliceMut::new(&mut header)];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
        let received = rustix::net::recvmsg(&self.socket, &mut into, &mut ancillary, flags)?;
        if received.bytes < header.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut file = None;
        for received in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(mut files) = received {
                file = files.next().or(file);
            }
        }
        let size = u32::from_le_bytes(std::array::from_fn(|at| header[8 + at]));
        let mut body = vec![0; size as usize];
        self.socket.read_exact(&mut body)?;
        Ok((body, file))
    }

    /// Whether the server has hung up, or does so within `patience`.
    pub fn is_cut_off(&mut self, patience: Duration) -> bool {
        let waited = self.socket.set_read_timeout(Some(patience));
        waited.expect("a timeout can be set");
        loop {
            match self.socket.read(&mut [0; 64]) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() == io::ErrorKind::ConnectionReset,
            }
        }
    }
}

/// A message with its header: number, flags and length, four bytes each.
pub fn framed(code: u32, flags: u32, body: &[u8]) -> Vec<u8> {
    let mut message = [code, flags, body.len() as u32].map(u32::to_le_bytes).concat();
    message.extend_from_slice(body);
    message
}

/// A ring and a number.
pub fn state(ring: u32, number: u32) -> [u8; 8] {
    (u64::from(ring) | u64::from(number) << 32).to_le_bytes()
}

/// The table of a guest's one region.
pub fn memory_table(rings: u16) -> Vec<u8> {
    region_table(&[region(rings)])
}

/// A guest's one region.
pub fn region(rings: u16) -> [u64; 4] {
    [GUEST_AT, u64::from(rings) * PART_BYTES, USER_AT, 0]
}

/// A table of regions: guest address, bytes, address in the process, offset in the file.
pub fn region_table(regions: &[[u64; 4]]) -> Vec<u8> {
    let mut table = u64::to_le_bytes(regions.len() as u64).to_vec();
    regions.iter().flatten().for_each(|number| table.extend_from_slice(&number.to_le_bytes()));
    table
}

fn record_shape(bytes: u64, rings: u16) -> Vec<u8> {
    let mut shape = [bytes.to_le_bytes(), [0; 8]].concat();
    shape.extend_from_slice(&rings.to_le_bytes());
    shape.extend_from_slice(&RING_SIZE.to_le_bytes());
    // The protocol's structure is padded to 8 bytes.
    shape.resize(24, 0);
    shape
}
