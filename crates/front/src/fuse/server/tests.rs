use std::cell::RefCell;
use std::fs::{self, File};
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use mdspace_engine::lane::Lane;
use mdspace_engine::lane::LaneId;
use mdspace_engine::request::{Queue, Request};
use mdspace_io::{LaneIo, Lanes, LanesConfig};
use rustix::fs::FallocateFlags;

use super::*;
use crate::fuse::mount;
use crate::nbd::{BlockSizes, Export, Exports};
use crate::pieces::PIECE_SECTORS;
use crate::volume::VolumePart;

const PATIENCE: Duration = Duration::from_secs(10);

/// Answers nothing but the end of each request.
struct Nothing(Lanes);

struct NothingPart;

impl VolumePart for NothingPart {
    fn submit(self: &Rc<Self>, queue: &Rc<Queue>, tag: u64, _: Request) {
        queue.begin();
        queue.end(tag, Ok(()));
    }
}

impl Volume for Nothing {
    type Part = NothingPart;

    fn lane_count(&self) -> usize {
        self.0.count()
    }

    fn run_on(
        &self,
        lane: LaneId,
        setup: impl FnOnce(&Rc<NothingPart>, &Rc<Lane>, &LaneIo) + Send + 'static,
    ) {
        self.0.run_on(lane, move |lane, io| setup(&Rc::new(NothingPart), lane, io));
    }
}

/// Takes zeroes, and ends them when it is told to.
struct Slow {
    lanes: Lanes,
    taken: Arc<AtomicU64>,
}

struct SlowPart(Arc<AtomicU64>);

thread_local! {
    /// What the lane of this thread has not ended.
    static HELD: RefCell<Vec<(Rc<Queue>, u64)>> = RefCell::default();
}

impl VolumePart for SlowPart {
    fn submit(self: &Rc<Self>, queue: &Rc<Queue>, tag: u64, _: Request) {
        queue.begin();
        HELD.with_borrow_mut(|held| held.push((queue.clone(), tag)));
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

impl Slow {
    fn end_held(&self) {
        let end = || HELD.take().into_iter().for_each(|(queue, tag)| queue.end(tag, Ok(())));
        self.lanes.run_on(LaneId(0), move |_, _| end());
    }
}

impl Volume for Slow {
    type Part = SlowPart;

    fn lane_count(&self) -> usize {
        self.lanes.count()
    }

    fn run_on(
        &self,
        lane: LaneId,
        setup: impl FnOnce(&Rc<SlowPart>, &Rc<Lane>, &LaneIo) + Send + 'static,
    ) {
        let taken = self.taken.clone();
        self.lanes.run_on(lane, move |lane, io| setup(&Rc::new(SlowPart(taken)), lane, io));
    }
}

fn session() -> Session {
    session_of(1 << 20, true)
}

fn session_of(size_bytes: u64, read_only: bool) -> Session {
    let export = Export {
        name: "file".into(),
        description: String::new(),
        size_bytes,
        block_sizes: BlockSizes::new(512, 4096).expect("powers of two"),
        read_only,
        rotational: false,
        trim: false,
        fast_zero: false,
    };
    Session::new(Exports::new(vec![export]).expect("one export"), 0, 0)
}

/// A request that no lane reads is answered by the kernel, with an error.
#[test]
fn a_mount_that_is_given_up_keeps_no_program_waiting() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = mount::prepare(folder.path()).expect("an empty folder");
    let mounted = match Mount::new(&place) {
        Ok(mounted) => mounted,
        Err(why) => return println!("SKIPPED: {why}"),
    };
    let lanes = Lanes::start(LanesConfig { count: 2, ..LanesConfig::default() }).expect("lanes");
    let volume = Nothing(lanes);
    let server = FuseServer::start(mounted, session(), PartialWrites::default(), &volume);
    let server = server.expect("served");
    let file = server.path();
    assert_eq!(fs::metadata(&file).expect("it answers").len(), 1 << 20);
    // As a lane does.
    server.shared.close();
    let (sender, read) = mpsc::channel();
    thread::spawn(move || sender.send(fs::read(file)));
    let read = read.recv_timeout(PATIENCE);
    drop(server);
    assert!(read.expect("the program is not kept waiting").is_err());
    volume.0.stop(PATIENCE).expect("the lanes end");
}

/// Zeroing goes piece by piece. Once the front closes nothing more is zeroed: others may have written there since.
#[test]
fn a_long_zeroing_ends_with_the_front() {
    const BYTES: u64 = 4 * PIECE_SECTORS * 512;
    let folder = tempfile::tempdir().expect("a folder");
    let place = mount::prepare(folder.path()).expect("an empty folder");
    let mounted = match Mount::new(&place) {
        Ok(mounted) => mounted,
        Err(why) => return println!("SKIPPED: {why}"),
    };
    let lanes = Lanes::start(LanesConfig { count: 1, ..LanesConfig::default() }).expect("lanes");
    let volume = Slow { lanes, taken: Arc::default() };
    let session = session_of(BYTES, false);
    let server = FuseServer::start(mounted, session, PartialWrites::default(), &volume);
    let server = server.expect("served");
    let file = File::options().write(true).open(server.path()).expect("it opens");
    let (sender, punched) = mpsc::channel();
    thread::spawn(move || {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        sender.send(rustix::fs::fallocate(&file, hole, 0, BYTES))
    });
    let pieces = || volume.taken.load(Ordering::Acquire);
    let begin = Instant::now();
    while pieces() < 1 && begin.elapsed() < PATIENCE {
        thread::yield_now();
    }
    volume.end_held();
    while pieces() < 2 && begin.elapsed() < PATIENCE {
        thread::yield_now();
    }
    server.close(Duration::ZERO).expect_err("a piece is under way");
    volume.end_held();
    server.close(PATIENCE).expect("the piece has ended");
    assert_eq!(pieces(), 2, "no other piece begins");
    let ended = punched.recv_timeout(PATIENCE).expect("the program is not kept waiting");
    assert!(ended.is_err(), "not all of it is zeroed");
    drop(server);
    volume.lanes.stop(PATIENCE).expect("the lanes end");
}

/// As where no descriptors are left for its lanes.
#[test]
fn a_mount_that_cannot_be_served_does_not_stay() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = mount::prepare(folder.path()).expect("an empty folder");
    let mounted = match Mount::new(&place) {
        Ok(mounted) => mounted,
        Err(why) => return println!("SKIPPED: {why}"),
    };
    drop(mounted);
    assert!(fs::read_dir(&place).expect("nothing is mounted there").next().is_none());
}
