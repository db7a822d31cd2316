use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};

use mdspace_engine::lane::LaneId;
use mdspace_engine::request::{Queue, Request};
use mdspace_io::{Lanes, LanesConfig};

use super::*;
use crate::nbd::export::BlockSizes;

/// Nothing takes longer than this, on whatever machine.
const PATIENCE: Duration = Duration::from_secs(20);
const SIZE_BYTES: u64 = 1 << 20;
/// A write of this sector hangs until the test lets it go.
const HANGING_SECTOR: u64 = 8;

/// Ends each request at once, but one that hangs. Says of each write that it has come.
struct Nothing {
    lanes: Lanes,
    writes: Sender<u64>,
    hanging: Arc<Hanging>,
}

#[derive(Default)]
struct Hanging {
    is_over: AtomicBool,
    waiting: SharedWait,
}

struct NothingPart {
    lane: Rc<Lane>,
    writes: Sender<u64>,
    hanging: Arc<Hanging>,
}

impl VolumePart for NothingPart {
    fn submit(self: &Rc<Self>, queue: &Rc<Queue>, tag: u64, request: Request) {
        queue.begin();
        let Request::Write { sector, .. } = request else { return queue.end(tag, Ok(())) };
        self.writes.send(sector).expect("the test waits for it");
        if sector != HANGING_SECTOR {
            return queue.end(tag, Ok(()));
        }
        let (queue, hanging) = (queue.clone(), self.hanging.clone());
        self.lane.spawn(async move {
            let is_over = || hanging.is_over.load(Ordering::Acquire);
            hanging.waiting.unless(is_over, pending::<()>()).await;
            queue.end(tag, Ok(()));
        });
    }
}

impl Volume for Nothing {
    type Part = NothingPart;

    fn lane_count(&self) -> usize {
        self.lanes.count()
    }

    fn run_on(
        &self,
        lane: LaneId,
        setup: impl FnOnce(&Rc<NothingPart>, &Rc<Lane>, &LaneIo) + Send + 'static,
    ) {
        let (writes, hanging) = (self.writes.clone(), self.hanging.clone());
        self.lanes.run_on(lane, move |lane, io| {
            let part = NothingPart { lane: lane.clone(), writes, hanging };
            setup(&Rc::new(part), lane, io);
        });
    }
}

/// Nothing on two lanes, and the driver's ends of two connections.
struct Served {
    volume: Nothing,
    server: PairServer,
    written: Receiver<u64>,
    driver: Vec<UnixStream>,
}

impl Served {
    fn new() -> Self {
        let export = Export {
            name: "disk".into(),
            description: String::new(),
            size_bytes: SIZE_BYTES,
            block_sizes: BlockSizes::new(512, 4096).expect("powers of two"),
            read_only: false,
            rotational: false,
            trim: true,
            fast_zero: false,
        };
        let (writes, written) = channel();
        let lanes = Lanes::start(LanesConfig { count: 2, ..LanesConfig::default() });
        let volume = Nothing { lanes: lanes.expect("lanes"), writes, hanging: Arc::default() };
        let exports = Exports::new(vec![export]).expect("one export");
        let server = PairServer::start(exports, PartialWrites::default(), &volume);
        let driver = [0, 1].map(|number| connect(&server, number)).into();
        Self { volume, server, written, driver }
    }

    fn let_go(&self) {
        self.volume.hanging.is_over.store(true, Ordering::Release);
        self.volume.hanging.waiting.wake();
    }

    /// The sector of the next write that the volume gets.
    fn next_write(&self) -> u64 {
        self.written.recv_timeout(PATIENCE).expect("a write comes in time")
    }

    /// Waits until the lanes have received all that was sent, and have done what they can with it.
    fn settle(&self) {
        let (told, turned) = channel();
        // What was received in one turn is executed in that or the next one.
        for _ in 0..4 {
            let told = told.clone();
            self.volume.lanes.when_all_turn(move || told.send(()).expect("the test waits"));
            turned.recv_timeout(PATIENCE).expect("the lanes turn");
        }
    }

    fn end(self) {
        self.let_go();
        self.server.close(PATIENCE).expect("nothing is under way for ever");
        self.volume.lanes.stop(PATIENCE).expect("the lanes end");
    }
}

fn connect(server: &PairServer, number: usize) -> UnixStream {
    let stream = UnixStream::from(server.connect(ConnectionNumber(number)).expect("a socket pair"));
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    stream
}

