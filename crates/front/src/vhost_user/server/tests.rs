use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::atomic::AtomicU64;

use mdspace_engine::lane::LaneId;
use mdspace_engine::memory::Source;
use mdspace_engine::request::{Queue, Request, RequestError};
use mdspace_io::{IoChoice, Lanes, LanesConfig};

use super::*;
use crate::nbd::export::{BlockSizes, Export};
use crate::pieces::PIECE_SECTORS;
use crate::vhost_user::client::{self, Ask, FrontEnd, Guest, message};

mod hostile;

/// Nothing takes longer than this, on whatever machine.
const PATIENCE: Duration = Duration::from_secs(20);

const SIZE_BYTES: usize = 4 << 20;

/// A disk in memory. What begins at one of its hanging sectors ends when it is let go.
struct Disk {
    lanes: Lanes,
    shared: Arc<Bytes>,
}

struct Bytes {
    bytes: Mutex<Vec<u8>>,
    hanging: Mutex<HashSet<u64>>,
    flushes: AtomicU64,
    /// First sector and sectors of each discard that has ended.
    discards: Mutex<Vec<(u64, u64)>>,
    /// Nothing is done any more.
    is_stopped: AtomicBool,
}

struct Part {
    shared: Arc<Bytes>,
    held: RefCell<Vec<(Rc<Queue>, u64, Request)>>,
}

impl Part {
    fn end(&self, queue: &Queue, tag: u64, request: Request) {
        if self.shared.is_stopped.load(Ordering::SeqCst) {
            return queue.end(tag, Err(RequestError::Stopped));
        }
        let mut bytes = self.shared.bytes.lock().expect("no panic");
        match request {
            Request::Read { sector, into } => {
                let at = sector as usize * 512;
                into.put(0, &bytes[at..at + into.len()]);
            }
            Request::Write { sector, from, .. } => {
                let at = sector as usize * 512;
                let length = Source::len(&*from);
                from.take(0, &mut bytes[at..at + length]);
            }
            Request::Flush => drop(self.shared.flushes.fetch_add(1, Ordering::SeqCst)),
            Request::Discard { sector, sectors } => {
                self.shared.discards.lock().expect("no panic").push((sector, sectors));
            }
            Request::Punch { sector, sectors } | Request::WriteZeroes { sector, sectors, .. } => {
                bytes[sector as usize * 512..][..sectors as usize * 512].fill(0);
            }
        }
        queue.end(tag, Ok(()));
    }
}

impl VolumePart for Part {
    fn submit(self: &Rc<Self>, queue: &Rc<Queue>, tag: u64, request: Request) {
        queue.begin();
        let sector = match request {
            Request::Read { sector, .. }
            | Request::Write { sector, .. }
            | Request::Discard { sector, .. } => sector,
            _ => u64::MAX,
        };
        if self.shared.hanging.lock().expect("no panic").contains(&sector) {
            return self.held.borrow_mut().push((queue.clone(), tag, request));
        }
        self.end(queue, tag, request);
    }
}

impl Volume for Disk {
    type Part = Part;

    fn lane_count(&self) -> usize {
        self.lanes.count()
    }

    fn run_on(
        &self,
        lane: LaneId,
        setup: impl FnOnce(&Rc<Part>, &Rc<Lane>, &LaneIo) + Send + 'static,
    ) {
        let shared = self.shared.clone();
        self.lanes.run_on(lane, move |lane, io| {
            let part = Rc::new(Part { shared, held: RefCell::default() });
            setup(&part, lane, io);
            // Looks again and again whether something is let go.
            let its_lane = lane.clone();
            lane.spawn(async move {
                while Rc::strong_count(&part) > 1 {
                    let hanging = part.shared.hanging.lock().expect("no panic").clone();
                    let held = part.held.take();
                    for (queue, tag, request) in held {
                        match request {
                            Request::Read { sector, .. }
                            | Request::Write { sector, .. }
                            | Request::Discard { sector, .. }
                                if hanging.contains(&sector) =>
                            {
                                part.held.borrow_mut().push((queue, tag, request));
                            }
                            _ => part.end(&queue, tag, request),
                        }
                    }
                    let soon = its_lane.backend().now() + Duration::from_millis(1);
                    its_lane.sleep_until(soon).await;
                }
            });
        });
    }
}

