//! Lanes on the model checker's threads, over members in shared memory.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use mdspace_engine::backend::{
    Backend, IoDone, IoError, IoErrorKind, IoOp, MemberId, MemberInfo, MemberIo, ReadInto,
    Submitted, Ticket, WriteFrom,
};
use mdspace_engine::lane::{Lane, LaneId, Notify, Turn};
use mdspace_engine::memory::Buffer;
use mdspace_engine::time::Time;
use mdspace_format::{BitmapSuperblock, DirtyMap, MetadataVersion, Role, Superblock};
use shuttle::rand::Rng;
use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use shuttle::sync::{Condvar, Mutex};

/// Members, clock, and which lanes may sleep.
pub(crate) struct Machine {
    disks: Vec<Mutex<Disk>>,
    now_ns: Mutex<u64>,
    lanes: Vec<Arc<Bell>>,
    /// I/Os that each lane has made, in this schedule.
    ios: Vec<AtomicUsize>,
    /// Data that are written must be announced by then: see [`Machine::watch`].
    watched: AtomicBool,
}

#[derive(Default)]
struct Disk {
    bytes: Vec<u8>,
    /// Writes from this sector on are answered with an error.
    fails_from: Option<u64>,
    /// The next flush fails, and only that.
    next_flush_fails: bool,
    /// Sectors that were written and not flushed.
    unflushed: BTreeSet<u64>,
    /// Those that a failed flush left so: no later flush makes them durable.
    given_up: BTreeSet<u64>,
}

/// Wakes a sleeping lane.
#[derive(Default)]
pub(crate) struct Bell {
    rung: Mutex<bool>,
    comes: Condvar,
}

impl Notify for Bell {
    fn notify(&self) {
        *self.rung.lock().unwrap() = true;
        self.comes.notify_one();
    }
}

impl Machine {
    pub(crate) fn new(disks: usize, sectors: usize, lanes: usize) -> Arc<Self> {
        let disk = || Mutex::new(Disk { bytes: vec![0; sectors * 512], ..Disk::default() });
        Arc::new(Self {
            disks: (0..disks).map(|_| disk()).collect(),
            now_ns: Mutex::new(0),
            lanes: (0..lanes).map(|_| Arc::default()).collect(),
            ios: (0..lanes).map(|_| AtomicUsize::new(0)).collect(),
            watched: AtomicBool::new(false),
        })
    }

    pub(crate) fn members(&self) -> Vec<(MemberId, MemberInfo)> {
        let member = |(index, disk): (usize, &Mutex<Disk>)| {
            let info = MemberInfo {
                name: format!("disk{index}"),
                sectors: disk.lock().unwrap().bytes.len() as u64 / 512,
                logical_block_bytes: 512,
                rotational: false,
                discard_zeroes: false,
                is_sparse: false,
            };
            (MemberId { index: index as u16, generation: 0 }, info)
        };
        self.disks.iter().enumerate().map(member).collect()
    }

    /// From now on the member answers every write with an error.
    pub(crate) fn break_writes(&self, disk: usize) {
        self.fail_from(disk, 0);
    }

    /// From now on the member answers every write from that sector on with an error.
    pub(crate) fn fail_from(&self, disk: usize, sector: u64) {
        self.disks[disk].lock().unwrap().fails_from = Some(sector);
    }

    /// The member's next flush fails, and those after it go well.
    pub(crate) fn fail_next_flush(&self, disk: usize) {
        self.disks[disk].lock().unwrap().next_flush_fails = true;
    }

    /// Whether a power cut takes what the member was given in this sector, counted from its first, for
    /// good.
    pub(crate) fn has_given_up(&self, disk: usize, sector: u64) -> bool {
        self.disks[disk].lock().unwrap().given_up.contains(&sector)
    }

    /// Whether the superblock on one member says that the member with that number failed.
    pub(crate) fn says_faulty(&self, disk: usize, number: usize) -> bool {
        self.disks[disk].lock().unwrap().superblock().roles[number] == Role::Faulty
    }

    /// From now on no data may be written before every member's superblock says that the array is in
    /// use and every member's bitmap has the chunk's bit. For arrays of whole members without sync.
    pub(crate) fn watch(&self) {
        self.watched.store(true, Ordering::SeqCst);
    }

    /// A write that no array made.
    pub(crate) fn scribble(&self, sector: u64) {
        self.check_announced(sector);
    }

    fn check_announced(&self, sector: u64) {
        for disk in &self.disks {
            let disk = disk.lock().unwrap();
            let superblock = disk.superblock();
            let Some(member_sector) = sector.checked_sub(superblock.data_offset_sectors) else {
                return;
            };
            assert_eq!(superblock.resync_offset_sectors, 0, "data before the dirty mark");
            let page = disk.page(superblock.bitmap_sector().unwrap());
            let header = BitmapSuperblock::parse(page, 8).unwrap();
            let map = DirtyMap::parse(header.chunks(), page);
            let chunk = member_sector / header.chunk_sectors();
            assert!(map.test(chunk), "data before their intent");
        }
    }

