use std::cell::RefCell;
use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Wake};
use std::thread::{self, Thread};
use std::time::Instant;

use mdspace_engine::lane::LaneId;
use mdspace_engine::request::{Queue, Request};
use mdspace_io::{Lanes, LanesConfig};

use super::*;
use crate::nbd::client::{Answer, Client, Event, Wants};
use crate::nbd::export::{BlockSizes, Export};
use crate::nbd::request::{Command, Framing};

/// Nothing takes longer than this, on whatever machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes of the export.
const EXPORT_BYTES: u64 = 1 << 40;
/// More than a socket holds.
const SIZE_BYTES: u64 = 4 << 20;
/// A read that begins here hangs until the next flush.
const HANGING_BYTE: u64 = SIZE_BYTES - 4096;

/// Zeroes that begin at a multiple of this, but for those at 0, hang until the next flush.
const HANGING_ZEROES: u64 = 128 << 20;

/// Ends each request at once, but those that hang. Says of each write where it is, in bytes.
struct Nothing {
    lanes: Lanes,
    writes: Sender<Range<u64>>,
}

struct NothingPart {
    writes: Sender<Range<u64>>,
    hanging: RefCell<Vec<(Rc<Queue>, u64)>>,
}

impl VolumePart for NothingPart {
    fn submit(self: &Rc<Self>, queue: &Rc<Queue>, tag: u64, request: Request) {
        queue.begin();
        match request {
            Request::Read { sector, .. } if sector * 512 == HANGING_BYTE => {
                return self.hanging.borrow_mut().push((queue.clone(), tag));
            }
            Request::Write { sector, from, .. } => {
                self.writes_come(sector * 512, from.len() as u64);
            }
            Request::WriteZeroes { sector, sectors, .. } => {
                self.writes_come(sector * 512, sectors * 512);
                if sector > 0 && (sector * 512).is_multiple_of(HANGING_ZEROES) {
                    return self.hanging.borrow_mut().push((queue.clone(), tag));
                }
            }
            Request::Flush => {
                self.hanging.take().iter().for_each(|(queue, tag)| queue.end(*tag, Ok(())));
            }
            _ => {}
        }
        queue.end(tag, Ok(()));
    }
}

