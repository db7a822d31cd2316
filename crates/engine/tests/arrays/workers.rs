//! Lanes that give writes to workers, while workers come and go and members fail.

use std::rc::Rc;

use mdspace_engine::array::{Action, CommandError};
use mdspace_engine::backend::IoErrorKind;
use mdspace_engine::request::Request;
use mdspace_engine::status::MemberState;

use crate::shapes::{self, Shape};
use crate::world::{Pending, SECTOR, Setup, Worker, World};

/// Each write lies in a place of its own of so many sectors.
const PLACE_SECTORS: u64 = 16;

fn setup(shape: Shape, seed: u64) -> Setup {
    Setup { workers: 2, ..Setup::shuffled(shape, seed) }
}

/// Starts short writes on one lane, all at once and apart from each other.
fn write_at_once(world: &mut World, lane: usize) -> Vec<Pending> {
    let block = u64::from(world.shape().block_bytes) / SECTOR as u64;
    let places = world.sectors() / PLACE_SECTORS;
    let mut started = Vec::new();
    for place in 0..places {
        if world.random.one_in(3) {
            continue;
        }
        let blocks = 1 + world.random.below(PLACE_SECTORS / block - 1);
        let left = PLACE_SECTORS / block - blocks;
        let sectors = blocks * block;
        let sector = place * PLACE_SECTORS + world.random.below(left + 1) * block;
        let bytes = world.random.bytes(sectors as usize * SECTOR);
        world.remember(sector, &bytes);
        let request = Request::Write { sector, from: Rc::new(bytes), fua: false };
        started.push(world.submit(lane, request));
    }
    started
}

fn end_all(world: &mut World, started: Vec<Pending>) {
    for write in started {
        world.end(&write).unwrap_or_else(|error| panic!("a write: {error} ({world})"));
    }
}

#[test]
fn workers_take_a_share_and_all_that_was_written_is_there() {
    for (seed, shape) in (1..).zip(shapes::parity()) {
        let mut world = World::synced(setup(shape, seed));
        let workers = [world.hire(0), world.hire(1)];
        for _ in 0..4 {
            let (one, other) = (world.some_lane(), world.some_lane());
            let mut started = write_at_once(&mut world, one);
            end_all(&mut world, std::mem::take(&mut started));
            started = write_at_once(&mut world, other);
            end_all(&mut world, started);
        }
        assert!(world.worker_ios() > 0, "{world}");
        world.verify();
        assert_eq!(world.check(), 0, "{world}");
        workers.iter().for_each(|worker| world.dismiss(worker));
        world.until("the leave of all workers", |world| world.hired() == 0);
        world.restart();
        world.verify();
    }
}

#[test]
fn without_workers_a_lane_serves_all_itself() {
    let mut world = World::synced(setup(shapes::RAID6, 40));
    let started = write_at_once(&mut world, 0);
    end_all(&mut world, started);
    assert_eq!(world.worker_ios(), 0, "{world}");
    world.verify();
}

#[test]
fn one_write_alone_wakes_no_worker() {
    let mut world = World::synced(setup(shapes::RAID5, 41));
    let _worker = world.hire(0);
    for sector in 0..20 {
        let bytes = world.random.bytes(SECTOR);
        world.remember(sector, &bytes);
        let request = Request::Write { sector, from: Rc::new(bytes), fua: false };
        let started = vec![world.submit(0, request)];
        end_all(&mut world, started);
    }
    assert_eq!(world.worker_ios(), 0, "{world}");
    world.verify();
}

/// Starts writes of so many sectors at once, each to the end of a row of its own.
fn write_rows_at_once(world: &mut World, rows: u64, sectors: u64) -> Vec<Pending> {
    let shape = world.shape();
    let row_sectors = u64::from(shape.chunk_sectors) * u64::from(shape.disks - 1);
    let write = |row| {
        let sector = (row + 1) * row_sectors - sectors;
        let bytes = world.random.bytes(sectors as usize * SECTOR);
        world.remember(sector, &bytes);
        world.submit(0, Request::Write { sector, from: Rc::new(bytes), fua: false })
    };
    (0..rows).map(write).collect()
}

/// Its waking costs more than a few short rounds.
#[test]
fn a_worker_gets_many_rounds_or_long_ones() {
    let shape = Shape { chunk_sectors: 128, member_sectors: 2048, ..shapes::RAID5 };
    for (rows, sectors, is_worth) in [(5, 8, false), (6, 8, true), (2, 64, false), (2, 384, true)] {
        let mut world = World::synced(setup(shape, 42));
        let _worker = world.hire(0);
        world.turns(10);
        let started = write_rows_at_once(&mut world, rows, sectors);
        end_all(&mut world, started);
        assert_eq!(world.worker_ios() > 0, is_worth, "{rows} rows, {sectors} sectors of each");
        world.verify();
    }
}

