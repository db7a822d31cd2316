//! Overlapping writes of every size from many lanes to a small area: afterwards every sector holds what
//! one of them wrote that no later one can have replaced, and parity agrees. Where there is redundancy nothing
//! that overlaps a write is ever on its way to a disk at the same time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use mdspace_engine::backend::{IoOp, MemberIo, Patience, WriteFrom};
use mdspace_engine::memory::{SharedBytes, Source};
use mdspace_engine::request::{Queue, Request};

use crate::shapes::{self, Shape};
use crate::world::{Random, SECTOR, Setup, Worker, World};

const LANES: u16 = 3;
const WORKERS: u16 = 2;

/// What each lane's client does: so many writes, so many of them at a time, over so many sectors.
#[derive(Clone, Copy)]
struct Load {
    writes: u64,
    depth: usize,
    sectors: u64,
}

/// All over 1 MiB of the array.
const SOME: Load = Load { writes: 40, depth: 6, sectors: 2048 };

/// All at once, over one chunk of every data block and less.
const CROWD: Load = Load { writes: 1500, depth: 1500, sectors: 48 };

/// One write: where, and from when to when.
#[derive(Clone, Copy)]
struct Write {
    sector: u64,
    sectors: u64,
    begun: u64,
    ended: u64,
}

/// What was written, with a clock that counts beginnings and ends.
#[derive(Default)]
struct Log {
    writes: Vec<Write>,
    clock: u64,
}

impl Log {
    fn begin(&mut self, sector: u64, sectors: u64) -> u64 {
        self.clock += 1;
        self.writes.push(Write { sector, sectors, begun: self.clock, ended: u64::MAX });
        self.writes.len() as u64 - 1
    }

    fn end(&mut self, id: u64) {
        self.clock += 1;
        self.writes[id as usize].ended = self.clock;
    }

    /// Whether `sector` may hold what `id` wrote: no other began there after that had ended.
    fn may_stand(&self, sector: u64, id: u64) -> bool {
        let covers =
            |write: &Write| write.sector <= sector && sector < write.sector + write.sectors;
        let Some(wrote) = self.writes.get(id as usize).filter(|write| covers(write)) else {
            return false;
        };
        !self.writes.iter().any(|other| covers(other) && other.begun > wrote.ended)
    }

    fn is_written(&self, sector: u64) -> bool {
        self.writes.iter().any(|one| one.sector <= sector && sector < one.sector + one.sectors)
    }
}

/// A sector full of the number of its write and its own.
fn stamp(id: u64, sector: u64) -> Vec<u8> {
    [id.to_le_bytes(), sector.to_le_bytes()].concat().repeat(SECTOR / 16)
}

/// Whose stamp the sector bears; none if it is torn or misplaced.
fn stamped(bytes: &[u8], sector: u64) -> Option<u64> {
    let id = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    (bytes == stamp(id, sector)).then_some(id)
}

/// Of each member, so that every array has room for writes of 1 MiB.
const MEMBER_SECTORS: u64 = 2048;

/// Where the next write goes: mostly short, all in the first sectors of the array.
fn some_range(random: &mut Random, shape: &Shape, sectors: u64) -> (u64, u64) {
    let block = u64::from(shape.block_bytes) / SECTOR as u64;
    let blocks = sectors / block;
    let most = match random.below(6) {
        0 => blocks,
        1 | 2 => 40.min(blocks),
        _ => 9.min(blocks),
    };
    let count = 1 + random.below(most);
    (random.below(blocks - count + 1) * block, count * block)
}

