use std::fs;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;

use mdspace_engine::lane::Lane;
use mdspace_engine::lane::LaneId;
use mdspace_engine::request::{Queue, Request};
use mdspace_io::{LaneIo, Lanes, LanesConfig};

use super::*;
use crate::fuse::mount;
use crate::nbd::{BlockSizes, Export, Exports};
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

fn session() -> Session {
    let export = Export {
        name: "file".into(),
        description: String::new(),
        size_bytes: 1 << 20,
        block_sizes: BlockSizes::new(512, 4096).expect("powers of two"),
        read_only: true,
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