/// Workers are hired and dismissed at any moment, the batch and the stripe cache change, and nothing waits for ever.
#[test]
fn workers_come_and_go_while_writes_are_under_way() {
    for (seed, shape) in (50..).zip([shapes::RAID5, shapes::RAID6, shapes::RAID5, shapes::RAID6]) {
        let mut world = World::synced(setup(shape, seed));
        let mut seats: [Option<Worker>; 2] = [None, None];
        for _ in 0..40 {
            let lane = world.some_lane();
            let started = write_at_once(&mut world, lane);
            for (index, seat) in seats.iter_mut().enumerate() {
                let moment = world.random.below(12) as usize;
                world.rounds(moment);
                match seat {
                    None => *seat = Some(world.hire(index)),
                    Some(worker) if world.has_left(worker) => *seat = None,
                    Some(worker) => world.dismiss(worker),
                }
            }
            let batch = 1 + world.random.below(256);
            world.set("max_stripe_batch", &batch.to_string());
            let stripes = 17 + world.random.below(1000);
            world.set("stripe_cache_size", &stripes.to_string());
            end_all(&mut world, started);
        }
        assert!(world.worker_ios() > 0, "{world}");
        seats.iter().flatten().for_each(|worker| world.dismiss(worker));
        world.until("the leave of all workers", |world| world.hired() == 0);
        world.verify();
        assert_eq!(world.check(), 0, "{world}");
        world.restart();
    }
}

/// A member fails the writes of workers and of lanes alike: all are answered, and it is done without.
#[test]
fn a_member_that_fails_a_workers_write_is_done_without() {
    for (seed, shape) in (70..).zip(shapes::parity()) {
        for grace in [0, 3, 9] {
            let mut world = World::synced(setup(shape, seed));
            let _workers = [world.hire(0), world.hire(1)];
            world.disks.disk(1).write_error = Some(IoErrorKind::Other);
            world.disks.disk(1).grace = grace;
            for _ in 0..2 {
                let started = write_at_once(&mut world, 0);
                end_all(&mut world, started);
            }
            world.wait_status("a failed member", |status| status.degraded() > 0);
            assert_eq!(world.member_state(1), Some(MemberState::Faulty), "{world}");
            world.verify();
        }
    }
}

/// The process dies with writes on desks and in workers' hands.
#[test]
fn after_a_crash_the_rows_that_workers_wrote_are_made_right() {
    for (seed, shape) in (90..).zip([shapes::RAID5, shapes::RAID6]) {
        for rounds in [1, 4, 9, 16] {
            let mut world = World::synced(setup(shape, seed));
            let _workers = [world.hire(0), world.hire(1)];
            let started = write_at_once(&mut world, 0);
            world.rounds(rounds);
            drop(started);
            world.crash();
            world.assemble_all().unwrap();
            world.wait_idle();
            assert_eq!(world.check(), 0, "{world}");
        }
    }
}

/// An order to stop while workers write: every write is answered, done or refused.
#[test]
fn a_stop_waits_for_workers() {
    for seed in 110..120 {
        let mut world = World::synced(setup(shapes::RAID6, seed));
        let workers = [world.hire(0), world.hire(1)];
        let started = write_at_once(&mut world, 0);
        let moment = world.random.below(10) as usize;
        world.rounds(moment);
        world.order(Action::Stop);
        world.until("every answer", |_| started.iter().all(Pending::has_ended));
        workers.iter().for_each(|worker| world.dismiss(worker));
        world.until("the leave of all workers", |world| world.hired() == 0);
        world.rounds(10_000);
        world.forget_array();
        world.assemble_all().unwrap();
        world.wait_idle();
        assert_eq!(world.check(), 0, "{world}");
    }
}

/// An array that has failed disk 1, which still holds a write of the worker.
fn with_a_late_write_of_a_worker(shape: Shape, seed: u64) -> (World, Worker) {
    let mut world = World::synced(setup(shape, seed));
    let worker = world.hire(0);
    world.hang_writes_of(&worker, 1);
    while world.held_of(&worker, 1) == 0 {
        let started = write_at_once(&mut world, 0);
        end_all(&mut world, started);
    }
    assert_eq!(world.member_state(1), Some(MemberState::Faulty), "{world}");
    (world, worker)
}

/// The old bytes may land as long as the member has not answered that worker.
#[test]
fn a_device_that_owes_an_answer_to_a_worker_that_was_dismissed_is_not_taken_back() {
    for (seed, shape) in (130..).zip(shapes::parity()) {
        for removed in [false, true] {
            let (mut world, worker) = with_a_late_write_of_a_worker(shape, seed);
            world.dismiss(&worker);
            world.until("the end of what it served", |world| world.hired() == 0);
            world.rounds(100);
            if removed {
                world.remove(1);
            }
            for only_back in [false, true] {
                let refused = world.add_as(1, only_back).unwrap_err();
                assert_eq!(refused, CommandError::Unanswered, "{world}");
            }
            world.write_random(0, world.sectors());
            world.disks.disk(1).writes_hang_on = None;
            world.until("the leave of the worker", |world| world.has_left(&worker));
            world.add(1).unwrap();
            world.wait_idle();
            assert_eq!(world.status().degraded(), 0, "{world}");
            assert_eq!(world.check(), 0, "{world}");
            world.verify();
        }
    }
}

/// A stop does not wait for it, nor does the worker then.
#[test]
fn a_stop_ends_though_a_worker_that_was_dismissed_waits_for_an_answer() {
    for (seed, shape) in (140..).zip(shapes::parity()) {
        let (mut world, worker) = with_a_late_write_of_a_worker(shape, seed);
        world.dismiss(&worker);
        world.rounds(100);
        assert!(!world.has_left(&worker), "{world}");
        world.command(Action::Stop).unwrap();
        world.until("the leave of the worker", |world| world.has_left(&worker));
        assert_ne!(world.held_of(&worker, 1), 0, "{world}");
    }
}
