//! Hedged reads: a lone write goes by the blocks of its row that come first, and asks for more than it needs
//! only where that costs nobody anything.

use std::rc::Rc;
use std::time::Duration;

use mdspace_engine::array::Action;
use mdspace_engine::geometry::Level;
use mdspace_engine::request::Request;
use mdspace_engine::time::Time;

use crate::shapes::{RAID4, RAID5, Shape};
use crate::world::{Answers, SECTOR, Setup, World};

/// Reads of members take so long, or so much longer.
const SLOW: Duration = Duration::from_micros(100);
const STEP: Duration = Duration::from_micros(50);
const QUICK: Duration = Duration::from_micros(10);

/// Sectors of a unit.
const UNIT: u64 = 8;

/// RAID6 of four data disks and two of parity: eight rows.
const RAID6: Shape = wide(6);

const fn wide(disks: u16) -> Shape {
    Shape { member_sectors: 1024, ..Shape::new(Level::Raid6, 2, disks, 128) }
}

/// An array of drives.
struct Drives {
    world: World,
    /// Counts the units that were written.
    turn: u64,
}

impl Drives {
    /// An array that knows how slow its drives are.
    fn new(shape: Shape, seed: u64) -> Self {
        Self::set_up(shape, seed, |_| {})
    }

    fn set_up(shape: Shape, seed: u64, prepare: impl Fn(&World)) -> Self {
        let shape = shape.without_bitmap();
        let setup = Setup { answers: Answers::Shuffled, ..Setup::new(shape, seed) };
        let mut world = World::new(setup);
        prepare(&world);
        world.create(|_| true);
        world.assemble_all().unwrap();
        world.wait_idle();
        Self::of(world)
    }

    fn of(mut world: World) -> Self {
        world.learn();
        // The smallest: what is written here was not in the cache.
        world.set("stripe_cache_size", "17");
        let mut drives = Self { world, turn: 0 };
        drives.reads_take(|_| SLOW);
        drives.get_to_know();
        drives
    }

    fn reads_take(&self, time: impl Fn(usize) -> Duration) {
        for disk in 0..self.disks() {
            self.world.disks.disk(disk).reads_take = time(disk);
        }
    }

    /// Writes until the lane knows how long reads take.
    fn get_to_know(&mut self) {
        (0..100).for_each(|_| self.write_unit());
    }

    fn disks(&self) -> usize {
        usize::from(self.world.shape().disks)
    }

    fn now(&self) -> Time {
        self.world.lane(0).backend().now()
    }

    /// A unit of another stripe each time, until every stripe had its turn.
    fn next_unit(&mut self) -> u64 {
        let chunk = u64::from(self.world.shape().chunk_sectors);
        let data_disks = (self.disks() - self.world.shape().can_lose()) as u64;
        let rows = self.world.sectors() / (chunk * data_disks);
        let (row, turn) = (self.turn % rows, self.turn / rows);
        let (unit, turn) = (turn % (chunk / UNIT), turn / (chunk / UNIT));
        self.turn += 1;
        (row * data_disks + turn % data_disks) * chunk + unit * UNIT
    }

    fn write_unit(&mut self) {
        let unit = self.next_unit();
        self.world.write_random(unit, UNIT);
    }

    /// How long a write of a unit takes when nothing else is under way.
    fn time_to_write(&mut self) -> Duration {
        self.world.sleep_ms(1);
        let before = self.now();
        self.write_unit();
        self.now().since(before)
    }

    /// How many reads members do for `work`.
    fn reads_for(&mut self, work: impl FnOnce(&mut Self)) -> usize {
        self.world.sleep_ms(1);
        self.world.disks.reset_counts();
        work(self);
        self.world.sleep_ms(1);
        (0..self.disks()).map(|disk| self.world.disks.disk(disk).reads.len()).sum()
    }

    /// All that was written is there, and parity agrees with it.
    fn verify(&mut self) {
        self.reads_take(|_| QUICK);
        self.world.verify();
        assert_eq!(self.world.check(), 0, "{}", self.world);
        self.reads_take(|_| SLOW);
    }
}