/// A write of one sector as the driver sends it: magic, flags, type, cookie, offset, length, payload.
fn send_write(mut stream: &UnixStream, sector: u64) {
    let mut request = vec![0x25, 0x60, 0x95, 0x13, 0, 0, 0, 1];
    request.extend((sector + 1000).to_be_bytes());
    request.extend((sector * 512).to_be_bytes());
    request.extend(512u32.to_be_bytes());
    request.extend([7; 512]);
    stream.write_all(&request).expect("it is served");
}

/// Whether the next answer is the simple one of that write.
fn is_answered(mut stream: &UnixStream, sector: u64) -> bool {
    let mut answer = [0; 16];
    let good = [&[0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0][..], &(sector + 1000).to_be_bytes()].concat();
    stream.read_exact(&mut answer).is_ok() && answer[..] == good[..]
}

#[test]
fn a_connection_begins_with_requests_and_answers_simply() {
    let served = Served::new();
    for stream in &served.driver {
        send_write(stream, 3);
        assert_eq!(served.next_write(), 3);
        assert!(is_answered(stream, 3));
    }
    assert_eq!(served.server.cut_off(2), []);
    served.end();
}

/// The driver asks for zeroes of 4 GiB: many of them outlast the time after which it cuts a connection off.
#[test]
fn the_driver_is_offered_trims_and_no_zeroes() {
    let served = Served::new();
    let flags = served.server.flags();
    assert_eq!(flags & export_flag::SEND_WRITE_ZEROES, 0);
    assert_ne!(flags & export_flag::SEND_TRIM, 0);
    served.end();
}

#[test]
fn what_is_sent_again_waits_for_what_a_cut_off_connection_has_under_way() {
    let served = Served::new();
    send_write(&served.driver[0], HANGING_SECTOR);
    assert_eq!(served.next_write(), HANGING_SECTOR);
    // Nothing is cut off: nobody waits.
    send_write(&served.driver[1], 1);
    assert_eq!(served.next_write(), 1);
    assert!(is_answered(&served.driver[1], 1));

    served.driver[0].shutdown(std::net::Shutdown::Both).expect("it is open");
    send_write(&served.driver[1], 2);
    served.settle();
    assert_eq!(served.written.try_recv().ok(), None, "it is executed beside the other one");
    served.let_go();
    assert_eq!(served.next_write(), 2);
    assert!(is_answered(&served.driver[1], 2));
    served.end();
}

#[test]
fn what_a_cut_off_connection_has_not_begun_is_not_executed() {
    let served = Served::new();
    // The write arrives while its lane stands still, and so does the end of its connection.
    let (held, hold) = channel::<()>();
    served.volume.lanes.run_on(LaneId(0), move |_, _| {
        let _ = hold.recv_timeout(PATIENCE);
    });
    send_write(&served.driver[0], 5);
    served.driver[0].shutdown(std::net::Shutdown::Both).expect("it is open");
    drop(held);
    send_write(&served.driver[1], 6);
    assert_eq!(served.next_write(), 6, "the write of the connection that lives");
    assert!(is_answered(&served.driver[1], 6));
    served.end();
}

#[test]
fn a_connection_that_is_cut_off_is_made_anew_and_waits_for_the_old_one() {
    let served = Served::new();
    send_write(&served.driver[0], HANGING_SECTOR);
    assert_eq!(served.next_write(), HANGING_SECTOR);
    served.driver[0].shutdown(std::net::Shutdown::Both).expect("it is open");
    assert_eq!(served.server.cut_off(2), [ConnectionNumber(0)]);
    let anew = connect(&served.server, 0);
    assert_eq!(served.server.cut_off(2), []);
    send_write(&anew, 4);
    served.settle();
    assert_eq!(served.written.try_recv().ok(), None, "the old one has a write under way");
    // One that is cut off while it waits for others ends all the same.
    anew.shutdown(std::net::Shutdown::Both).expect("it is open");
    assert_eq!(served.server.cut_off(2), [ConnectionNumber(0)]);
    served.let_go();
    let third = connect(&served.server, 0);
    send_write(&third, 9);
    assert_eq!(served.next_write(), 9, "what came over the second one is not executed");
    served.end();
}

#[test]
fn a_close_ends_all_connections_and_makes_no_more() {
    let served = Served::new();
    send_write(&served.driver[0], HANGING_SECTOR);
    assert_eq!(served.next_write(), HANGING_SECTOR);
    assert!(served.server.close(Duration::ZERO).is_err(), "a write is under way");
    served.let_go();
    served.server.close(PATIENCE).expect("it has ended");
    let late = connect(&served.server, 0);
    assert_eq!((&late).read(&mut [0]).ok(), Some(0), "nobody serves it");
    drop(late);
    served.end();
}