/// A disk, served in a folder of its own.
struct Served {
    folder: tempfile::TempDir,
    disk: Disk,
    server: Server,
    budget: Budget,
}

impl Served {
    fn new() -> Served {
        Served::with("", Budget::default(), IoChoice::Auto)
    }

    fn with_budget(bytes: usize) -> Served {
        Served::with("", Budget::new(bytes), IoChoice::Auto)
    }

    fn with(options: &str, budget: Budget, io: IoChoice) -> Served {
        Served::of_size(SIZE_BYTES as u64, options, budget, io)
    }

    /// A disk that says to be larger than what it keeps.
    fn of_size(size_bytes: u64, options: &str, budget: Budget, io: IoChoice) -> Served {
        let folder = tempfile::tempdir().expect("a folder");
        let address = format!("vhost-user:{}{options}", folder.path().join("socket").display());
        let listener = Listener::bind(&address.parse().expect("an address")).expect("a socket");
        let export = Export {
            name: "disk".into(),
            description: String::new(),
            size_bytes,
            block_sizes: BlockSizes::new(512, 64 << 10).expect("powers of two"),
            read_only: false,
            rotational: false,
            trim: true,
            fast_zero: false,
        };
        let config = LanesConfig { count: 2, io, ..LanesConfig::default() };
        let lanes = Lanes::start(config).expect("lanes");
        let shared = Arc::new(Bytes {
            bytes: Mutex::new(vec![0; SIZE_BYTES]),
            hanging: Mutex::default(),
            flushes: AtomicU64::new(0),
            discards: Mutex::default(),
            is_stopped: AtomicBool::new(false),
        });
        let disk = Disk { lanes, shared };
        let exports = Exports::new(vec![export]).expect("one export");
        let parts = PartialWrites::default();
        let server = Server::start(listener, exports, budget.clone(), parts, &disk);
        Served { folder, disk, server: server.expect("a thread"), budget }
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("socket")
    }

    fn start(&self, rings: u16) -> FrontEnd {
        FrontEnd::start(&self.path(), guest(rings)).expect("a client is served")
    }

    fn hang(&self, sector: u64) {
        self.disk.shared.hanging.lock().expect("no panic").insert(sector);
    }

    fn let_go(&self) {
        self.disk.shared.hanging.lock().expect("no panic").clear();
    }

    /// Waits until the server knows that its client has left, of which something hangs.
    fn know_that_it_left(&self) {
        while !self.server.0.seat().as_ref().is_some_and(|line| line.is_gone()) {
            thread::yield_now();
        }
    }

    /// It serves still, whatever was done to it.
    fn end(self) {
        let mut front = self.start(1);
        assert_eq!(ask(front.guest(), 0, Ask::Write(8, &[9; 512])), 0);
        assert_eq!(ask(front.guest(), 0, Ask::Read(8, 512)), 0);
        assert_eq!(front.guest().data(0, 0, 512), [9; 512]);
        drop(front);
        self.server.close(PATIENCE).expect("nothing hangs");
        drop(self.server);
        self.disk.lanes.stop(PATIENCE).expect("the lanes end");
    }
}

fn guest(rings: u16) -> Guest {
    Guest::new(rings).expect("a guest")
}

/// Asks in slot 0, and waits for the status.
fn ask(guest: &mut Guest, ring: usize, ask: Ask<'_>) -> u8 {
    guest.ask(ring, 0, ask);
    guest.kick(ring);
    let answer = guest.wait(ring, PATIENCE).expect("an answer in time");
    assert_eq!(answer.0, 0, "the answer is of the request");
    answer.1
}

#[test]
fn a_guest_reads_what_it_wrote_through_several_rings() {
    for io in [IoChoice::Uring, IoChoice::Preadv] {
        reads_what_it_wrote(Served::with("", Budget::default(), io));
    }
}