/// Every order of so many things.
fn orders(count: usize) -> Vec<Vec<usize>> {
    let Some(last) = count.checked_sub(1) else { return vec![Vec::new()] };
    let insert = |order: Vec<usize>| {
        (0..count).map(move |at| {
            let mut longer = order.clone();
            longer.insert(at, last);
            longer
        })
    };
    orders(last).into_iter().flat_map(insert).collect()
}

/// With as many blocks as a row has data, whichever they are and whichever is written, all is known.
#[test]
fn in_whatever_order_blocks_come_a_lone_write_waits_for_no_more_than_it_needs() {
    for (seed, shape) in (1..).zip([RAID4, RAID5, RAID6]) {
        let mut drives = Drives::new(shape, seed);
        let data_disks = drives.disks() - shape.can_lose();
        for (nth, order) in orders(drives.disks()).into_iter().enumerate() {
            drives.reads_take(|disk| SLOW + STEP * order[disk] as u32);
            let took = drives.time_to_write();
            let enough = SLOW + STEP * (data_disks - 1) as u32;
            assert!(took <= enough, "{order:?}: {took:?} ({})", drives.world);
            if nth % 100 == 99 {
                drives.verify();
            }
        }
        drives.verify();
    }
}

/// What the test above would show without them.
#[test]
fn without_hedging_a_lone_write_waits_for_the_slowest_of_its_reads() {
    for (seed, shape) in (10..).zip([RAID4, RAID5, RAID6]) {
        let mut drives = Drives::new(shape, seed);
        drives.world.set("hedged_reads", "0");
        let slowest = drives.disks() as u32 - 1;
        let mut orders = orders(drives.disks()).into_iter();
        let waits = |order: Vec<usize>| {
            drives.reads_take(|disk| SLOW + STEP * order[disk] as u32);
            drives.time_to_write() >= SLOW + STEP * slowest
        };
        assert!(orders.any(waits), "{}", drives.world);
        drives.verify();
    }
}

#[test]
fn what_fails_to_be_read_is_done_without() {
    for (seed, shape) in (20..).zip([RAID4, RAID5, RAID6]) {
        let mut drives = Drives::new(shape, seed);
        let most = shape.can_lose();
        for (one, other) in (0..drives.disks()).flat_map(|one| (0..=one).map(move |o| (one, o))) {
            if one != other && most < 2 {
                continue;
            }
            let unit = drives.next_unit();
            let data = drives.world.disks.data();
            // Wherever the unit's row lies, these members cannot read there.
            for disk in [one, other] {
                drives.world.disks.disk(disk).unreadable = data.clone().collect();
            }
            drives.world.write_random(unit, UNIT);
            for disk in [one, other] {
                drives.world.disks.disk(disk).unreadable.clear();
            }
            drives.verify();
        }
    }
}

/// More members fail than the level bears: the write ends all the same.
#[test]
fn what_cannot_be_done_without_ends_the_write() {
    for (seed, shape) in (25..).zip([RAID4, RAID5, RAID6]) {
        let mut drives = Drives::new(shape, seed);
        let data = drives.world.disks.data();
        for disk in 0..drives.disks() {
            drives.world.disks.disk(disk).unreadable = data.clone().collect();
        }
        let unit = drives.next_unit();
        let reads = drives.reads_for(|drives| {
            let _ = drives.world.write(unit, vec![7; 4096]);
        });
        assert!(reads <= 8 * drives.disks(), "{reads} ({})", drives.world);
    }
}

/// Nobody waits for the reads that come too late, and what they bring is nobody's any more.
#[test]
fn blocks_that_come_long_after_change_nothing() {
    for (seed, shape) in (30..).zip([RAID4, RAID5, RAID6]) {
        let mut drives = Drives::new(shape, seed);
        for _ in 0..10 {
            for _ in 0..40 {
                let times: Vec<u64> =
                    (0..drives.disks()).map(|_| 50 + drives.world.random.below(2000)).collect();
                drives.reads_take(|disk| Duration::from_micros(times[disk]));
                let random = &mut drives.world.random;
                let (sector, sectors) = (random.below(128), 1 + random.below(24));
                drives.world.write_random(sector, sectors);
                // Something elsewhere, so that the stripe is read again.
                (0..18).for_each(|_| drives.write_unit());
            }
            drives.verify();
        }
    }
}

