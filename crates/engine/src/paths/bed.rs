//! A device of two paths, whose I/Os the test answers, on one lane.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mdspace_format::placement::BitmapRequest;
use mdspace_format::superblock::{MemberFlags, SetName, Superblock};
use mdspace_format::{Level, MetadataVersion, Uuid};

use super::owner::Health;
use super::policy::{Cache, Failback, Policy};
use super::tests::{device, device_of};
use super::{FenceId, Host, PathLane, Paths};
use crate::backend::{
    Backend, IoDone, IoError, IoErrorKind, IoOp, MemberId, MemberInfo, MemberIo, Patience,
    ReadInto, Submitted, Ticket, WriteFrom,
};
use crate::create::{self, Creation, NewDevice};
use crate::lane::{Lane, LaneId, Notify};
use crate::memory::Buffer;
use crate::time::Time;

/// The handle of the device itself; its paths have 0 and 1.
pub(super) const DEVICE: MemberId = MemberId { index: 9, generation: 0 };

#[derive(Default)]
pub(super) struct Wires {
    pub(super) device: OnceCell<Rc<PathLane>>,
    pub(super) now: Cell<Time>,
    pub(super) stood_still: Cell<Duration>,
    pub(super) ios: RefCell<Vec<(Ticket, MemberIo)>>,
    /// So many writes to come are refused at once.
    pub(super) refuses: Cell<u32>,
    /// What paths say to an I/O on the spot.
    pub(super) says_at_once: Cell<Option<Result<(), IoError>>>,
    /// Members that were read.
    pub(super) read: RefCell<Vec<MemberId>>,
    /// What they give.
    pub(super) gives: Cell<Gives>,
    /// Superblocks that members have instead, beside zeroes. None: zeroes alone.
    pub(super) superblocks: RefCell<BTreeMap<u16, Option<Vec<u8>>>>,
}

/// What a read gives.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Gives {
    #[default]
    Same,
    Zeroes,
    /// Other bytes each time.
    News(u8),
}

impl Backend for Wires {
    fn at_once(&self, _: &mut MemberIo) -> Option<Result<(), IoError>> {
        self.says_at_once.get()
    }
    fn submit(&self, ticket: Ticket, io: MemberIo) -> Submitted {
        if io.member == DEVICE {
            return self.device.get().expect("it is attached").submit(ticket, io);
        }
        if matches!(io.op, IoOp::Write { .. }) && self.refuses.get() > 0 {
            self.refuses.set(self.refuses.get() - 1);
            let result = Err(IoError { kind: IoErrorKind::Gone, errno: 19 });
            return Submitted::Done(IoDone { result, buffer: io.op.into_buffer() });
        }
        self.ios.borrow_mut().push((ticket, io));
        Submitted::Pending
    }
    fn cancel(&self, _: Ticket) {}
    fn in_flight(&self, member: MemberId) -> usize {
        self.ios.borrow().iter().filter(|(_, io)| io.member == member).count()
    }
    fn unanswered(&self, _: MemberId) -> usize {
        1
    }
    fn now(&self) -> Time {
        self.now.get()
    }
    fn stood_still(&self) -> Duration {
        self.stood_still.get()
    }
    fn unix_time_s(&self) -> u64 {
        0
    }
    fn random(&self) -> u64 {
        4
    }
    fn allocate(&self, bytes: usize) -> Buffer {
        Buffer::zeroed(bytes)
    }
    fn recycle(&self, _: Buffer) {}
}

impl Wires {
    /// Lets time pass, and has everything answered that comes of it: each read with the same bytes.
    pub(super) fn pass(&self, lane: &Rc<Lane>, time: Duration) {
        self.now.set(self.now.get() + time);
        self.answer(lane, |_| true);
    }

    /// Has all reads answered, and what comes of them.
    pub(super) fn answer_reads(&self, lane: &Rc<Lane>) {
        self.answer(lane, is_read);
    }

    /// The same, the oldest first: paths are read side by side.
    pub(super) fn answer_reads_in_order(&self, lane: &Rc<Lane>) {
        lane.turn();
        let next = || self.ios.borrow().iter().position(|(_, io)| is_read(io));
        while let Some(at) = next() {
            self.answer_one(lane, at);
        }
    }

