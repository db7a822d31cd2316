use std::cell::RefCell;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Wake};
use std::thread::{self, Thread};

use mdspace_engine::request::{Queue, Request};
use mdspace_io::{Lanes, LanesConfig};

use super::*;
use crate::nbd::client::{Answer, Client, Event, Wants};
use crate::nbd::export::{BlockSizes, Export};
use crate::nbd::request::Command;

/// Nothing takes longer than this, on whatever machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes of the export.
const SIZE_BYTES: u32 = 4 << 20;
/// A read that begins here hangs until the next flush.
const HANGING_BYTE: u32 = SIZE_BYTES - 4096;

/// Ends each request at once, but those that hang. Says of each write that it has come.
struct Nothing {
    lanes: Lanes,
    writes: Sender<()>,
}

struct NothingPart {
    writes: Sender<()>,
    hanging: RefCell<Vec<(Rc<Queue>, u64)>>,
}

impl VolumePart for NothingPart {
    fn submit(self: &Rc<Self>, queue: &Rc<Queue>, tag: u64, request: Request) {
        queue.begin();
        match request {
            Request::Read { sector, .. } if sector * 512 == u64::from(HANGING_BYTE) => {
                return self.hanging.borrow_mut().push((queue.clone(), tag));
            }
            Request::Write { .. } => self.writes.send(()).expect("the test waits for it"),
            Request::Flush => {
                self.hanging.take().iter().for_each(|(queue, tag)| queue.end(*tag, Ok(())));
            }
            _ => {}
        }
        queue.end(tag, Ok(()));
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

fn connect(path: &Path) -> (UnixStream, Client) {
    let mut socket = UnixStream::connect(path).expect("it listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let mut client = Client::new(Wants::default());
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
    written: Receiver<()>,
}

impl Served {
    fn new(limits: ServerLimits) -> Served {
        let folder = tempfile::tempdir().expect("a folder");
        let address = format!("nbd:unix:{}", folder.path().join("socket").display());
        let listener = Listener::bind(&address.parse().expect("an address")).expect("a socket");
        let export = Export {
            name: "disk".into(),
            description: String::new(),
            size_bytes: SIZE_BYTES.into(),
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
        connect(&self.folder.path().join("socket"))
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

#[test]
fn a_client_with_a_read_that_hangs_keeps_nothing_that_it_does_not_use() {
    let limits = ServerLimits {
        session: Limits { own_bytes: 4 << 10, ..Limits::default() },
        budget: Budget::new(192 << 10),
        ..ServerLimits::default()
    };
    let served = Served::new(limits);
    let mut quiet = served.connect();
    quiet.1.send(Command::Read, HANGING_BYTE.into(), 4 << 10, &[]);
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