impl NothingPart {
    fn writes_come(&self, start: u64, bytes: u64) {
        self.writes.send(start..start + bytes).expect("the test waits for it");
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
        let writes = self.writes.clone();
        self.lanes.run_on(lane, move |lane, io| {
            setup(&Rc::new(NothingPart { writes, hanging: RefCell::default() }), lane, io);
        });
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Whether it has an end.
fn ends(future: impl Future) -> bool {
    let (mut future, waker) = (pin!(future), Arc::new(Unpark(thread::current())).into());
    let until = Instant::now() + PATIENCE;
    while future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        thread::park_timeout(left);
    }
    true
}

fn connect(path: &Path, wants: Wants) -> (UnixStream, Client) {
    let mut socket = UnixStream::connect(path).expect("it listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let mut client = Client::new(wants);
    loop {
        socket.write_all(&client.take_output()).expect("it listens");
        let mut byte = [0];
        socket.read_exact(&mut byte).expect("an answer in time");
        if let Event::Ready(_) = client.poll(&mut &byte[..]) {
            return (socket, client);
        }
    }
}

/// Nothing, served in a folder of its own.
struct Served {
    folder: tempfile::TempDir,
    volume: Nothing,
    server: Server,
    written: Receiver<Range<u64>>,
}

impl Served {
    fn new(limits: ServerLimits) -> Served {
        let folder = tempfile::tempdir().expect("a folder");
        let address = format!("nbd:unix:{}", folder.path().join("socket").display());
        let listener = Listener::bind(&address.parse().expect("an address")).expect("a socket");
        let export = Export {
            name: "disk".into(),
            description: String::new(),
            size_bytes: EXPORT_BYTES,
            block_sizes: BlockSizes::new(512, 4096).expect("powers of two"),
            read_only: false,
            rotational: false,
            trim: false,
            fast_zero: false,
        };
        let (writes, written) = channel();
        let lanes = Lanes::start(LanesConfig::default()).expect("lanes");
        let volume = Nothing { lanes, writes };
        let exports = Exports::new(vec![export]).expect("one export");
        let server = Server::start(listener, exports, limits, &volume);
        Served { folder, volume, server, written }
    }

    fn connect(&self) -> (UnixStream, Client) {
        self.connect_with(Framing::Simple)
    }

    fn connect_with(&self, framing: Framing) -> (UnixStream, Client) {
        let wants = Wants { framing, ..Wants::default() };
        connect(&self.folder.path().join("socket"), wants)
    }

    fn end(self) {
        drop(self.server);
        self.volume.lanes.stop(PATIENCE).expect("the lanes end");
    }
}

/// Sends what the client has to say.
fn say((socket, client): &mut (UnixStream, Client)) {
    socket.write_all(&client.take_output()).expect("it listens");
}

/// The answer that comes next, of several at most one at a time.
fn answer((socket, client): &mut (UnixStream, Client)) -> Answer {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let count = socket.read(&mut bytes).expect("an answer in time");
        if let Event::Answer(_, answer) = client.poll(&mut &bytes[..count]) {
            return answer;
        }
    }
}

/// Its write has ended, and its answer waits behind one that the client does not take.
#[test]
fn a_client_that_takes_no_answers_keeps_no_part_of_a_block_waiting() {
    let limits = ServerLimits::default();
    let parts = limits.partial_writes.clone();
    let served = Served::new(limits);
    let mut it = served.connect();
    it.1.send(Command::Read, 0, SIZE_BYTES, &[]);
    say(&mut it);
    it.0.read_exact(&mut [0]).expect("the answer has begun, and is more than a socket holds");
    it.1.send(Command::Write { fua: false }, 0, 512, &[7; 512]);
    say(&mut it);
    served.written.recv_timeout(PATIENCE).expect("the write comes");
    assert!(ends(parts.begin(0..512)), "the write has ended");
    drop(it);
    served.end();
}

/// A client that zeroes all of the export, and hangs in the third piece of that.
fn zeroing(served: &Served) -> (UnixStream, Client) {
    let mut client = served.connect_with(Framing::Extended);
    let zero = Command::WriteZeroes { fua: false, no_hole: false, fast: false };
    client.1.send(zero, 0, EXPORT_BYTES, &[]);
    say(&mut client);
    let piece = 64 << 20;
    for start in [0, piece, HANGING_ZEROES] {
        let written = served.written.recv_timeout(PATIENCE).expect("the next piece comes");
        assert_eq!(written, start..start + piece);
    }
    client
}

fn flush(client: &mut (UnixStream, Client)) {
    client.1.send(Command::Flush, 0, 0, &[]);
    say(client);
    answer(client);
}

/// Ends what hangs until this is the only client.
fn others_go(served: &Served, last: &mut (UnixStream, Client)) {
    let mut flushes = 0..1000;
    while served.server.clients().len() > 1 {
        flushes.next().expect("all pieces of a long range take many more");
        flush(last);
    }
}

/// Ends what hangs until nobody else is there, and the server.
fn all_go(served: Served) {
    let mut last = served.connect();
    others_go(&served, &mut last);
    drop(last);
    served.end();
}

#[test]
fn a_part_of_a_block_waits_for_one_piece_of_a_long_range() {
    let limits = ServerLimits::default();
    let parts = limits.partial_writes.clone();
    let served = Served::new(limits);
    let client = zeroing(&served);
    assert!(ends(parts.begin(0..512)), "a piece that has ended is not under way");
    let mut hung = pin!(parts.begin(HANGING_ZEROES..HANGING_ZEROES + 512));
    let waker = Arc::new(Unpark(thread::current())).into();
    assert!(hung.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let mut other = served.connect();
    flush(&mut other);
    assert!(ends(hung), "the piece has ended");
    drop(client);
    others_go(&served, &mut other);
    drop(other);
    served.end();
}

#[test]
fn a_long_range_ends_with_its_client() {
    let served = Served::new(ServerLimits::default());
    drop(zeroing(&served));
    all_go(served);
}

/// It has as many requests as it may: nothing more is read of it.
#[test]
fn a_long_range_ends_with_a_client_that_is_not_read() {
    let session = Limits { requests: 1, ..Limits::default() };
    let served = Served::new(ServerLimits { session, ..ServerLimits::default() });
    drop(zeroing(&served));
    all_go(served);
}

/// It stays connected, and takes its answers.
#[test]
fn a_long_range_ends_when_its_client_breaks_the_protocol() {
    let served = Served::new(ServerLimits::default());
    let mut client = zeroing(&served);
    client.0.write_all(&[0xff; 64]).expect("sent");
    let mut other = served.connect();
    others_go(&served, &mut other);
    drop((client, other));
    served.end();
}

#[test]
fn a_client_with_a_read_that_hangs_keeps_nothing_that_it_does_not_use() {
    let limits = ServerLimits {
        session: Limits { own_bytes: 4 << 10, ..Limits::default() },
        budget: Budget::new(192 << 10),
        ..ServerLimits::default()
    };
    let served = Served::new(limits);
    let mut quiet = served.connect();
    quiet.1.send(Command::Read, HANGING_BYTE, 4 << 10, &[]);
    quiet.1.send(Command::Read, 0, 188 << 10, &[]);
    say(&mut quiet);
    assert!(matches!(answer(&mut quiet), Answer::Data(_)));
    let mut other = served.connect();
    other.1.send(Command::Read, 0, 64 << 10, &[]);
    say(&mut other);
    assert!(matches!(answer(&mut other), Answer::Data(_)), "nobody uses what it needs");
    quiet.1.send(Command::Flush, 0, 0, &[]);
    say(&mut quiet);
    answer(&mut quiet);
    drop((quiet, other));
    served.end();
}
