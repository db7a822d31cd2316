//! A disk in memory behind a server of its own, that makes trouble when told to.

use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use mdspace_engine::lane::{Lane, LaneId};
use mdspace_engine::request::{Queue, Request, RequestError};
use mdspace_front::Address;
use mdspace_front::listener::Listener;
use mdspace_front::nbd::{BlockSizes, Export, Exports, Server, ServerLimits};
use mdspace_front::volume::{Volume, VolumePart};
use mdspace_io::{LaneIo, Lanes, LanesConfig};

pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// What the disk holds and does, for tests to look at and to change.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) bytes: Vec<u8>,
    /// What a power cut leaves.
    durable: Vec<u8>,
    pub(crate) latency: Duration,
    pub(crate) unreadable: Range<u64>,
    pub(crate) full: bool,
    pub(crate) flush_fails: bool,
}

impl State {
    pub(crate) fn cut_power(&mut self) {
        self.bytes.clone_from(&self.durable);
    }

    fn serve(&mut self, request: Request) -> Result<(), RequestError> {
        let range = |sector: u64, bytes: usize| {
            let start = sector as usize * 512;
            start..start + bytes
        };
        match request {
            Request::Read { sector, into } => {
                let end = sector + into.len() as u64 / 512;
                if sector < self.unreadable.end && self.unreadable.start < end {
                    return Err(RequestError::Lost);
                }
                into.put(0, &self.bytes[range(sector, into.len())]);
            }
            Request::Write { .. } | Request::WriteZeroes { .. } | Request::Punch { .. }
                if self.full =>
            {
                return Err(RequestError::NoSpace);
            }
            Request::Write { sector, from, fua } => {
                let range = range(sector, from.len());
                from.take(0, &mut self.bytes[range.clone()]);
                self.force(range, fua);
            }
            Request::Flush if self.flush_fails => return Err(RequestError::Lost),
            Request::Flush => self.durable.clone_from(&self.bytes),
            Request::Discard { .. } => {}
            Request::Punch { sector, sectors } => {
                self.bytes[range(sector, sectors as usize * 512)].fill(0);
            }
            Request::WriteZeroes { sector, sectors, fua } => {
                let range = range(sector, sectors as usize * 512);
                self.bytes[range.clone()].fill(0);
                self.force(range, fua);
            }
        }
        Ok(())
    }

    fn force(&mut self, range: Range<usize>, fua: bool) {
        if fua {
            self.durable[range.clone()].copy_from_slice(&self.bytes[range]);
        }
    }
}

/// The disk as its server's lanes see it.
pub(crate) struct Part {
    state: Arc<Mutex<State>>,
    lane: Rc<Lane>,
}

impl VolumePart for Part {
    fn submit(self: &Rc<Self>, queue: &Rc<Queue>, tag: u64, request: Request) {
        let (this, queue) = (self.clone(), queue.clone());
        queue.begin();
        let latency = this.state().latency;
        if latency.is_zero() {
            let result = this.state().serve(request);
            return queue.end(tag, result);
        }
        self.lane.spawn(async move {
            this.lane.sleep_until(this.lane.backend().now() + latency).await;
            let result = this.state().serve(request);
            queue.end(tag, result);
        });
    }
}

impl Part {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test has panicked")
    }
}

struct OnLanes<'a>(&'a Lanes, &'a Arc<Mutex<State>>);

impl Volume for OnLanes<'_> {
    type Part = Part;

    fn lane_count(&self) -> usize {
        self.0.count()
    }

    fn run_on(
        &self,
        lane: LaneId,
        setup: impl FnOnce(&Rc<Part>, &Rc<Lane>, &LaneIo) + Send + 'static,
    ) {
        let state = self.1.clone();
        self.0.run_on(lane, move |lane, io| {
            setup(&Rc::new(Part { state, lane: lane.clone() }), lane, io);
        });
    }
}

/// A disk and its server.
pub(crate) struct Disk {
    state: Arc<Mutex<State>>,
    server: Mutex<Option<Server>>,
    lanes: Option<Lanes>,
    folder: tempfile::TempDir,
}

impl Disk {
    pub(crate) fn new(bytes: usize) -> Disk {
        let zeroes = || vec![0; bytes];
        let state = State { bytes: zeroes(), durable: zeroes(), ..State::default() };
        let state = Arc::new(Mutex::new(state));
        let folder = tempfile::tempdir().expect("a folder");
        let lanes = Lanes::start(LanesConfig::default()).expect("lanes");
        let disk = Disk { state, server: Mutex::default(), lanes: Some(lanes), folder };
        disk.serve();
        disk
    }

    /// Serves it, at the same place again.
    pub(crate) fn serve(&self) {
        let bytes = self.state().bytes.len() as u64;
        let export = Export {
            name: "disk".into(),
            description: String::new(),
            size_bytes: bytes,
            block_sizes: BlockSizes::new(512, 4096).expect("valid"),
            read_only: false,
            rotational: false,
            trim: true,
            fast_zero: false,
        };
        let address = format!("nbd:unix:{}", self.path().display());
        let listener = Listener::bind(&Address::parse(&address).expect("an address"));
        let lanes = self.lanes.as_ref().expect("running");
        let server = Server::start(
            listener.expect("listening"),
            Exports::new(vec![export]).expect("valid"),
            ServerLimits::default(),
            &OnLanes(lanes, &self.state),
        );
        *self.server.lock().expect("no test has panicked") = Some(server);
    }

    /// Ends its server, and with it every connection.
    pub(crate) fn end_server(&self) {
        let server = self.server.lock().expect("no test has panicked").take();
        server.expect("served").close(PATIENCE).expect("closed");
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test has panicked")
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("disk.sock")
    }

    /// What a member over it is called.
    pub(crate) fn name(&self) -> String {
        format!("nbd+unix:///disk?socket={}", self.path().display())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Some(server) = self.server.lock().expect("no test has panicked").take() {
            // Said by the lanes below if it matters.
            drop(server.close(PATIENCE));
        }
        self.lanes.take().expect("running").stop(PATIENCE).expect("stopped");
    }
}
