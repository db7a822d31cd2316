//! News about blocks that meet a controller which is busy: a write behind them is not passed by.

use std::cell::{Cell, RefCell};
use std::iter;
use std::ops::Range;
use std::rc::Rc;

use mdspace_engine::array::Action;
use mdspace_engine::assembly::Options;
use mdspace_engine::backend::IoErrorKind;
use mdspace_engine::geometry::Level;
use mdspace_engine::request::{Queue, Request, RequestError};
use mdspace_engine::status::{ArrayState, MemberState};
use mdspace_format::{BadBlocks, Features};

use crate::listed::listed;
use crate::shapes::{self, Shape};
use crate::world::{Images, Pending, SECTOR, Setup, World};

const MIRROR: Shape = Shape::new(Level::Raid1, 0, 2, 0);

/// Sectors of the array that one row of all members holds, or a few of a mirror.
fn row_sectors(shape: &Shape) -> u64 {
    let data_disks = match shape.level {
        Level::Raid5 => u64::from(shape.disks) - 1,
        Level::Raid6 => u64::from(shape.disks) - 2,
        _ => 1,
    };
    u64::from(shape.chunk_sectors.max(16)) * data_disks
}

/// An array that has lost all that it may, in use, with a sector of another member that cannot be read
/// until it is written.
fn with_a_lost_sector(shape: Shape, seed: u64) -> World {
    let mut world = World::synced(Setup::shuffled(shape, seed));
    world.set("write_deadline", "0");
    let row = row_sectors(&shape);
    world.write_random(0, row);
    (1..=shape.can_lose()).for_each(|disk| world.fail(disk));
    world.write_random(0, row);
    let start = world.disks.data().start;
    world.disks.disk(0).unreadable.insert(start + 5);
    world
}

/// Has the controller write superblocks, and the first disk not answer.
pub(crate) fn hang_controller(world: &mut World) {
    let place = world.disks.superblock(0).unwrap().place.sector;
    world.disks.disk(0).hangs_in = Some(place..place + 8);
    let spare = usize::from(world.shape().disks);
    world.disks.reopen(spare);
    let (member, info) = (world.disks.id(spare), world.disks.info(spare));
    world.command(Action::Freeze).unwrap();
    world.order(Action::Add { member, info, only_back: false });
    world.turns(500);
}

fn start_write(world: &mut World, lane: usize, sector: u64, sectors: u64) -> Pending {
    let bytes = world.random.bytes(sectors as usize * SECTOR);
    world.remember(sector, &bytes);
    world.start(lane, Request::Write { sector, from: Rc::new(bytes), fua: false })
}

#[test]
fn no_block_is_called_bad_that_a_write_behind_the_news_made_good() {
    for (seed, shape) in (1..).zip([MIRROR, shapes::RAID5, shapes::RAID6, shapes::RAID10]) {
        let mut world = with_a_lost_sector(shape, seed);
        hang_controller(&mut world);
        let row = row_sectors(&shape);
        let read = world.start_read(0, row);
        world.turns(2000);
        let write = start_write(&mut world, 1, 0, row);
        world.turns(2000);
        world.disks.disk(0).hangs_in = None;
        assert_eq!(world.end(&read), Err(RequestError::Lost), "{world}");
        world.end(&write).unwrap_or_else(|error| panic!("{error} ({world})"));
        world.rounds(500);
        let found = world.read(0, row).unwrap_or_else(|error| panic!("{error} ({world})"));
        world.compare(0, &found);
        assert_eq!(world.status().lost.sectors, 0, "{world}");
    }
}

