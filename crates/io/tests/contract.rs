//! The backends' contract, kept by both ways to the kernel, on every kind of member.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

#[path = "contract/own.rs"]
mod own;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mdspace_engine::backend::MemberId;
use mdspace_engine::contract::{Subject, Trouble, Wanted, check_all};
use mdspace_engine::lane::Lane;
use mdspace_io::{IoChoice, LanesConfig, LocalLane, MemberTable, OpenMode};

/// Cases that need trouble which real members do not make on demand.
const NEEDS_A_SIMULATOR: [&str; 7] = [
    "unreadable_sectors_are_a_medium_error",
    "a_gone_member_says_so",
    "a_full_member_says_so",
    "a_failed_flush_says_so",
    "a_flushed_write_survives_a_power_cut",
    "a_forced_write_survives_a_power_cut",
    "forced_zeroes_survive_a_power_cut",
];

#[derive(Clone)]
enum Members {
    Files { directory: PathBuf, buffered: bool },
    Ram,
    Null,
    Own,
}

struct Real {
    lane: LocalLane,
    table: Arc<MemberTable>,
    members: Members,
    files: RefCell<Vec<PathBuf>>,
    own: RefCell<BTreeMap<MemberId, Arc<own::Disk>>>,
}

impl Real {
    fn subject(io: IoChoice, members: &Members) -> Rc<dyn Subject> {
        let config = LanesConfig { io, ..LanesConfig::default() };
        let lane = LocalLane::new(&config).unwrap();
        let (table, members) = (config.members, members.clone());
        Rc::new(Self { lane, table, members, files: RefCell::default(), own: RefCell::default() })
    }

    fn open_file(&self, directory: &std::path::Path, buffered: bool, bytes: u64) -> MemberId {
        let number = self.files.borrow().len();
        let name = format!("mdspace-contract-{}-{:p}-{number}", std::process::id(), self);
        let path = directory.join(name);
        File::create(&path).unwrap().set_len(bytes).unwrap();
        let mode = OpenMode { buffered, ..OpenMode::RUN };
        let (id, _) = self.table.open(path.to_str().unwrap(), mode).unwrap();
        self.files.borrow_mut().push(path);
        id
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        for path in self.files.borrow().iter() {
            std::fs::remove_file(path).unwrap();
        }
    }
}

impl Subject for Real {
    fn lane(&self) -> &Rc<Lane> {
        self.lane.lane()
    }

    fn open(&self, wanted: Wanted) -> MemberId {
        let bytes = wanted.sectors * 512;
        if wanted.latency > Duration::ZERO {
            let name = format!("null:{bytes}?latency={}us", wanted.latency.as_micros());
            return self.table.open(&name, OpenMode::RUN).unwrap().0;
        }
        match &self.members {
            Members::Files { directory, buffered } => self.open_file(directory, *buffered, bytes),
            Members::Null => {
                let name = format!("null:{bytes}?memory_backed=1&latency=20us&queues=2&p99=3");
                self.table.open(&name, OpenMode::RUN).unwrap().0
            }
            Members::Own => {
                let disk = own::Disk::new(bytes as usize);
                let (id, _) = self.table.open_own("own", disk.clone(), false).unwrap();
                self.own.borrow_mut().insert(id, disk);
                id
            }
            Members::Ram => self.table.open(&format!("ram:{bytes}"), OpenMode::RUN).unwrap().0,
        }
    }

    fn close(&self, member: MemberId) {
        self.table.close(member);
    }

    fn inject(&self, member: MemberId, trouble: Trouble) -> bool {
        let own = self.own.borrow();
        own.get(&member).inspect(|disk| disk.make(trouble)).is_some()
    }

    fn drive(&self, done: &dyn Fn() -> bool) {
        let until = Instant::now() + Duration::from_secs(60);
        self.lane.run_until(|| {
            assert!(Instant::now() < until, "this should have ended long ago");
            done()
        });
    }
}

fn check(io: IoChoice, members: &Members) -> Vec<&'static str> {
    check_all(|| Real::subject(io, members))
}

fn files(directory: impl Into<PathBuf>, buffered: bool) -> Members {
    Members::Files { directory: directory.into(), buffered }
}

/// Where the target directory lies there is a disk; `/tmp` may be memory.
const ON_DISK: &str = env!("CARGO_TARGET_TMPDIR");

#[test]
fn direct_files_over_the_ring_keep_the_contract() {
    assert_eq!(check(IoChoice::Uring, &files(ON_DISK, false)), NEEDS_A_SIMULATOR);
}

#[test]
fn buffered_files_over_the_ring_keep_the_contract() {
    assert_eq!(check(IoChoice::Uring, &files(ON_DISK, true)), NEEDS_A_SIMULATOR);
}

#[test]
fn direct_files_over_threads_keep_the_contract() {
    assert_eq!(check(IoChoice::Preadv, &files(ON_DISK, false)), NEEDS_A_SIMULATOR);
}

#[test]
fn buffered_files_over_threads_keep_the_contract() {
    assert_eq!(check(IoChoice::Preadv, &files(ON_DISK, true)), NEEDS_A_SIMULATOR);
}

#[test]
fn files_in_shared_memory_keep_the_contract() {
    assert_eq!(check(IoChoice::Auto, &files("/dev/shm", false)), NEEDS_A_SIMULATOR);
}

#[test]
fn memory_keeps_the_contract() {
    assert_eq!(check(IoChoice::Auto, &Members::Ram), NEEDS_A_SIMULATOR);
}

#[test]
fn a_modelled_device_keeps_the_contract() {
    assert_eq!(check(IoChoice::Auto, &Members::Null), NEEDS_A_SIMULATOR);
}

/// All of it: it makes trouble on demand.
#[test]
fn a_device_of_the_embedding_program_keeps_the_contract() {
    assert!(check(IoChoice::Auto, &Members::Own).is_empty());
}