fn reads_what_it_wrote(served: Served) {
    let mut front = served.start(3);
    for ring in 0..3 {
        for slot in 0..client::SLOTS {
            let sector = (ring as u64 * 100 + u64::from(slot)) * 8;
            front.guest().ask(
                ring,
                slot,
                Ask::Write(sector, &[ring as u8 * 80 + slot as u8; 4096]),
            );
        }
        front.guest().kick(ring);
    }
    for ring in 0..3 {
        let mut slots = HashSet::new();
        for _ in 0..client::SLOTS {
            let (slot, status) = front.guest().wait(ring, PATIENCE).expect("an answer in time");
            assert_eq!(status, 0);
            assert!(slots.insert(slot), "each request is answered once");
        }
    }
    for (ring, slot) in [(0, 3), (1, 77), (2, 50)] {
        let sector = (u64::from(ring) * 100 + slot) * 8;
        assert_eq!(ask(front.guest(), 2, Ask::Read(sector, 4096)), 0);
        assert_eq!(front.guest().data(2, 0, 4096), [ring * 80 + slot as u8; 4096]);
    }
    drop(front);
    served.end();
}

/// What a client shares ends with it, though the process has started other programs meanwhile.
#[test]
fn what_is_shared_is_not_given_to_other_programs() {
    let served = Served::new();
    let mut front = served.start(1);
    assert_eq!(ask(front.guest(), 0, Ask::Flush), 0);
    let shared = front.guest().file().metadata().expect("it is open");
    let shared = std::os::unix::fs::MetadataExt::ino(&shared).to_string();
    let child = std::process::Command::new("ls").args(["-iL", "/proc/self/fd"]).output();
    let listed = String::from_utf8(child.expect("ls runs").stdout).expect("text");
    let inodes = || listed.lines().filter_map(|line| line.split_whitespace().next());
    assert!(inodes().count() > 2, "it lists what it has open: {listed}");
    assert!(!inodes().any(|inode| inode == shared), "{shared} is none of {listed}");
    drop(front);
    served.end();
}

#[test]
fn flushes_zeroes_discards_and_names_are_answered() {
    let served = Served::new();
    let mut front = served.start(1);
    let guest = front.guest();
    assert_eq!(ask(guest, 0, Ask::Write(0, &[1; 8192])), 0);
    assert_eq!(ask(guest, 0, Ask::Flush), 0);
    assert_eq!(served.disk.shared.flushes.load(Ordering::SeqCst), 1);
    assert_eq!(ask(guest, 0, Ask::Zero(8, 8)), 0);
    assert_eq!(ask(guest, 0, Ask::Read(0, 8192)), 0);
    assert_eq!(guest.data(0, 0, 8192), [[1; 4096], [0; 4096]].concat());
    assert_eq!(ask(guest, 0, Ask::Discard(0, 8)), 0);
    assert_eq!(ask(guest, 0, Ask::Identify), 0);
    assert_eq!(guest.data(0, 0, 5), *b"disk\0");
    assert_eq!(ask(guest, 0, Ask::Other(77)), 2, "unsupported");
    let end = SIZE_BYTES as u64 / 512;
    assert_eq!(ask(guest, 0, Ask::Read(end - 1, 512)), 0);
    for beyond in [end, end - 1, u64::MAX, u64::MAX / 512] {
        let bytes = if beyond == end - 1 { 1024 } else { 512 };
        assert_eq!(ask(guest, 0, Ask::Read(beyond, bytes)), 1, "beyond the end");
        assert_eq!(ask(guest, 0, Ask::Write(beyond, &vec![0; bytes])), 1, "beyond the end");
        assert_eq!(ask(guest, 0, Ask::Zero(beyond, 2)), 1, "beyond the end");
    }
    assert_eq!(ask(guest, 0, Ask::Read(0, 100)), 1, "no whole sector");
    drop(front);
    served.end();
}

#[test]
fn a_long_range_goes_in_pieces_and_one_that_is_too_long_fails() {
    let served = Served::of_size(8 << 30, "", Budget::default(), IoChoice::Auto);
    let mut front = served.start(1);
    let piece = PIECE_SECTORS as u32;
    assert_eq!(ask(front.guest(), 0, Ask::Discard(8, 2 * piece)), 0);
    let pieces = [(8, PIECE_SECTORS - 8), (PIECE_SECTORS, PIECE_SECTORS), (2 * PIECE_SECTORS, 8)];
    assert_eq!(*served.disk.shared.discards.lock().expect("no panic"), pieces);
    assert_eq!(ask(front.guest(), 0, Ask::Discard(0, 1 << 23)), 1, "more than was announced");
    assert_eq!(ask(front.guest(), 0, Ask::Zero(0, 1 << 23)), 1, "more than was announced");
    assert_eq!(served.disk.shared.discards.lock().expect("no panic").len(), 3);
    drop(front);
    served.end();
}