/// Before the first resync parity is right where something was written, and only there: of what stands in
/// other rows no late block can be made.
#[test]
fn nothing_is_made_of_parity_that_is_not_trusted() {
    for lost in 0..6 {
        let setup = Setup { answers: Answers::Shuffled, ..Setup::new(RAID6, 60 + lost as u64) };
        let mut world = World::created(setup);
        world.command(Action::Freeze).unwrap();
        let mut drives = Drives::of(world);
        let mut written = Vec::new();
        for _ in 0..100 {
            let times: Vec<u64> = (0..6).map(|_| 100 + drives.world.random.below(200)).collect();
            drives.reads_take(|disk| Duration::from_micros(times[disk]));
            written.push(drives.next_unit());
            drives.world.write_random(written[written.len() - 1], UNIT);
        }
        drives.world.fail(lost);
        for unit in written {
            let bytes = drives.world.read(unit, UNIT).unwrap();
            drives.world.compare(unit, &bytes);
        }
    }
}

/// A drive that has reset gives what was there before. The new parity is made without that, and of what was answered.
/// The drive's flush tells while the members are written, and its block is given by parity from then on.
#[test]
fn a_hedged_write_keeps_no_block_that_it_has_read_for_nothing() {
    let long = |shape| Shape { member_sectors: 1024, ..shape };
    for (seed, shape) in (70..).zip([long(RAID4), long(RAID5), RAID6]) {
        for goes_out_first in [true, false] {
            let mut drives = Drives::new(shape, seed);
            let world = &mut drives.world;
            let chunk = u64::from(shape.chunk_sectors);
            let data_disks = u64::from(shape.disks) - shape.can_lose() as u64;
            let disks: Vec<usize> = (0..data_disks).map(|at| world.disk_of(at * chunk)).collect();
            world.serve(0, Request::Flush).unwrap();
            world.write_random(0, UNIT);
            // Every other stripe, so that this one is read again.
            for row in (chunk * data_disks..world.sectors()).step_by((chunk * data_disks) as usize)
            {
                (0..chunk / UNIT).for_each(|unit| world.write_random(row + unit * UNIT, UNIT));
            }
            world.disks.disk(disks[0]).reset();
            for disk in 0..usize::from(shape.disks) {
                let steps = match disk {
                    disk if disk == disks[0] => 0,
                    disk if disks[2..].contains(&disk) => 10,
                    _ => 1,
                };
                world.disks.disk(disk).reads_take = SLOW + STEP * steps;
            }
            world.disks.disk(disks[1]).writes_hang_in = Some(world.disks.data());
            if !goes_out_first {
                // The others are asked, and answer when the write has ended.
                world.disks.disk(disks[1]).hangs_in = Some(0..world.disks.data().start);
            }
            let bytes = world.random.bytes(UNIT as usize * SECTOR);
            world.remember(chunk, &bytes);
            let from = Rc::new(bytes);
            world.disks.reset_counts();
            let write = world.start(0, Request::Write { sector: chunk, from, fua: false });
            world.sleep_ms(1);
            assert!(!write.has_ended(), "{world}");
            assert!(!world.disks.disk(disks[0]).reads.is_empty(), "{world}");
            let flush = world.start(0, Request::Flush);
            world.sleep_ms(10);
            assert_eq!(flush.has_ended(), goes_out_first, "{world}");
            world.disks.disk(disks[1]).writes_hang_in = None;
            world.end(&write).unwrap();
            let found = world.read(0, UNIT).unwrap();
            world.compare(0, &found);
            world.disks.disk(disks[1]).hangs_in = None;
            world.end(&flush).unwrap();
            drives.verify();
        }
    }
}

