//! Users and a rebuild of the same disks, on disks that take their time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use mdspace_engine::request::{Queue, Request};
use mdspace_engine::status::{MemberState, SyncAction};

use crate::shapes::{self, Shape};
use crate::world::{Answers, SECTOR, Setup, World};

/// 10 MB/s: 8 MiB of a member take 0.8 s.
const SLOW: Answers = Answers::Slow(100);
const MEMBER_SECTORS: u64 = 16 << 10;
const KIB_S: u64 = 1_000_000_000 / 100 / 1024;

/// Users who read 4 KiB, think for 2 ms, and read again.
struct Readers {
    go_on: Rc<Cell<bool>>,
    /// How long each read took, in microseconds.
    took: Rc<RefCell<Vec<u64>>>,
}

impl Readers {
    fn start(world: &mut World) -> Self {
        let readers = Self { go_on: Rc::new(Cell::new(true)), took: Rc::default() };
        let (go_on, took) = (readers.go_on.clone(), readers.took.clone());
        let (port, lane) = (world.port(0), world.lane(0));
        let blocks = world.sectors() / 8;
        world.spawn_on(0, async move {
            let mut at = 1_u64;
            while go_on.get() {
                let queue = Queue::new();
                at = at * 48_271 % 2_147_483_647;
                let into = Rc::new(RefCell::new(vec![0; 8 * SECTOR]));
                let began = lane.backend().now();
                port.submit(&queue, 0, Request::Read { sector: at % blocks * 8, into });
                queue.next().await.result.expect("the array bears it");
                let ended = lane.backend().now();
                took.borrow_mut().push(ended.since(began).as_micros() as u64);
                lane.sleep_until(ended + Duration::from_millis(2)).await;
            }
        });
        readers
    }

    /// What one read in a hundred took at least, since the last time.
    fn slow_us(&self) -> u64 {
        let mut took = self.took.take();
        took.sort_unstable();
        took[took.len() * 99 / 100]
    }
}

/// A RAID5 that lacks a member and knows how its users fare.
fn lacking(seed: u64, least: &str, target: &str) -> (World, Readers) {
    let shape = Shape { member_sectors: MEMBER_SECTORS, bitmap: false, ..shapes::RAID5 };
    let shape = Shape { chunk_sectors: 1024, ..shape };
    let mut world = World::synced(Setup { answers: SLOW, ..Setup::new(shape, seed) });
    world.set("sync_speed_min", least);
    world.set("sync_latency_target", target);
    world.fail(1);
    let readers = Readers::start(&mut world);
    world.sleep_ms(3000);
    readers.slow_us();
    (world, readers)
}

/// KiB/s of the rebuild for so long.
fn speed(world: &mut World, ms: u64) -> u64 {
    let before = world.status().sync.completed_sectors;
    let began = world.now_ms();
    world.sleep_ms(ms);
    let sync = world.status().sync;
    assert_eq!(sync.action, SyncAction::Recover, "it is not over yet");
    (sync.completed_sectors - before) / 2 * 1000 / (world.now_ms() - began)
}

#[test]
fn an_array_without_users_rebuilds_at_full_speed_within_100_ms() {
    for (seed, target, ms) in [(1, "2", 1500), (2, "0", 200)] {
        let (mut world, readers) = lacking(seed, "100", target);
        world.add(4).unwrap();
        world.sleep_ms(ms);
        readers.go_on.set(false);
        world.sleep_ms(100);
        let found = speed(&mut world, 150);
        assert!(found * 10 >= KIB_S * 8, "{found} of {KIB_S} KiB/s, target {target} ({world})");
        world.wait_status("a whole array", |status| status.degraded() == 0);
    }
}

#[test]
fn users_hardly_notice_a_rebuild_that_heeds_them() {
    let mut slow = Vec::new();
    for target in ["2", "0"] {
        let (mut world, readers) = lacking(3, "100", target);
        world.sleep_ms(1000);
        let alone = readers.slow_us();
        world.add(4).unwrap();
        let found = speed(&mut world, 500);
        slow.push((alone, readers.slow_us(), found));
        readers.go_on.set(false);
    }
    let [(alone, heeded, slow_speed), (_, unheeded, speed)] = slow[..] else {
        unreachable!("two runs")
    };
    assert!(heeded * 10 <= alone * 23 && slow_speed >= 100, "{slow:?}");
    // It is the target that does it.
    assert!(unheeded > 10 * alone && speed * 10 >= KIB_S * 8, "{slow:?}");
}

/// Below `sync_speed_min` users have to bear it; it looks for a second first whether that helps them.
#[test]
fn a_rebuild_is_no_slower_than_sync_speed_min() {
    let (mut world, readers) = lacking(4, "2000", "1");
    world.add(4).unwrap();
    world.sleep_ms(2500);
    let found = speed(&mut world, 1000);
    assert!((1700..=2400).contains(&found), "{found} KiB/s, not about 2000 ({world})");
    readers.go_on.set(false);
    world.wait_status("a whole array", |status| status.degraded() == 0);
    assert_eq!(world.member_state(4), Some(MemberState::InSync));
    world.verify();
}