    /// Has all answered that is such, the newest first, and what comes of it.
    pub(super) fn answer(&self, lane: &Rc<Lane>, is_it: impl Fn(&MemberIo) -> bool) {
        lane.turn();
        let next = || self.ios.borrow().iter().rposition(|(_, io)| is_it(io));
        while let Some(at) = next() {
            self.answer_one(lane, at);
        }
    }

    fn answer_one(&self, lane: &Rc<Lane>, at: usize) {
        let (ticket, io) = self.ios.borrow_mut().remove(at);
        let buffer = match io.op {
            IoOp::Flush => None,
            IoOp::Read { into: ReadInto::Buffer(mut buffer, range), sector } => {
                self.read.borrow_mut().push(io.member);
                self.fill(io.member, sector, &mut buffer[range]);
                Some(buffer)
            }
            _ => panic!("only checks are made"),
        };
        lane.complete(ticket, IoDone { result: Ok(()), buffer });
        lane.turn();
    }

    fn fill(&self, member: MemberId, sector: u64, bytes: &mut [u8]) {
        if let Some(superblock) = self.superblocks.borrow().get(&member.index) {
            bytes.fill(0);
            if let Some(superblock) = superblock.as_ref().filter(|_| sector == SUPERBLOCK_SECTOR) {
                bytes[..superblock.len()].copy_from_slice(superblock);
            }
            return;
        }
        bytes.fill(match self.gives.get() {
            Gives::Same => 7,
            Gives::Zeroes => 0,
            Gives::News(news) => {
                self.gives.set(Gives::News(news.wrapping_add(1)));
                news
            }
        });
    }

    /// Ends all reads of a member that are under way with an error.
    pub(super) fn fail_reads(&self, lane: &Rc<Lane>, member: u16, kind: IoErrorKind) {
        let next = || {
            let ios = self.ios.borrow();
            ios.iter().position(|(_, io)| is_read(io) && io.member.index == member)
        };
        while let Some(at) = next() {
            let (ticket, io) = self.ios.borrow_mut().remove(at);
            let error = IoError { kind, errno: 110 };
            lane.complete(ticket, IoDone { result: Err(error), buffer: io.op.into_buffer() });
            lane.turn();
        }
    }
}

fn is_read(io: &MemberIo) -> bool {
    matches!(io.op, IoOp::Read { .. })
}

/// Where metadata 1.2 have their superblock.
const SUPERBLOCK_SECTOR: u64 = 8;

/// The superblock of so many events of a member, by its UUID.
pub(super) fn superblock(device: u8, events: u64) -> Option<Vec<u8>> {
    let creation = Creation {
        name: SetName::new("data").expect("a short name"),
        uuid: Uuid([1; 16]),
        version: MetadataVersion::V1_2,
        level: Level::Raid1,
        layout: 0,
        chunk_sectors: 0,
        raid_disks: 2,
        size_sectors: None,
        data_offset_sectors: Some(64),
        bitmap: BitmapRequest::None,
        assume_clean: true,
        force: false,
        write_behind: 0,
    };
    let info = self::device(TWO_PATHS, Failback::Manual).info().clone();
    let id = MemberId { index: 0, generation: 0 };
    let new = || Some(NewDevice { id, info: info.clone(), flags: MemberFlags::default() });
    let plan = create::plan(&creation, vec![new(), new()], 0, || Uuid([device; 16]));
    let (_, superblock) = plan.expect("a plan").members.into_iter().next().expect("two members");
    Some(Superblock { events, ..superblock }.encode())
}

/// Counts the connections that it is asked for; the test opens them.
#[derive(Clone, Default)]
pub(super) struct Reopens(Arc<AtomicUsize>);

impl Host for Reopens {
    fn reopen(&self, _: &Arc<Paths>, _: usize) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn fence(&self, _: &Arc<Paths>, _: usize, _: FenceId) -> bool {
        false
    }
}