/// The rebuild lists what it could not fill under the claim that found out.
#[test]
fn no_block_of_a_new_member_is_called_bad_that_a_write_behind_the_news_made_good() {
    for (seed, shape) in (20..).zip([MIRROR, shapes::RAID5, shapes::RAID10]) {
        let mut world = with_a_lost_sector(shape, seed);
        let log = world.disks.superblock(0).unwrap().bad_block_log_range().unwrap();
        world.disks.disk(0).hangs_in = Some(log);
        let spare = usize::from(shape.disks);
        world.add(spare).unwrap();
        world.turns(3000);
        let row = row_sectors(&shape);
        let write = start_write(&mut world, 1, 0, row);
        world.turns(3000);
        world.disks.disk(0).hangs_in = None;
        world.end(&write).unwrap_or_else(|error| panic!("{error} ({world})"));
        world.wait_idle();
        assert_eq!(world.member_state(spare), Some(MemberState::InSync), "{world}");
        let status = world.status();
        let bad: u32 = status.members.iter().map(|member| member.bad_ranges).sum();
        assert_eq!((bad, status.lost.sectors), (0, 0), "{world}");
        world.fail(0);
        world.verify();
    }
}

/// A lane may not have heard yet that a block is listed no more.
#[test]
fn a_read_looks_at_the_newest_view_before_it_says_lost() {
    for (seed, shape) in (40..).zip([MIRROR, shapes::RAID5, shapes::RAID6, shapes::RAID10]) {
        for lane in [1, 2] {
            let mut world = with_a_lost_sector(shape, seed);
            let row = row_sectors(&shape);
            let lost = (0..row).find(|at| world.read(*at, 1) == Err(RequestError::Lost)).unwrap();
            world.rounds(100);
            let (writer, reader, home) = (world.port(0), world.port(lane), world.lane(lane));
            let from = Rc::new(vec![7; row as usize * SECTOR]);
            let into = Rc::new(RefCell::new(vec![0; SECTOR]));
            let (read, sink) = (Rc::new(Cell::new(None)), into.clone());
            let told = read.clone();
            world.spawn_on(0, async move {
                writer.serve(Request::Write { sector: 0, from, fua: false }).await.unwrap();
                // In the same turn: the other lane has not had its own.
                let queue = Queue::new();
                reader.submit(&queue, 7, Request::Read { sector: lost, into: sink });
                home.spawn(async move { told.set(Some(queue.next().await.result)) });
            });
            world.until("a read", |_| read.get().is_some());
            assert_eq!(read.get(), Some(Ok(())), "{world}");
            assert!(into.borrow().iter().all(|byte| *byte == 7), "{world}");
        }
    }
}

/// Fills the log of a stopped array's member: 512 ranges of three sectors.
pub(crate) fn fill_log(world: &mut World, disk: usize) {
    fill_log_with(world, disk, (0..512).map(|at| 4 * at..4 * at + 3));
}

/// Has the log of a stopped array's member list these sectors of its data.
fn fill_log_with(world: &mut World, disk: usize, bad: impl Iterator<Item = Range<u64>>) {
    let mut superblock = world.disks.superblock(disk).unwrap();
    let log = superblock.bad_block_log.unwrap();
    let data = superblock.data_offset_sectors;
    let mut blocks = BadBlocks::new();
    bad.for_each(|bad| blocks.add(data + bad.start..data + bad.end));
    superblock.features = superblock.features.with(Features::BAD_BLOCKS, true);
    let start = superblock.bad_block_log_range().unwrap().start as usize * SECTOR;
    let bytes = blocks.encode(log.size_sectors, log.shift).unwrap();
    let at = superblock.place.sector as usize * SECTOR;
    let mut disk = world.disks.disk(disk);
    disk.bytes[start..start + bytes.len()].copy_from_slice(&bytes);
    disk.bytes[at..at + 4096].copy_from_slice(&superblock.encode());
}

/// Taking the middle off an entry makes two of it. Without room it stays listed, and nothing breaks.
#[test]
fn a_write_into_the_middle_of_an_entry_of_a_full_log_fails_no_member() {
    for degraded in [false, true] {
        let shape = Shape { member_sectors: 4096, ..MIRROR };
        let mut world = World::synced(Setup::shuffled(shape, 60));
        world.stop();
        fill_log(&mut world, 0);
        world.assemble_all().unwrap();
        if degraded {
            world.fail(1);
        }
        let bytes = world.random.bytes(SECTOR);
        let written = world.write(41, bytes.clone());
        // Where it stays listed and no other member has it, it could not be read.
        assert_eq!(written, if degraded { Err(RequestError::Lost) } else { Ok(()) }, "{world}");
        assert_ne!(world.status().state, ArrayState::Broken, "{world}");
        assert_eq!(world.member_state(0), Some(MemberState::InSync), "{world}");
        if !degraded {
            world.remember(41, &bytes);
            world.verify();
        }
        // A whole entry needs no room, and makes some.
        world.write_random(80, 3);
        world.write_random(41, 1);
        let found = world.read(41, 1).unwrap();
        world.compare(41, &found);
        world.stop();
        assert!(!listed(&world, 0).iter().any(|bad| bad.contains(&41)), "{world}");
    }
}