    /// Runs a lane on this thread until `over` says that it is enough.
    pub(crate) fn run_lane(
        self: &Arc<Self>,
        id: LaneId,
        start: impl FnOnce(&Rc<Lane>),
        over: impl Fn() -> bool,
    ) {
        let backend = Rc::new(Shared {
            machine: self.clone(),
            lane: usize::from(id.0),
            held: RefCell::default(),
            random: Cell::new(1),
        });
        let bell = self.lanes[usize::from(id.0)].clone();
        let lane = Lane::new(id, backend.clone(), bell.clone());
        start(&lane);
        while !over() {
            let turn = lane.turn();
            if backend.answer_some(&lane) {
                continue;
            }
            let Turn::Idle(timer) = turn else { continue };
            if let Some(when) = timer {
                // Nothing else happens on this lane before: let the time come.
                let mut now = self.now_ns.lock().unwrap();
                *now = (*now).max(when.as_nanos());
                drop(now);
                shuttle::thread::yield_now();
                continue;
            }
            if over() || !lane.remote().try_sleep() {
                continue;
            }
            let mut rung = bell.rung.lock().unwrap();
            while !*rung && !over() {
                rung = bell.comes.wait(rung).unwrap();
            }
            *rung = false;
            drop(rung);
            lane.remote().awake();
        }
        // Its tasks hold the lane that holds them.
        lane.end();
    }

    /// I/Os that a lane has made.
    pub(crate) fn ios(&self, lane: usize) -> usize {
        self.ios[lane].load(Ordering::Relaxed)
    }

    /// Wakes every lane, for a look at whether it is over.
    pub(crate) fn ring_all(&self) {
        self.lanes.iter().for_each(|bell| bell.notify());
    }
}

/// One lane's backend: an I/O is done at once or after some turns, and other threads run around it.
struct Shared {
    machine: Arc<Machine>,
    lane: usize,
    held: RefCell<VecDeque<(Ticket, MemberIo)>>,
    random: Cell<u64>,
}

fn one_in_two() -> bool {
    shuttle::rand::thread_rng().gen_bool(0.5)
}

impl Shared {
    /// Ends the I/Os that have waited long enough; false when none is under way.
    fn answer_some(&self, lane: &Lane) -> bool {
        if self.held.borrow().is_empty() {
            return false;
        }
        shuttle::thread::yield_now();
        while one_in_two() {
            let Some((ticket, io)) = self.held.borrow_mut().pop_front() else { break };
            lane.complete(ticket, self.run(io));
        }
        true
    }

    fn run(&self, io: MemberIo) -> IoDone {
        self.machine.ios[self.lane].fetch_add(1, Ordering::Relaxed);
        if let IoOp::Write { sector, .. } = io.op
            && self.machine.watched.load(Ordering::SeqCst)
        {
            self.machine.check_announced(sector);
        }
        let mut disk = self.machine.disks[usize::from(io.member.index)].lock().unwrap();
        let refused = IoError { kind: IoErrorKind::Other, errno: 5 };
        let fails = |sector: u64| disk.fails_from.is_some_and(|first| sector >= first);
        let (result, buffer) = match io.op {
            IoOp::Read { sector, into } => (Ok(()), disk.read(sector, into)),
            IoOp::Write { sector, from, .. } if fails(sector) => (Err(refused), buffer_of(from)),
            IoOp::Write { sector, from, fua } => {
                let sectors = sector..sector + from.len() as u64 / 512;
                if !fua {
                    disk.unflushed.extend(sectors);
                }
                (Ok(()), disk.write(sector, from))
            }
            IoOp::Flush => (disk.flush().map_err(|()| refused), None),
            IoOp::Discard { .. } | IoOp::WriteZeroes { .. } => unreachable!("not in these tests"),
        };
        IoDone { result, buffer }
    }
}

impl Backend for Shared {
    fn submit(&self, ticket: Ticket, io: MemberIo) -> Submitted {
        if one_in_two() {
            return Submitted::Done(self.run(io));
        }
        self.held.borrow_mut().push_back((ticket, io));
        Submitted::Pending
    }

    fn cancel(&self, _: Ticket) {}

    fn in_flight(&self, _: MemberId) -> usize {
        0
    }

    fn now(&self) -> Time {
        Time::from_nanos(*self.machine.now_ns.lock().unwrap())
    }

    fn unix_time_s(&self) -> u64 {
        1
    }

    fn random(&self) -> u64 {
        self.random.set(self.random.get() + 1);
        self.random.get()
    }

    fn allocate(&self, bytes: usize) -> Buffer {
        Buffer::zeroed(bytes)
    }

    fn recycle(&self, _: Buffer) {}
}

impl Disk {
    fn read(&self, sector: u64, into: ReadInto) -> Option<Buffer> {
        let start = sector as usize * 512;
        match into {
            ReadInto::Buffer(mut buffer, range) => {
                let bytes = &self.bytes[start..start + range.len()];
                buffer[range].copy_from_slice(bytes);
                Some(buffer)
            }
            ReadInto::Sink(sink, range) => {
                sink.put(range.start, &self.bytes[start..start + range.len()]);
                None
            }
        }
    }

    fn write(&mut self, sector: u64, from: WriteFrom) -> Option<Buffer> {
        let start = sector as usize * 512;
        from.take(&mut self.bytes[start..start + from.len()]);
        buffer_of(from)
    }

    fn flush(&mut self) -> Result<(), ()> {
        let unflushed = std::mem::take(&mut self.unflushed);
        if std::mem::take(&mut self.next_flush_fails) {
            self.given_up.extend(unflushed);
            return Err(());
        }
        self.given_up.retain(|sector| !unflushed.contains(sector));
        Ok(())
    }

    fn superblock(&self) -> Superblock {
        let sectors = self.bytes.len() as u64 / 512;
        let place = MetadataVersion::V1_2.place(sectors).unwrap();
        Superblock::parse(self.page(place.sector), place, sectors).unwrap()
    }

    fn page(&self, sector: u64) -> &[u8] {
        &self.bytes[sector as usize * 512..][..4096]
    }
}

fn buffer_of(from: WriteFrom) -> Option<Buffer> {
    match from {
        WriteFrom::Buffer(buffer, _) => Some(buffer),
        _ => None,
    }
}