impl Reopens {
    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

pub(super) struct NoDriver;

impl Notify for NoDriver {
    fn notify(&self) {}
}

pub(super) fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub(super) const TWO_PATHS: &str = "1 1 round-robin 0 2 0 a b";

/// The answer to a wish for a connection.
pub(super) fn connection(paths: &Paths, index: u16) -> (MemberId, MemberInfo) {
    (MemberId { index, generation: 0 }, paths.info().clone())
}

pub(super) fn health(paths: &Paths) -> Health {
    paths.owner.lock().paths[0].health
}

/// A device of two paths, and a flush of it whose end is kept.
pub(super) struct Flushing {
    pub(super) lane: Rc<Lane>,
    pub(super) wires: Rc<Wires>,
    pub(super) paths: Arc<Paths>,
}

pub(super) type Ended = Rc<Cell<Option<Result<(), IoErrorKind>>>>;

impl Flushing {
    pub(super) fn new(is_watched: bool) -> Self {
        let wires = Rc::new(Wires::default());
        let lane = Lane::new(LaneId(0), wires.clone(), Arc::new(NoDriver));
        let paths = device_of(TWO_PATHS, Failback::Manual, Box::new(Reopens::default()));
        assert!(wires.device.set(PathLane::attach(&paths, &lane)).is_ok());
        if is_watched {
            paths.look_after_on(&lane);
            wires.answer_reads(&lane);
        }
        Self { lane, wires, paths }
    }

    pub(super) fn start(&self, patience: Patience) -> Ended {
        let (lane, ended) = (self.lane.clone(), Ended::default());
        let end = ended.clone();
        self.lane.spawn(async move {
            let io = MemberIo { member: DEVICE, op: IoOp::Flush, patience };
            end.set(Some(lane.io(io).await.result.map_err(|error| error.kind)));
        });
        self.lane.turn();
        ended
    }

    /// Answers the oldest flush of a path that is under way. False: there is none.
    pub(super) fn answer(&self, path: u16, result: Result<(), IoErrorKind>) -> bool {
        if !self.end_flush(path, result) {
            return false;
        }
        self.wires.answer_reads(&self.lane);
        true
    }

    /// Starts a read of the device, whose end is kept.
    pub(super) fn start_read(&self) -> Ended {
        let (lane, ended) = (self.lane.clone(), Ended::default());
        let end = ended.clone();
        self.lane.spawn(async move {
            let into = ReadInto::Buffer(Buffer::zeroed(512), 0..512);
            let op = IoOp::Read { sector: 64, into };
            let io = MemberIo { member: DEVICE, op, patience: Patience::FOREVER };
            end.set(Some(lane.io(io).await.result.map_err(|error| error.kind)));
        });
        self.lane.turn();
        ended
    }

    /// Starts a write of the device.
    pub(super) fn write(&self) {
        self.start_write(0, Buffer::zeroed(512), false);
    }

    /// Starts a write of a superblock, as an array does it.
    pub(super) fn write_superblock(&self, superblock: &[u8]) {
        let mut buffer = Buffer::zeroed(superblock.len());
        buffer.copy_from_slice(superblock);
        self.start_write(SUPERBLOCK_SECTOR, buffer, true);
    }

    fn start_write(&self, sector: u64, buffer: Buffer, fua: bool) {
        let (lane, bytes) = (self.lane.clone(), buffer.len());
        self.lane.spawn(async move {
            let from = WriteFrom::Shared(Rc::new(buffer), 0..bytes);
            let op = IoOp::Write { sector, from, fua };
            drop(lane.io(MemberIo { member: DEVICE, op, patience: Patience::FOREVER }).await);
        });
        self.lane.turn();
    }

    /// Starts a read of the device's superblock, and gives what it has read once it has ended.
    pub(super) fn read_superblock(&self) -> Rc<RefCell<Option<Vec<u8>>>> {
        let (lane, read) = (self.lane.clone(), Rc::<RefCell<_>>::default());
        let bytes = self.wires.superblocks.borrow()[&0].as_ref().map_or(4096, Vec::len);
        let end = read.clone();
        self.lane.spawn(async move {
            let into = ReadInto::Buffer(Buffer::zeroed(bytes), 0..bytes);
            let op = IoOp::Read { sector: SUPERBLOCK_SECTOR, into };
            let done = lane.io(MemberIo { member: DEVICE, op, patience: Patience::FOREVER }).await;
            *end.borrow_mut() = done.buffer.map(|buffer| buffer[..bytes].to_vec());
        });
        self.lane.turn();
        read
    }

    pub(super) fn find_write_over(&self, path: u16) -> Option<usize> {
        let is_it = |(_, io): &(Ticket, MemberIo)| {
            matches!(io.op, IoOp::Write { .. }) && io.member.index == path
        };
        self.wires.ios.borrow().iter().position(is_it)
    }