/// Runs a client on every lane at once. Gives how many have not ended.
fn start_clients(world: &mut World, log: &Rc<RefCell<Log>>, load: Load) -> Rc<Cell<u16>> {
    let left = Rc::new(Cell::new(LANES));
    for lane in 0..LANES {
        let (port, log, left) = (world.port(lane.into()), log.clone(), left.clone());
        let (mut random, shape) = (world.random.fork(), *world.shape());
        let sectors = load.sectors.min(world.sectors());
        world.spawn_on(lane.into(), async move {
            let (queue, mut begun) = (Queue::new(), 0);
            while begun < load.writes || queue.in_flight() > 0 {
                while begun < load.writes && queue.in_flight() < load.depth {
                    begun += 1;
                    let (sector, sectors) = some_range(&mut random, &shape, sectors);
                    let id = log.borrow_mut().begin(sector, sectors);
                    let stamps = (sector..sector + sectors).flat_map(|at| stamp(id, at));
                    let bytes: Vec<u8> = stamps.collect();
                    // Workers see some fronts' memory as it is, and of others a copy.
                    let from: Rc<dyn Source> = match random.one_in(2) {
                        true => Rc::new(Arc::new(bytes) as SharedBytes),
                        false => Rc::new(bytes),
                    };
                    let fua = random.one_in(5);
                    port.submit(&queue, id, Request::Write { sector, from, fua });
                }
                let ended = queue.next().await;
                ended.result.unwrap();
                log.borrow_mut().end(ended.tag);
            }
            left.set(left.get() - 1);
        });
    }
    left
}

/// Lets the clients go on to the end of all.
fn end_clients(world: &mut World, left: &Cell<u16>) {
    let mut churn =
        Churn { random: world.random.fork(), turns: 0, small: false, seats: [None, None] };
    world.until("the end of all writes", |world| {
        churn.turn(world);
        left.get() == 0
    });
    churn.seats.iter().flatten().for_each(|worker| world.dismiss(worker));
    world.until("the leave of all workers", |world| world.hired() == 0);
}

fn burst(world: &mut World, log: &Rc<RefCell<Log>>) {
    let left = start_clients(world, log, SOME);
    end_clients(world, &left);
}

/// Who changes the cache's size and the number of workers all the time, on levels that have them.
struct Churn {
    random: Random,
    turns: u32,
    small: bool,
    seats: [Option<Worker>; WORKERS as usize],
}

impl Churn {
    fn turn(&mut self, world: &World) {
        self.turns += 1;
        if !world.shape().has_parity() || !self.turns.is_multiple_of(7) {
            return;
        }
        self.small = !self.small;
        world.set("stripe_cache_size", if self.small { "17" } else { "300" });
        let index = self.random.below(WORKERS.into()) as usize;
        let seat = &mut self.seats[index];
        match seat {
            None => *seat = Some(world.hire(index)),
            Some(worker) if world.has_left(worker) => *seat = None,
            Some(worker) => world.dismiss(worker),
        }
    }
}

fn judge(world: &mut World, log: &Log, what: &str) {
    let all = world.read(0, world.sectors()).unwrap();
    for (sector, bytes) in (0..).zip(all.chunks(SECTOR)) {
        let at = sector as usize * SECTOR;
        match log.is_written(sector) {
            false => assert!(*bytes == world.model[at..at + SECTOR], "{what}: {sector} ({world})"),
            true => {
                let id = stamped(bytes, sector);
                let good = id.is_some_and(|id| log.may_stand(sector, id));
                assert!(good, "{what}: sector {sector} holds {id:?} ({world})");
            }
        }
    }
}

/// Gives the I/Os that workers made.
fn stress(shape: Shape, seed: u64) -> u64 {
    let shape = Shape { member_sectors: MEMBER_SECTORS, ..shape };
    let mut world =
        World::synced(Setup { lanes: LANES, workers: WORKERS, ..Setup::shuffled(shape, seed) });
    // Without redundancy what overlaps is the members' to order, as with md.
    if shape.can_lose() > 0 {
        world.disks.notice_races();
    }
    let log = Rc::new(RefCell::new(Log::default()));
    burst(&mut world, &log);
    judge(&mut world, &log.borrow(), "healthy");
    if shape.can_lose() == 0 {
        return world.worker_ios();
    }
    assert_eq!(world.check(), 0, "healthy: {world}");
    world.fail(1);
    burst(&mut world, &log);
    judge(&mut world, &log.borrow(), "degraded");
    world.add(usize::from(shape.disks)).unwrap();
    burst(&mut world, &log);
    judge(&mut world, &log.borrow(), "during rebuild");
    world.wait_idle();
    judge(&mut world, &log.borrow(), "after rebuild");
    assert_eq!(world.check(), 0, "after rebuild: {world}");
    world.worker_ios()
}