/// One piece of a round fails, and what another one needs on record finds no room: that one has failed too.
#[test]
fn a_write_is_judged_again_after_the_record_although_another_one_of_its_round_failed() {
    let shape = Shape { member_sectors: 4096, ..Shape::new(Level::Raid5, 2, 3, 64) };
    let mut world = World::synced(Setup::shuffled(shape, 70));
    world.fail(1);
    world.stop();
    fill_log_with(&mut world, 0, iter::once(4..40).chain((16..527).map(|at| 4 * at..4 * at + 1)));
    world.assemble_all().unwrap();
    {
        // Of the first row's parity. The other block of that row is on the member that failed.
        let start = world.disks.data().start;
        let mut disk = world.disks.disk(2);
        disk.write_error = Some(IoErrorKind::Medium);
        disk.errors_in = Some(start + 4..start + 8);
    }
    let start = |sector| {
        let from = Rc::new(vec![7; 8 * SECTOR]);
        (sector, world.submit(0, Request::Write { sector, from, fua: false }))
    };
    for (sector, write) in [0, 64, 8, 72].map(start) {
        let written = world.end(&write);
        assert!(written.is_err() || sector % 64 == 8, "sector {sector} ({world})");
        let found = world.read(sector, 8).map(|bytes| bytes == vec![7; 8 * SECTOR]);
        assert!(written.is_err() || found == Ok(true), "sector {sector}: {found:?} ({world})");
    }
    assert_eq!(world.status().members[0].bad_ranges, 512, "no entry was split ({world})");
}

/// The survivors' superblocks still count on a member that was not there at the start.
#[test]
fn a_list_is_not_cleared_before_the_survivors_say_that_its_member_is_out() {
    for (seed, shape) in (70..).zip([shapes::RAID1, shapes::RAID5, shapes::RAID6, shapes::RAID10]) {
        let mut gone = 0;
        for rounds in 0..60 {
            let mut world = World::synced(Setup::shuffled(shape, 100 * seed + rounds));
            world.write_many(5);
            world.stop();
            crate::listed::list_and_spoil(&mut world, 0, true);
            let others: Vec<usize> = (1..usize::from(shape.disks)).collect();
            let options = Options { run: true, ..Options::default() };
            world.assemble(&others, &options).unwrap();
            world.command(Action::Freeze).unwrap();
            world.disks.reopen(0);
            let (member, info) = (world.disks.id(0), world.disks.info(0));
            world.order(Action::Add { member, info, only_back: false });
            world.rounds(rounds as usize);
            world.crash();
            world.assemble_with_force().unwrap_or_else(|error| panic!("{error} ({world})"));
            gone += u32::from(world.member_state(0) != Some(MemberState::InSync));
            if !shape.has_parity() {
                world.set("read_policy", "first");
            }
            world.verify();
        }
        assert!(gone > 0 && gone < 60, "{gone} times out ({shape})");
    }
}

fn blocks_in(log: &[u8]) -> Vec<Range<u64>> {
    BadBlocks::parse(log, 0).unwrap().ranges().to_vec()
}

/// The table with those of its sectors new that `mask` names.
fn mixture([old, new]: &[Vec<u8>; 2], mask: u32) -> Vec<u8> {
    let sectors = old.chunks(SECTOR).zip(new.chunks(SECTOR)).enumerate();
    let landed = sectors.map(|(at, (old, new))| if mask >> at & 1 == 1 { new } else { old });
    landed.flatten().copied().collect()
}