    /// Starts writes of the device until one goes over this path.
    pub(super) fn write_over(&self, path: u16) {
        while self.find_write_over(path).is_none() {
            self.write();
        }
    }

    /// The path answers it.
    pub(super) fn end_write_over(&self, path: u16) {
        self.end_write_over_as(path, Ok(()));
    }

    pub(super) fn end_write_over_as(&self, path: u16, result: Result<(), IoErrorKind>) {
        let at = self.find_write_over(path).expect("it is under way");
        let (ticket, _) = self.wires.ios.borrow_mut().remove(at);
        let result = result.map_err(|kind| IoError { kind, errno: 19 });
        self.lane.complete(ticket, IoDone { result, buffer: None });
        self.lane.turn();
    }

    pub(super) fn healths(&self) -> Vec<Health> {
        self.paths.owner.lock().paths.iter().map(|path| path.health).collect()
    }

    /// Answers the oldest flush of a path, if one is under way, and nothing that comes of it.
    pub(super) fn end_flush(&self, path: u16, result: Result<(), IoErrorKind>) -> bool {
        self.end_flush_with(path, result.map_err(|kind| IoError { kind, errno: 5 }))
    }

    pub(super) fn end_flush_with(&self, path: u16, result: Result<(), IoError>) -> bool {
        let is_it =
            |(_, io): &(Ticket, MemberIo)| matches!(io.op, IoOp::Flush) && io.member.index == path;
        let Some(at) = self.wires.ios.borrow().iter().position(is_it) else { return false };
        let (ticket, _) = self.wires.ios.borrow_mut().remove(at);
        self.lane.complete(ticket, IoDone { result, buffer: None });
        self.lane.turn();
        true
    }

    /// Whether a flush of a path is under way.
    pub(super) fn is_flushed(&self, path: u16) -> bool {
        let ios = self.wires.ios.borrow();
        ios.iter().any(|(_, io)| matches!(io.op, IoOp::Flush) && io.member.index == path)
    }

    /// What a flush of the device says, if each path can do its part.
    pub(super) fn flush(&self) -> Option<Result<(), IoErrorKind>> {
        let ended = self.start(Patience::FOREVER);
        while self.answer(0, Ok(())) || self.answer(1, Ok(())) {}
        ended.take()
    }
}

/// A device of which no path is known yet.
pub(super) fn joining() -> Flushing {
    joining_on(Rc::new(Wires::default()))
}

pub(super) fn joining_on(wires: Rc<Wires>) -> Flushing {
    joining_by(TWO_PATHS, wires)
}

/// One over whose paths these superblocks are read.
pub(super) fn joining_over<const N: usize>(superblocks: [Option<Vec<u8>>; N]) -> Flushing {
    let superblocks = superblocks.into_iter().enumerate();
    let superblocks = superblocks.map(|(path, superblock)| (path as u16, superblock)).collect();
    let wires = Wires { superblocks: RefCell::new(superblocks), ..Wires::default() };
    let names = ["a", "b", "c", "d"][..N].join(" ");
    joining_by(&format!("1 1 round-robin 0 {N} 0 {names}"), Rc::new(wires))
}

pub(super) fn joining_by(groups: &str, wires: Rc<Wires>) -> Flushing {
    joining_to(groups, wires, true, Cache::OfEachPath, Reopens::default())
}

/// One whose paths lead to servers, or to devices of this host.
pub(super) fn joining_to(
    groups: &str,
    wires: Rc<Wires>,
    is_remote: bool,
    cache: Cache,
    host: Reopens,
) -> Flushing {
    let known = device(groups, Failback::Manual);
    let lane = Lane::new(LaneId(0), wires.clone(), Arc::new(NoDriver));
    let opened: Vec<_> =
        (0..known.group_of.len()).map(|path| Ok(connection(&known, path as u16))).collect();
    let remote = vec![is_remote; opened.len()];
    let (table, policy) = (known.table.clone(), Policy { cache, ..known.policy.clone() });
    let paths = Paths::new("d", table, policy, opened, &remote, Box::new(host));
    let paths = paths.expect("a device");
    assert!(wires.device.set(PathLane::attach(&paths, &lane)).is_ok());
    paths.look_after_on(&lane);
    lane.turn();
    Flushing { lane, wires, paths }
}