#[test]
fn overlapping_writes_from_many_lanes_leave_every_sector_and_parity_right() {
    // Chance decides how much is given away: here and there it may be nothing.
    let (mut with_parity, mut shared) = (0, 0);
    for (seed, shape) in (100..).zip(shapes::all()) {
        let by_workers = stress(shape, seed);
        assert!(by_workers == 0 || shape.has_parity(), "{shape}");
        with_parity += u32::from(shape.has_parity());
        shared += u32::from(by_workers > 0);
    }
    assert!(shared * 10 > with_parity * 9, "workers share in {shared} of {with_parity}");
    for seed in 0..6 {
        stress(shapes::RAID5, seed);
        stress(shapes::RAID6, seed);
    }
}

/// Nobody is served before all have come: no disk answers until then.
fn crowd(shape: Shape, seed: u64) {
    let shape = Shape { member_sectors: MEMBER_SECTORS, ..shape };
    let few_shards = Setup { hash_locks: 8, ..Setup::shuffled(shape, seed) };
    let mut world = World::synced(Setup { lanes: LANES, workers: WORKERS, ..few_shards });
    // The superblocks say dirty: what comes now goes as far as its claim, or the disks.
    world.write_random(0, 8);
    world.set("read_deadline", "0");
    world.set("write_deadline", "0");
    let data = world.disks.data();
    let disks = 0..usize::from(shape.disks);
    world.disks.notice_races();
    disks.clone().for_each(|disk| world.disks.disk(disk).hangs_in = Some(data.clone()));
    let log = Rc::new(RefCell::new(Log::default()));
    let left = start_clients(&mut world, &log, CROWD);
    world.turns(500);
    let has_ended = |write: &Write| write.ended != u64::MAX;
    let all = usize::from(LANES) * CROWD.depth;
    assert_eq!(log.borrow().writes.len(), all, "{world}");
    assert!(!log.borrow().writes.iter().any(has_ended), "{world}");
    disks.for_each(|disk| world.disks.disk(disk).hangs_in = None);
    end_clients(&mut world, &left);
    assert!(log.borrow().writes.iter().all(has_ended), "{world}");
    judge(&mut world, &log.borrow(), "healthy");
    assert_eq!(world.check(), 0, "{world}");
    world.fail(0);
    judge(&mut world, &log.borrow(), "degraded");
}

#[test]
fn thousands_of_writes_that_wait_for_each_other_all_end_and_leave_every_sector_right() {
    let shapes = [shapes::RAID1, shapes::RAID4, shapes::RAID5, shapes::RAID6, shapes::RAID10];
    for (seed, shape) in (200..).zip(shapes) {
        crowd(shape, seed);
    }
}

#[test]
#[should_panic(expected = "meets")]
fn writes_that_overlap_on_their_way_to_a_disk_are_noticed() {
    let world = World::synced(Setup::shuffled(shapes::RAID1, 300));
    let lane = world.lane(0);
    world.disks.notice_races();
    let write = |sector| {
        let from = WriteFrom::Source(Rc::new(vec![0; 8 * SECTOR]), 0..8 * SECTOR);
        let (member, op) = (world.disks.id(0), IoOp::Write { sector, from, fua: false });
        lane.io(MemberIo { member, op, patience: Patience::FOREVER })
    };
    let _both = [shapes::DATA_OFFSET, shapes::DATA_OFFSET + 7].map(write);
}

#[test]
fn the_log_finds_what_is_old_torn_or_misplaced() {
    let mut log = Log::default();
    let first = log.begin(4, 4);
    let beside = log.begin(6, 4);
    log.end(first);
    let later = log.begin(4, 1);
    assert!(!log.may_stand(4, first), "the later one began after it had ended");
    assert!(log.may_stand(4, later) && log.may_stand(5, first));
    assert!(log.may_stand(6, first) && log.may_stand(6, beside), "they ran together");
    assert!(!log.may_stand(8, first) && !log.may_stand(9, 77) && !log.is_written(10));
    let mut bytes = stamp(3, 9);
    assert_eq!((stamped(&bytes, 9), stamped(&bytes, 8)), (Some(3), None));
    bytes[100] ^= 1;
    assert_eq!(stamped(&bytes, 9), None);
}