/// Power fails in a write of a log: any of its sectors may be the new ones. What an answered write left
/// listed is listed in each of these.
#[test]
fn whatever_lands_of_a_log_write_no_listed_block_is_believed() {
    for (seed, shape) in (90..).zip([shapes::RAID1.without_bitmap(), shapes::RAID5]) {
        let shape = Shape { member_sectors: 2048, ..shape };
        let mut world = World::synced(Setup::new(shape, seed));
        let (data, superblock) = (world.disks.data().start, world.disks.superblock(0).unwrap());
        let log = superblock.bad_block_log_range().unwrap();
        let sectors = log.clone();
        world.disks.disk(0).images_of = Some(Images { sectors, ..Images::default() });
        for round in 0..120 {
            let refuses = [Some((data + round % 7, 5 + round % 3)), None][(round / 4 % 2) as usize];
            world.disks.disk(0).refuses_every = refuses;
            let (sector, sectors) = (world.random.below(world.sectors() - 48), 1 + round % 48);
            world.write_random(sector, sectors);
        }
        assert_eq!(world.member_state(0), Some(MemberState::InSync), "{world}");
        let images = world.disks.disk(0).images_of.take().unwrap().writes;
        let most = images.iter().map(|[_, new]| blocks_in(new).len()).max().unwrap();
        assert!(most > 64 && images.len() > 40, "{most} entries, {} writes", images.len());
        for image in &images {
            let [before, after] = image.each_ref().map(|log| blocks_in(log));
            let stays = |sector: &u64| after.iter().any(|bad| bad.contains(sector));
            let kept: Vec<u64> = before.iter().flat_map(Clone::clone).filter(stays).collect();
            for mask in 0..1 << (log.end - log.start) {
                let found = blocks_in(&mixture(image, mask));
                let lost = kept.iter().find(|at| !found.iter().any(|bad| bad.contains(at)));
                assert_eq!(lost, None, "sectors {mask:b} landed ({world})");
            }
        }
    }
}

/// A read of two members' blocks waits for one of them. Meanwhile the other fails, a spare takes its slot,
/// and one more member goes.
#[test]
fn what_one_member_did_not_give_is_asked_of_the_next_one_in_its_slot() {
    let shape = shapes::RAID5;
    let mut world = World::synced(Setup::shuffled(shape, 60));
    world.write_random(0, world.sectors());
    world.set("read_deadline", "0");
    let data = world.disks.data().start;
    // Only this read begins there.
    world.disks.disk(0).hangs_in = Some(data + 5..data + 6);
    world.disks.disk(1).unplug();
    let into = Rc::new(RefCell::new(vec![0; 20 * SECTOR]));
    let read = world.start(0, Request::Read { sector: 5, into: into.clone() });
    world.wait_status("a failed member", |status| status.degraded() == 1);
    world.add(usize::from(shape.disks)).unwrap();
    world.wait_idle();
    world.fail(2);
    world.disks.disk(0).hangs_in = None;
    world.end(&read).unwrap_or_else(|error| panic!("{error} ({world})"));
    world.compare(5, &into.take());
}

/// A write passes over a member that is being failed, and the array breaks before a survivor says so: after
/// a restart that member is believed.
#[test]
fn a_write_that_passed_over_a_member_is_no_success_when_the_array_breaks_before_it_is_on_record() {
    for (seed, shape) in (70..).zip([MIRROR, shapes::RAID5, shapes::RAID6, shapes::RAID10]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.set("write_deadline", "0");
        let last = shape.can_lose();
        (1..last).for_each(|disk| world.fail(disk));
        let place = world.disks.superblock(0).unwrap().place.sector;
        world.write_random(0, world.sectors());
        world.disks.disk(0).writes_hang_in = Some(place..place + 8);
        let member = world.disks.id(last);
        world.order(Action::Fail { member, force: true });
        world.turns(500);
        let row = row_sectors(&shape);
        let write = start_write(&mut world, 0, 0, row);
        world.turns(500);
        assert!(!write.has_ended(), "the survivors do not say yet who is out ({world})");
        let mut disk = world.disks.disk(0);
        (disk.write_error, disk.errors_in) = (Some(IoErrorKind::Gone), Some(place..place + 8));
        disk.writes_hang_in = None;
        drop(disk);
        assert_eq!(world.end(&write), Err(RequestError::Lost), "{world}");
        assert_eq!(world.status().state, ArrayState::Broken, "{world}");
    }
}