#[test]
fn what_a_stopped_array_has_not_done_is_done_by_the_next_one() {
    let served = Served::new();
    served.hang(64);
    let mut front = served.start(1);
    front.guest().ask(0, 0, Ask::Write(64, &[7; 512]));
    assert_eq!(ask_slot(front.guest(), 1, Ask::Flush), 0, "the write was taken before");
    served.disk.shared.is_stopped.store(true, Ordering::SeqCst);
    served.let_go();
    assert!(front.is_cut_off(PATIENCE));
    assert_eq!(front.guest().answer(0), None, "the guest is told of no error");
    served.disk.shared.is_stopped.store(false, Ordering::SeqCst);
    let mut front = FrontEnd::start(&served.path(), front.leave()).expect("it is served");
    assert_eq!(front.guest().wait(0, PATIENCE), Some((0, 0)));
    assert_eq!(served.disk.shared.bytes.lock().expect("no panic")[64 * 512], 7);
    drop(front);
    served.end();
}

#[test]
fn a_ring_that_stops_at_once_does_what_the_process_before_had_begun() {
    let served = Served::new();
    served.hang(64);
    let mut front = served.start(1);
    front.guest().ask(0, 0, Ask::Write(64, &[7; 512]));
    assert_eq!(ask_slot(front.guest(), 1, Ask::Flush), 0, "the write was taken before");
    let guest = front.leave();
    served.know_that_it_left();
    served.let_go();
    let mut front = FrontEnd::connect(&served.path(), guest).expect("it listens");
    front.agree().expect("it is served");
    served.disk.shared.bytes.lock().expect("no panic").fill(0);
    front.share().expect("it is served");
    front.start_disabled_rings().expect("it is served");
    assert_eq!(front.stop_ring(0).expect("it is served"), 2, "both were taken");
    assert_eq!(front.guest().answer(0), Some((0, 0)));
    assert_eq!(served.disk.shared.bytes.lock().expect("no panic")[64 * 512], 7);
    drop(front);
    served.end();
}

/// Each request under way keeps the memory that it began with, and all that is shared since has that too.
#[test]
fn memory_is_added_while_requests_are_under_way() {
    const TIMES: u16 = 20;
    let served = Served::new();
    let mut front = served.start(1);
    let more = guest(1);
    for slot in 0..TIMES {
        served.hang(64 + u64::from(slot));
        front.guest().ask(0, slot, Ask::Read(64 + u64::from(slot), 512));
        assert_eq!(ask_slot(front.guest(), 70, Ask::Flush), 0, "the read was taken before");
        let at = (1 << 40) + 4096 * u64::from(slot);
        let region = [0, at, 4096, at, 0].map(u64::to_le_bytes).concat();
        let added = front.acknowledged(message::ADD_MEM_REG, &region, &[more.file().as_fd()]);
        added.expect("it is taken");
    }
    served.let_go();
    for _ in 0..TIMES {
        assert_eq!(front.guest().wait(0, PATIENCE).expect("an answer in time").1, 0);
    }
    drop(front);
    served.end();
}

#[test]
fn a_ring_that_was_stopped_starts_where_it_is_said_to_be_then() {
    let served = Served::new();
    let mut front = served.start(1);
    assert_eq!(ask(front.guest(), 0, Ask::Flush), 0);
    assert_eq!(front.stop_ring(0).expect("it is served"), 1);
    let kick = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
    let number = 0_u64.to_le_bytes();
    front.acknowledged(message::SET_VRING_KICK, &number, &[kick.as_fd()]).expect("it is taken");
    // A ring that runs does not take that.
    let size = client::state(0, client::RING_SIZE.into());
    front.acknowledged(message::SET_VRING_NUM, &size, &[]).expect("it did not start");
    drop(front);
    served.end();
}

