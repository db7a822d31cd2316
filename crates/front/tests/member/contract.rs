//! The contract of the backends, kept across a connection.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use mdspace_engine::backend::MemberId;
use mdspace_engine::contract::{Subject, Trouble, Wanted, check_all};
use mdspace_engine::lane::Lane;
use mdspace_io::{IoChoice, LanesConfig, LocalLane, MemberTable, OpenMode};

use crate::disk::{Disk, PATIENCE};

struct Networked {
    lane: LocalLane,
    table: Arc<MemberTable>,
    disks: RefCell<Vec<(MemberId, Disk)>>,
}

impl Networked {
    fn subject(io: IoChoice) -> Rc<dyn Subject> {
        let config = LanesConfig { io, ..LanesConfig::default() };
        let lane = LocalLane::new(&config).expect("a lane");
        Rc::new(Self { lane, table: config.members, disks: RefCell::default() })
    }
}

impl Subject for Networked {
    fn lane(&self) -> &Rc<Lane> {
        self.lane.lane()
    }

    fn open(&self, wanted: Wanted) -> MemberId {
        let disk = Disk::new(wanted.sectors as usize * 512);
        disk.state().latency = wanted.latency;
        let (id, info) = self.table.open(&disk.name(), OpenMode::RUN).expect("an open member");
        assert_eq!((info.sectors, info.logical_block_bytes), (wanted.sectors, 512));
        self.disks.borrow_mut().push((id, disk));
        id
    }

    fn close(&self, member: MemberId) {
        self.table.close(member);
    }

    fn inject(&self, member: MemberId, trouble: Trouble) -> bool {
        let disks = self.disks.borrow();
        let (_, disk) = disks.iter().find(|(id, _)| *id == member).expect("a disk of this test");
        match trouble {
            Trouble::Unreadable(sectors) => disk.state().unreadable = sectors,
            Trouble::Gone => disk.end_server(),
            Trouble::NoSpace => disk.state().full = true,
            Trouble::FlushFails => disk.state().flush_fails = true,
            Trouble::PowerCut => disk.state().cut_power(),
        }
        true
    }

    fn keeps_late_memory(&self) -> bool {
        false
    }

    fn drive(&self, done: &dyn Fn() -> bool) {
        let until = Instant::now() + PATIENCE * 6;
        self.lane.run_until(|| {
            assert!(Instant::now() < until, "this should have ended long ago");
            done()
        });
    }
}

#[test]
fn an_export_over_the_ring_keeps_the_contract() {
    assert!(check_all(|| Networked::subject(IoChoice::Uring)).is_empty());
}

#[test]
fn an_export_over_threads_keeps_the_contract() {
    assert!(check_all(|| Networked::subject(IoChoice::Preadv)).is_empty());
}