/// A restart believes the member again that the write passed over: nobody is to have read the other one.
#[test]
fn what_a_write_passed_over_is_in_doubt_when_the_array_breaks_before_it_is_on_record() {
    for seed in 80..90 {
        let mut world = World::synced(Setup::shuffled(shapes::RAID10, seed));
        world.set("write_deadline", "0");
        world.write_random(0, world.sectors());
        // The first that an update writes. No superblock says anything before that is there.
        let bitmap = world.disks.superblock(2).unwrap().bitmap_sector().unwrap();
        world.disks.disk(2).hangs_in = Some(bitmap..bitmap + 1);
        // Both have the first chunk, and the first one is believed before the other.
        let member = world.disks.id(0);
        world.order(Action::Fail { member, force: true });
        world.turns(500);
        let from = Rc::new(vec![7; 8 * SECTOR]);
        let write = world.start(0, Request::Write { sector: 0, from, fua: false });
        world.turns(500);
        assert!(!write.has_ended(), "the survivors do not say yet who is out ({world})");
        (2..4).for_each(|disk| world.disks.disk(disk).unplug());
        world.disks.disk(2).hangs_in = None;
        assert_eq!(world.end(&write), Err(RequestError::Lost), "{world}");
        assert_eq!(world.status().state, ArrayState::Broken, "{world}");
        let read = world.read(0, 8).ok();
        // Beside it nothing is in doubt.
        let beside = world.read(8, 8).unwrap();
        world.compare(8, &beside);
        (2..4).for_each(|disk| world.disks.disk(disk).plug());
        world.crash();
        world.assemble_all().unwrap();
        let again = world.read(0, 8).unwrap();
        assert!(read.is_none_or(|read| read == again), "it was read new and is old ({world})");
    }
}

/// A degraded mirror in use whose last copy cannot read a sector, and does not write that on its list in time.
fn with_a_list_that_is_late(seed: u64) -> World {
    let mut world = World::synced(Setup::shuffled(MIRROR, seed));
    world.fail(1);
    world.write_random(0, world.sectors());
    world.set("write_deadline", "1");
    {
        let log = world.disks.superblock(0).unwrap().bad_block_log_range().unwrap();
        let start = world.disks.data().start;
        let mut disk = world.disks.disk(0);
        (disk.fua_flushes, disk.hangs_in) = (true, Some(log));
        disk.unreadable.insert(start + 5);
    }
    world.start_read(5, 1);
    world.sleep_ms(1500);
    world
}

/// The list is durable, so its write may be told what the device has lost, and the next flush is not.
#[test]
fn no_flush_is_answered_past_a_list_that_was_not_written_in_time() {
    for fails in [false, true] {
        let mut world = with_a_list_that_is_late(100);
        let flush = world.start(1, Request::Flush);
        world.turns(500);
        let was_answered = flush.has_ended();
        {
            let mut disk = world.disks.disk(0);
            disk.next_flush_fails = fails.then_some(IoErrorKind::Other);
            disk.hangs_in = None;
        }
        world.turns(500);
        assert!(!was_answered, "{:?} {world}", flush.result());
        let told = if fails { Err(RequestError::Lost) } else { Ok(()) };
        assert_eq!(world.end(&flush), told, "{world}");
        let is_broken = world.status().state == ArrayState::Broken;
        assert_eq!(is_broken, fails, "{world}");
        world.stop();
        assert!(fails || listed(&world, 0).iter().any(|bad| bad.contains(&5)), "{world}");
    }
}

