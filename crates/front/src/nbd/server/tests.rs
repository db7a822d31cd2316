use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::pin::pin;
use std::sync::mpsc::{Sender, channel};
use std::task::{Context, Wake};
use std::thread::{self, Thread};

use mdspace_engine::request::{Queue, Request};
use mdspace_io::{Lanes, LanesConfig};

use super::*;
use crate::nbd::client::{Client, Event, Wants};
use crate::nbd::export::{BlockSizes, Export};
use crate::nbd::request::Command;

/// Nothing takes longer than this, on whatever machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Ends each request at once, and says of each write that it has come.
struct Nothing {
    lanes: Lanes,
    writes: Sender<()>,
}

struct NothingPart(Sender<()>);

impl VolumePart for NothingPart {
    fn submit(self: &Rc<Self>, queue: &Rc<Queue>, tag: u64, request: Request) {
        queue.begin();
        queue.end(tag, Ok(()));
        if let Request::Write { .. } = request {
            self.0.send(()).expect("the test waits for it");
        }
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
        self.lanes.run_on(lane, move |lane, io| setup(&Rc::new(NothingPart(writes)), lane, io));
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

/// Its write has ended, and its answer waits behind one that the client does not take.
#[test]
fn a_client_that_takes_no_answers_keeps_no_part_of_a_block_waiting() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let address = format!("nbd:unix:{}", path.display()).parse().expect("an address");
    let listener = Listener::bind(&address).expect("a socket");
    let export = Export {
        name: "disk".into(),
        description: String::new(),
        size_bytes: 4 << 20,
        block_sizes: BlockSizes::new(512, 4096).expect("powers of two"),
        read_only: false,
        rotational: false,
        trim: false,
        fast_zero: false,
    };
    let (limits, (writes, written)) = (ServerLimits::default(), channel());
    let parts = limits.partial_writes.clone();
    let lanes = Lanes::start(LanesConfig::default()).expect("lanes");
    let volume = Nothing { lanes, writes };
    let exports = Exports::new(vec![export]).expect("one export");
    let server = Server::start(listener, exports, limits, &volume);
    let (mut socket, mut client) = connect(&path);
    client.send(Command::Read, 0, 4 << 20, &[]);
    socket.write_all(&client.take_output()).expect("it listens");
    socket.read_exact(&mut [0]).expect("the answer has begun, and is more than a socket holds");
    client.send(Command::Write { fua: false }, 0, 512, &[7; 512]);
    socket.write_all(&client.take_output()).expect("it listens");
    written.recv_timeout(PATIENCE).expect("the write comes");
    assert!(ends(parts.begin(0..512)), "the write has ended");
    drop((socket, server));
    volume.lanes.stop(PATIENCE).expect("the lanes end");
}