#[test]
fn only_a_lone_small_write_to_sound_idle_drives_is_hedged() {
    let needed = 3;
    let mut drives = Drives::new(RAID6, 40);
    assert_eq!(drives.reads_for(Drives::write_unit), 6);
    let together = drives.reads_for(|drives| {
        let write = |drives: &mut Drives| {
            let (sector, bytes) = (drives.next_unit(), drives.world.random.bytes(4096));
            drives.world.remember(sector, &bytes);
            drives.world.submit(0, Request::Write { sector, from: Rc::new(bytes), fua: false })
        };
        let both = [write(drives), write(drives)];
        both.iter().for_each(|write| drives.world.end(write).unwrap());
    });
    assert_eq!(together, 2 * needed, "two of one turn");
    drives.world.set("hedged_reads", "0");
    assert_eq!(drives.reads_for(Drives::write_unit), needed, "off");
    drives.world.set("hedged_reads", "1");
    drives.world.set("rmw_level", "1");
    assert_eq!(drives.reads_for(Drives::write_unit), needed, "one method wanted");
    drives.world.set("rmw_level", "2");
    assert_eq!(drives.reads_for(Drives::write_unit), 6);
    drives.reads_take(|_| QUICK);
    drives.get_to_know();
    assert_eq!(drives.reads_for(Drives::write_unit), needed, "quick drives");
    drives.reads_take(|_| SLOW);
    drives.get_to_know();
    assert_eq!(drives.reads_for(Drives::write_unit), 6);
    drives.world.fail(5);
    assert!(drives.reads_for(Drives::write_unit) <= 4, "degraded");

    let mut wide = Drives::new(wide(10), 41);
    assert_eq!(wide.reads_for(Drives::write_unit), needed, "more than twice the reads");
    let spin = |world: &World| (0..6).for_each(|disk| world.disks.disk(disk).rotational = true);
    let mut disks = Drives::set_up(RAID6, 42, spin);
    assert_eq!(disks.reads_for(Drives::write_unit), needed, "disks that seek");
    let large = Shape { chunk_sectors: 256, ..RAID6 };
    let mut large = Drives::new(large, 43);
    let block = |drives: &mut Drives| drives.world.write_random(0, 256);
    assert_eq!(large.reads_for(block), needed, "a large block");
}

/// A drive that does not answer is not asked more and more.
#[test]
fn a_member_that_answers_no_read_is_left_alone() {
    let mut drives = Drives::new(RAID6, 50);
    drives.reads_take(|disk| if disk == 1 { Duration::from_secs(3600) } else { SLOW });
    let backend_has =
        |drives: &Drives| drives.world.lane(0).backend().in_flight(drives.world.disks.id(1));
    for _ in 0..20 {
        let unit = drives.next_unit();
        let bytes = drives.world.random.bytes(4096);
        drives.world.remember(unit, &bytes);
        drives.world.write(unit, bytes).unwrap();
        assert!(backend_has(&drives) <= 3, "{}", drives.world);
    }
}

/// With too few idle members there is nothing to choose from: what is needed is waited for, and asked for once.
#[test]
fn too_many_busy_members_are_waited_for() {
    let mut drives = Drives::new(RAID6, 51);
    drives.reads_take(|disk| if disk < 3 { Duration::from_millis(20) } else { SLOW });
    let all = drives.world.sectors();
    let users = [drives.world.start_read(0, all), drives.world.start_read(0, all)];
    drives.reads_for(Drives::write_unit);
    let idle = (3..6).map(|disk| drives.world.disks.disk(disk).reads.len());
    assert!(idle.sum::<usize>() <= 3, "{}", drives.world);
    users.iter().for_each(|read| drives.world.end(read).unwrap());
    drives.verify();
}

/// More members are late than the level bears: the write waits for them, however long that takes.
#[test]
fn late_members_that_are_needed_are_waited_for() {
    for (seed, shape) in (70..).zip([RAID4, RAID5]) {
        let mut drives = Drives::new(shape, seed);
        let data = drives.world.disks.data();
        for disk in 0..drives.disks() {
            drives.world.disks.disk(disk).hangs_in = Some(data.clone());
        }
        let (unit, bytes) = (drives.next_unit(), drives.world.random.bytes(4096));
        drives.world.remember(unit, &bytes);
        let from = Rc::new(bytes);
        let write = drives.world.start(0, Request::Write { sector: unit, from, fua: false });
        drives.world.sleep_ms(3000);
        assert!(!write.has_ended(), "{}", drives.world);
        for disk in 0..drives.disks() {
            drives.world.disks.disk(disk).hangs_in = None;
        }
        drives.world.end(&write).unwrap();
        drives.verify();
    }
}