/// What never ends may have been told it as well.
#[test]
fn a_list_that_is_never_written_is_waited_for_as_long_as_two_writes() {
    let mut world = with_a_list_that_is_late(101);
    let began = world.now_ms();
    assert_eq!(world.serve(1, Request::Flush), Err(RequestError::Lost), "{world}");
    assert!(world.now_ms() - began <= 1000, "{world}");
}

/// Landing late it would take off what a newer list names.
#[test]
fn no_list_lands_after_a_newer_one() {
    for seed in 110..130 {
        let mut world = with_a_list_that_is_late(seed);
        let start = world.disks.data().start;
        world.disks.disk(0).unreadable.insert(start + 25);
        let read = world.start_read(25, 1);
        world.turns(500);
        world.disks.disk(0).hangs_in = None;
        assert_eq!(world.end(&read), Err(RequestError::Lost), "{world}");
        world.turns(500);
        world.stop();
        let names = |at: u64| listed(&world, 0).iter().any(|bad| bad.contains(&at));
        assert!(names(5) && names(25), "{world}");
    }
}

/// The superblock says that there is a list before a write is answered for what is on it, also where the first list
/// was late.
#[test]
fn a_list_that_follows_a_late_one_counts_after_a_crash() {
    for seed in 140..150 {
        let mut world = World::synced(Setup::shuffled(MIRROR, seed));
        world.write_random(0, world.sectors());
        world.set("write_deadline", "1");
        let start = world.disks.data().start;
        for disk in 0..2 {
            world.disks.disk(disk).unreadable.insert(start + 5);
        }
        let log = world.disks.superblock(0).unwrap().bad_block_log_range().unwrap();
        world.disks.disk(0).hangs_in = Some(log);
        world.start_read(5, 1);
        world.sleep_ms(1500);
        {
            let mut disk = world.disks.disk(0);
            disk.write_error = Some(IoErrorKind::Medium);
            disk.errors_in = Some(start + 25..start + 26);
        }
        let write = start_write(&mut world, 1, 25, 1);
        world.turns(500);
        world.disks.disk(0).hangs_in = None;
        world.end(&write).unwrap_or_else(|error| panic!("{error} ({world})"));
        let new = world.read(25, 1).unwrap();
        world.compare(25, &new);
        world.crash();
        world.disks.disk(0).write_error = None;
        world.assemble_all().unwrap();
        world.set("read_policy", "first");
        let found = world.read(25, 1).unwrap();
        world.compare(25, &found);
    }
}

/// The same where what follows the late list is a shorter one. The array is in use all the time, so that nothing else
/// updates the superblocks.
#[test]
fn a_list_that_gets_shorter_after_it_was_late_counts_after_a_crash() {
    for seed in 150..160 {
        let mut world = World::synced(Setup::shuffled(MIRROR, seed));
        world.write_random(0, world.sectors());
        world.set("write_deadline", "1");
        let start = world.disks.data().start;
        for disk in 0..2 {
            world.disks.disk(disk).unreadable.extend(start + 5..start + 7);
        }
        let log = world.disks.superblock(0).unwrap().bad_block_log_range().unwrap();
        world.disks.disk(0).hangs_in = Some(log);
        world.start_read(5, 2);
        for _ in 0..15 {
            world.sleep_ms(100);
            start_write(&mut world, 1, 40, 1);
        }
        world.disks.disk(0).hangs_in = None;
        start_write(&mut world, 1, 41, 1);
        world.turns(50);
        world.write_random(5, 1);
        {
            let mut disk = world.disks.disk(0);
            disk.write_error = Some(IoErrorKind::Medium);
            disk.errors_in = Some(start + 6..start + 7);
        }
        let write = start_write(&mut world, 1, 6, 1);
        world.end(&write).unwrap_or_else(|error| panic!("{error} ({world})"));
        let new = world.read(6, 1).unwrap();
        world.crash();
        {
            let mut disk = world.disks.disk(0);
            disk.write_error = None;
            disk.unreadable.clear();
        }
        world.assemble_all().unwrap();
        world.set("read_policy", "first");
        assert!(world.read(6, 1).unwrap() == new, "what it refused is believed ({world})");
    }
}