#[test]
fn a_guest_comes_back_to_a_disk_that_is_read_only_meanwhile() {
    let served = Served::new();
    let mut front = served.start(1);
    let writable = front.number(message::GET_FEATURES).expect("an answer");
    drop(front);
    let served_later = Served::with("?ro", Budget::default(), IoChoice::Auto);
    let mut front = served_later.start(1);
    let features = writable.to_le_bytes();
    front.acknowledged(message::SET_FEATURES, &features, &[]).expect("it knows them");
    assert_eq!(ask(front.guest(), 0, Ask::Discard(0, 1)), 1);
    assert_eq!(ask(front.guest(), 0, Ask::Read(0, 512)), 0);
    drop(front);
    served.end();
}

#[test]
fn a_server_that_closes_answers_nothing_more_and_ends_long_ranges_though_a_ring_drains() {
    let served = Served::of_size(8 << 30, "", Budget::default(), IoChoice::Auto);
    served.hang(PIECE_SECTORS);
    let mut front = served.start(1);
    front.guest().ask(0, 0, Ask::Discard(0, 3 * PIECE_SECTORS as u32));
    assert_eq!(ask_slot(front.guest(), 1, Ask::Flush), 0, "the discard was taken before");
    front.order(message::GET_VRING_BASE, &client::state(0, 0), &[]).expect("it is served");
    let discards = || served.disk.shared.discards.lock().expect("no panic").clone();
    while discards().is_empty() {
        thread::yield_now();
    }
    served.server.close(Duration::ZERO).expect_err("a piece hangs");
    served.let_go();
    served.server.close(PATIENCE).expect("nothing hangs any more");
    assert_eq!(discards(), [(0, PIECE_SECTORS), (PIECE_SECTORS, PIECE_SECTORS)]);
    assert_eq!(front.guest().answer(0), None);
    let Served { disk, server, folder: _folder, .. } = served;
    drop(server);
    disk.lanes.stop(PATIENCE).expect("the lanes end");
}

#[test]
fn a_read_only_disk_says_so_and_takes_no_writes() {
    let served = Served::with("?ro", Budget::default(), IoChoice::Auto);
    let mut front = served.start(1);
    let features = front.number(message::GET_FEATURES).expect("an answer");
    assert!(features & (1 << 5) != 0, "VIRTIO_BLK_F_RO");
    assert_eq!(ask(front.guest(), 0, Ask::Write(0, &[1; 512])), 1);
    assert_eq!(ask(front.guest(), 0, Ask::Zero(0, 1)), 1);
    assert_eq!(ask(front.guest(), 0, Ask::Discard(0, 1)), 1);
    assert_eq!(ask(front.guest(), 0, Ask::Read(0, 512)), 0);
    assert_eq!(front.guest().data(0, 0, 512), [0; 512], "nothing was written");
}

#[test]
fn a_client_waits_until_the_one_before_has_nothing_under_way() {
    let served = Served::new();
    served.hang(64);
    let mut first = served.start(1);
    let first_data = first.guest().data_at(0, 2);
    first.guest().ask(0, 0, Ask::Write(64, &[5; 512]));
    served.hang(72);
    first.guest().ask(0, 2, Ask::Read(72, 512));
    first.guest().put(first_data, &[0x55; 512]);
    first.guest().kick(0);
    assert_eq!(ask_slot(first.guest(), 1, Ask::Flush), 0, "both were taken before");
    let mut guest = first.leave();
    let mut second = FrontEnd::connect(&served.path(), self::guest(1)).expect("it listens");
    second.order(message::GET_FEATURES, &[], &[]).expect("it listens");
    served.know_that_it_left();
    served.let_go();
    second.number(message::GET_FEATURES).expect("it is heard in the end");
    let bytes = served.disk.shared.bytes.lock().expect("no panic")[64 * 512];
    assert_eq!(bytes, 5, "what the first one asked for has ended by then");
    drop(second);
    assert_eq!(guest.answer(0), None, "nobody writes to the rings of a client that is gone");
    assert_eq!(guest.data(0, 2, 512), [0x55; 512], "nor to its memory");
    served.end();
}

fn ask_slot(guest: &mut Guest, slot: u16, ask: Ask<'_>) -> u8 {
    guest.ask(0, slot, ask);
    guest.kick(0);
    loop {
        let answer = guest.wait(0, PATIENCE).expect("an answer in time");
        if answer.0 == slot {
            return answer.1;
        }
    }
}
