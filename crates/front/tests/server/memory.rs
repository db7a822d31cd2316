//! Bytes in memory, served on lanes.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mdspace_engine::lane::{Lane, LaneId};
use mdspace_engine::request::{Queue, Request, RequestError};
use mdspace_front::Address;
use mdspace_front::listener::Listener;
use mdspace_front::nbd::{BlockSizes, Context, Export, Exports, Extent, Server, ServerLimits};
use mdspace_front::volume::{Volume, VolumePart};
use mdspace_io::{IoChoice, LaneIo, Lanes, LanesConfig};

pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
pub(crate) const SIZE_BYTES: usize = 64 << 20;

/// The bytes, shared by all lanes, and how often they were flushed.
#[derive(Clone, Default)]
pub(crate) struct Memory(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    bytes: Vec<u8>,
    flushes: usize,
}

impl Memory {
    pub(crate) fn new() -> Memory {
        let bytes = vec![0; SIZE_BYTES];
        Memory(Arc::new(Mutex::new(State { bytes, flushes: 0 })))
    }

    pub(crate) fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        self.0.lock().expect("no test has panicked").bytes[offset..offset + length].to_vec()
    }

    pub(crate) fn flushes(&self) -> usize {
        self.0.lock().expect("no test has panicked").flushes
    }
}

impl VolumePart for Memory {
    fn submit(self: &Rc<Self>, queue: &Rc<Queue>, tag: u64, request: Request) {
        let mut state = self.0.lock().expect("no test has panicked");
        let range =
            |sector: u64, bytes: usize| sector as usize * 512..sector as usize * 512 + bytes;
        let result: Result<(), RequestError> = match request {
            Request::Read { sector, into } => {
                into.put(0, &state.bytes[range(sector, into.len())]);
                Ok(())
            }
            Request::Write { sector, from, .. } => {
                from.take(0, &mut state.bytes[range(sector, from.len())]);
                Ok(())
            }
            Request::Flush => {
                state.flushes += 1;
                Ok(())
            }
            Request::Discard { sector, sectors }
            | Request::Punch { sector, sectors }
            | Request::WriteZeroes { sector, sectors, .. } => {
                state.bytes[range(sector, sectors as usize * 512)].fill(0);
                Ok(())
            }
        };
        queue.begin();
        queue.end(tag, result);
    }

    /// The first sector is a hole, for a test to find it.
    fn extents(&self, _: Context, bytes: Range<u64>) -> Vec<Extent> {
        let length_bytes = bytes.end - bytes.start;
        if bytes.start > 0 || length_bytes <= 512 {
            return vec![Extent::allocated(length_bytes)];
        }
        vec![Extent::hole(512), Extent::allocated(length_bytes - 512)]
    }
}

struct OnLanes<'a>(&'a Lanes, &'a Memory);

impl Volume for OnLanes<'_> {
    type Part = Memory;

    fn lane_count(&self) -> usize {
        self.0.count()
    }

    fn run_on(
        &self,
        lane: LaneId,
        setup: impl FnOnce(&Rc<Memory>, &Rc<Lane>, &LaneIo) + Send + 'static,
    ) {
        let memory = self.1.clone();
        self.0.run_on(lane, move |lane, io| setup(&Rc::new(memory), lane, io));
    }
}

/// A server in a folder of its own.
pub(crate) struct Served {
    pub(crate) memory: Memory,
    pub(crate) server: Option<Server>,
    pub(crate) lanes: Option<Lanes>,
    folder: tempfile::TempDir,
}

impl Served {
    /// At its [path](Self::path), or elsewhere.
    fn new(io: IoChoice, limits: ServerLimits, address: Option<&Address>) -> Served {
        let folder = tempfile::tempdir().expect("a folder");
        let memory = Memory::new();
        let config = LanesConfig { io, count: 2, ..LanesConfig::default() };
        let lanes = Lanes::start(config).expect("lanes");
        let path = folder.path().join("nbd.sock");
        let here = Address::parse(&format!("nbd:unix:{}", path.display())).expect("an address");
        let address = address.cloned().unwrap_or(here);
        let listener = Listener::bind(&address).expect("listening");
        let volume = OnLanes(&lanes, &memory);
        let server = Server::start(listener, exports(), limits, &volume);
        Served { memory, server: Some(server), lanes: Some(lanes), folder }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("nbd.sock")
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().expect("still served")
    }

    /// Waits until so many clients are connected.
    pub(crate) fn wait_for_clients(&self, count: usize) {
        let until = std::time::Instant::now() + PATIENCE;
        while self.server().clients().len() != count {
            assert!(std::time::Instant::now() < until, "{:?}", self.server().clients());
            std::thread::yield_now();
        }
    }

    /// Closes everything; nothing may be left behind.
    pub(crate) fn end(mut self) {
        let path = self.path();
        self.server.take().expect("still served").close(PATIENCE).expect("closed");
        self.lanes.take().expect("running").stop(PATIENCE).expect("stopped");
        assert!(!Path::new(&path).exists(), "the socket file is gone");
    }
}

fn exports() -> Exports {
    let export = Export {
        name: "memory".into(),
        description: String::new(),
        size_bytes: SIZE_BYTES as u64,
        block_sizes: BlockSizes::new(512, 4096).expect("valid"),
        read_only: false,
        rotational: false,
        trim: true,
        fast_zero: false,
    };
    Exports::new(vec![export]).expect("valid")
}

/// Runs a test on the ring and on the threads.
pub(crate) fn on_both(limits: ServerLimits, test: impl Fn(&Served)) {
    for io in [IoChoice::Uring, IoChoice::Preadv] {
        let served = Served::new(io, limits.clone(), None);
        test(&served);
        served.end();
    }
}

/// The same at an address.
pub(crate) fn on_both_at(address: &Address, limits: ServerLimits, test: impl Fn(&Served)) {
    for io in [IoChoice::Uring, IoChoice::Preadv] {
        let served = Served::new(io, limits.clone(), Some(address));
        test(&served);
        served.end();
    }
}
