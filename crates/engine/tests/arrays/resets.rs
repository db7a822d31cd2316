//! A drive resets: what it was not told to flush is old again. It gives that to whoever reads it, and its next flush
//! says so. What was made of it must not stand on other members when it is out.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use mdspace_engine::array::{Action, CommandError, Undecided};
use mdspace_engine::backend::IoErrorKind;
use mdspace_engine::request::{Request, RequestError};
use mdspace_engine::status::{ArrayState, MemberState, SyncAction};
use mdspace_format::Role;

use crate::shapes::{self, Shape};
use crate::world::{Pending, SECTOR, Setup, World};

/// One that bears the loss of a member, of each kind.
const SHAPES: [Shape; 4] = [shapes::RAID1, shapes::RAID5, shapes::RAID6, shapes::RAID10];

/// All is flushed, then all is written anew, and the first disk resets.
fn reset_after_writes(world: &mut World) {
    world.serve(0, Request::Flush).unwrap();
    world.write_random(0, world.sectors());
    world.disks.disk(0).reset();
}

/// Lets run what waits, until the first disk is out.
fn lose_the_first(world: &mut World) {
    world.set("sync_max", "max");
    world.wait_status("a flush", |status| status.degraded() > 0);
}

#[test]
fn a_first_resync_writes_nothing_by_what_a_member_gives_that_has_reset() {
    // RAID5 begins with a rebuild.
    for (seed, shape) in (0..).zip([shapes::RAID1, shapes::RAID6, shapes::RAID10]) {
        let mut world = World::created(Setup::shuffled(shape, seed));
        world.set("sync_max", "0");
        world.learn();
        reset_after_writes(&mut world);
        lose_the_first(&mut world);
        world.verify();
    }
}

#[test]
fn a_resync_after_a_crash_writes_nothing_by_what_a_member_gives_that_has_reset() {
    for (seed, shape) in (10..).zip(SHAPES) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_random(0, world.sectors());
        world.crash();
        world.assemble_all().unwrap();
        world.set("sync_max", "0");
        reset_after_writes(&mut world);
        lose_the_first(&mut world);
        world.verify();
    }
}

/// The process before this one has written, and nothing was flushed since.
#[test]
fn a_resync_writes_nothing_by_what_a_member_gives_that_has_reset_since_a_crash() {
    // A crash, and a member lost in it, is more than RAID5 bears.
    for (seed, shape) in (20..).zip([shapes::RAID1, shapes::RAID6, shapes::RAID10]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        reset_after_writes(&mut world);
        world.crash();
        world.assemble_all().unwrap();
        lose_the_first(&mut world);
        world.verify();
    }
}

#[test]
fn a_repair_writes_nothing_by_what_a_member_gives_that_has_reset() {
    let two_copies = Shape { disks: 2, ..shapes::RAID1 };
    for (seed, shape) in (30..).zip([two_copies, shapes::RAID5, shapes::RAID10]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        reset_after_writes(&mut world);
        world.repair_by(Undecided::ByData);
        lose_the_first(&mut world);
        world.verify();
    }
}

#[test]
fn a_block_is_not_mended_by_what_a_member_gives_that_has_reset() {
    for (seed, shape) in (40..).zip([shapes::RAID1, shapes::RAID5, shapes::RAID10]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        reset_after_writes(&mut world);
        let start = world.disks.data().start;
        world.disks.disk(1).unreadable.insert(start + 3);
        // Whatever it gives, until the block is read from that disk.
        for _ in 0..20 {
            let _ = world.read(0, world.sectors());
        }
        world.serve(0, Request::Flush).unwrap();
        lose_the_first(&mut world);
        for sector in 0..world.sectors() {
            match world.read(sector, 1) {
                Ok(found) => world.compare(sector, &found),
                // With the sector that cannot be read that is more than the level bears.
                Err(_) if shape.can_lose() == 1 => {}
                Err(error) => panic!("{error} ({world})"),
            }
        }
    }
}

/// Where nobody has written anything no resync has to ask members for more than it must.
#[test]
fn a_resync_of_what_nobody_wrote_flushes_no_member_for_each_window() {
    for (seed, shape) in (50..).zip(SHAPES) {
        let mut world = World::created(Setup::shuffled(shape, seed));
        world.wait_idle();
        let windows = world.disks.data();
        let windows = (windows.end - windows.start) / 16;
        let flushes = world.disks.disk(0).flushes;
        assert!(flushes < 2 + windows / 2, "{flushes} flushes, {world}");
    }
}

/// Its reads are under way when the flush tells, and end after that.
fn reads_under_way(world: &mut World, disk: usize, sectors: Range<u64>) {
    if world.shape().has_parity() {
        world.set("hedged_reads", "0");
    }
    world.set("read_deadline", "0");
    let start = world.disks.data().start;
    world.disks.disk(disk).hangs_in = Some(start + sectors.start..start + sectors.end);
}

/// The block that the write mixes with its own is from before an answered write, which the others have.
#[test]
fn a_write_is_not_made_of_what_a_member_gave_that_went_out_while_it_was_read() {
    for seed in 50..60 {
        let mut world = World::synced(Setup::shuffled(shapes::RAID5, seed));
        world.add(usize::from(shapes::RAID5.disks)).unwrap();
        world.write_random(0, world.sectors());
        world.serve(0, Request::Flush).unwrap();
        world.write_random(0, 8);
        let disk = world.disk_of(0);
        reads_under_way(&mut world, disk, 0..8);
        let bytes = world.random.bytes(SECTOR);
        let from = Rc::new(bytes.clone());
        let write = world.start(1, Request::Write { sector: 3, from, fua: false });
        world.turns(200);
        assert!(!write.has_ended(), "{world}");
        world.disks.disk(disk).reset();
        world.serve(2, Request::Flush).unwrap();
        world.wait_status("a rebuild", |status| status.sync.action == SyncAction::Recover);
        world.disks.disk(disk).hangs_in = None;
        world.end(&write).unwrap();
        world.remember(3, &bytes);
        world.wait_idle();
        world.verify();
    }
}

#[test]
fn no_block_is_computed_by_what_a_member_gave_that_went_out_while_it_was_read() {
    for seed in 60..70 {
        let mut world = World::synced(Setup::shuffled(shapes::RAID6, seed));
        world.write_random(0, world.sectors());
        let chunk = u64::from(shapes::RAID6.chunk_sectors);
        let [first, second] = [0, chunk].map(|sector| world.disk_of(sector));
        world.fail(second);
        world.serve(0, Request::Flush).unwrap();
        world.write_random(0, 8);
        reads_under_way(&mut world, first, 0..8);
        let into = Rc::new(RefCell::new(vec![0; 8 * SECTOR]));
        let read = world.start(1, Request::Read { sector: chunk, into: into.clone() });
        world.turns(200);
        assert!(!read.has_ended(), "{world}");
        world.disks.disk(first).reset();
        world.serve(2, Request::Flush).unwrap();
        world.disks.disk(first).hangs_in = None;
        world.end(&read).unwrap();
        world.compare(chunk, &into.take());
    }
}

/// Its row is read block by block, for one member lacks this and another one that.
#[test]
fn a_write_is_not_made_of_parts_that_a_member_gave_that_went_out_before_the_last_one() {
    let mut hung = 0;
    for seed in 70..80 {
        let mut world = World::synced(Setup::shuffled(shapes::RAID6, seed));
        world.write_random(0, world.sectors());
        world.serve(0, Request::Flush).unwrap();
        let chunk = u64::from(shapes::RAID6.chunk_sectors);
        let data = [0, 1, 2].map(|column| world.disk_of(column * chunk));
        let parity: Vec<usize> = (0..5).filter(|disk| !data.contains(disk)).collect();
        world.write_random(2 * chunk, 8);
        let start = world.disks.data().start;
        for (disk, sector) in [data[0], parity[0], parity[1]].into_iter().zip(start..) {
            world.disks.disk(disk).unreadable.insert(sector);
        }
        world.disks.disk(data[2]).reset();
        reads_under_way(&mut world, data[1], 1..2);
        let bytes = world.random.bytes(3 * SECTOR);
        let from = Rc::new(bytes.clone());
        let write = world.start(1, Request::Write { sector: chunk, from, fua: false });
        world.turns(400);
        hung += usize::from(!write.has_ended());
        world.serve(2, Request::Flush).unwrap();
        world.disks.disk(data[1]).hangs_in = None;
        world.end(&write).unwrap();
        world.remember(chunk, &bytes);
        world.verify();
    }
    assert!(hung > 0, "no part was read while the flush told");
}

/// A read of one sector that waits for a disk.
fn start_read(world: &mut World, sector: u64) -> (Pending, Rc<RefCell<Vec<u8>>>) {
    let into = Rc::new(RefCell::new(vec![0xa5; SECTOR]));
    let read = world.start(1, Request::Read { sector, into: into.clone() });
    world.turns(400);
    assert!(!read.has_ended(), "the read waits for nothing ({world})");
    (read, into)
}

/// The block that cannot be read was computed already. Nobody has written to it.
#[test]
fn no_block_is_read_by_what_a_member_gave_that_went_out_while_it_was_mended() {
    for seed in 80..90 {
        let mut world = World::synced(Setup::shuffled(shapes::RAID6, seed));
        world.write_random(0, world.sectors());
        world.serve(0, Request::Flush).unwrap();
        let (lost, stale) = (world.disk_of(0), world.disk_of(shapes::RAID6.chunk_sectors.into()));
        let start = world.disks.data().start;
        // Both parities say what the block is: one of these is read to compare.
        for parity in (0..usize::from(shapes::RAID6.disks)).filter(|it| ![lost, stale].contains(it))
        {
            world.write_random(shapes::RAID6.chunk_sectors.into(), 8);
            world.disks.disk(lost).unreadable.insert(start + 3);
            reads_under_way(&mut world, parity, 3..4);
            world.disks.disk(stale).reset();
            let into = Rc::new(RefCell::new(vec![0xa5; SECTOR]));
            let read = world.start(1, Request::Read { sector: 3, into: into.clone() });
            world.turns(400);
            world.serve(2, Request::Flush).unwrap();
            world.disks.disk(parity).hangs_in = None;
            world.end(&read).unwrap();
            world.compare(3, &into.take());
            world.verify();
            world.remove(stale);
            world.add(stale).unwrap();
            world.wait_idle();
        }
    }
}

/// It is the flush before the mend that tells.
#[test]
fn a_block_is_lost_rather_than_read_by_what_a_member_gave_that_has_reset() {
    let two_copies = Shape { disks: 2, ..shapes::RAID1 };
    for (seed, shape) in (90..).zip([two_copies, shapes::RAID5]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        if !shape.has_parity() {
            world.set("read_policy", "first");
        }
        world.write_random(0, world.sectors());
        world.serve(0, Request::Flush).unwrap();
        let lost = world.disk_of(0);
        let stale =
            if shape.has_parity() { world.disk_of(shape.chunk_sectors.into()) } else { 1 - lost };
        world.write_random(if shape.has_parity() { shape.chunk_sectors.into() } else { 0 }, 8);
        let start = world.disks.data().start;
        world.disks.disk(lost).unreadable.insert(start + 3);
        world.disks.disk(stale).reset();
        let read = world.read(3, 1).map(|_| "old bytes");
        assert_eq!(read, Err(RequestError::Lost), "{world}");
        assert!(world.status().degraded() > 0, "{world}");
    }
}

/// A third copy has what was answered and flushed, and the read has read it.
#[test]
fn a_copy_is_not_read_of_a_member_that_went_out_while_it_was_compared() {
    for seed in 95..105 {
        let mut world = World::synced(Setup::shuffled(shapes::RAID1, seed));
        world.set("read_policy", "first");
        world.write_random(0, world.sectors());
        world.serve(0, Request::Flush).unwrap();
        world.write_random(0, 8);
        let start = world.disks.data().start;
        world.disks.disk(0).unreadable.insert(start + 3);
        reads_under_way(&mut world, 2, 3..4);
        world.disks.disk(1).reset();
        let (read, into) = start_read(&mut world, 3);
        world.serve(2, Request::Flush).unwrap();
        world.disks.disk(2).hangs_in = None;
        world.end(&read).unwrap();
        world.compare(3, &into.take());
        world.verify();
    }
}

/// One that bears the loss of one member and no more, of each kind.
/// The first disk resets and its flush tells. It stays as long as another one is asked, whose records hang: superblock
/// and logs, and no data.
fn tells_and_stays(world: &mut World) -> Pending {
    world.set("write_deadline", "0");
    world.set("read_deadline", "0");
    reset_after_writes(world);
    let records = 0..world.disks.data().start;
    world.disks.disk(1).hangs_in = Some(records);
    let flush = world.start(1, Request::Flush);
    world.turns(400);
    assert!(!flush.has_ended(), "{world}");
    flush
}

/// Its flush has told, and the member is there until the others have answered.
#[test]
fn nothing_is_read_of_a_member_whose_flush_has_failed_while_it_goes_out() {
    for (seed, shape) in (150..).zip(shapes::of_one_loss()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        let flush = tells_and_stays(&mut world);
        for _ in 0..10 {
            world.verify();
        }
        world.disks.disk(1).hangs_in = None;
        world.end(&flush).unwrap();
        world.verify();
    }
}

/// A read of a sector, and where its bytes go.
type SectorRead = (u64, Pending, Rc<RefCell<Vec<u8>>>);

/// The first disk answers no read. All sectors are read.
fn read_all_while_the_first_hangs(world: &mut World) -> Vec<SectorRead> {
    world.disks.disk(0).hangs_in = Some(world.disks.data());
    let read = |sector| {
        let into = Rc::new(RefCell::new(vec![0xa5; SECTOR]));
        (sector, world.start(0, Request::Read { sector, into: into.clone() }), into)
    };
    let reads = (0..world.sectors()).map(read).collect();
    world.turns(50);
    reads
}

/// The first disk resets, and answers no read. All sectors are read, and then its flush tells.
fn reads_until_its_flush_has_told(world: &mut World) -> Vec<SectorRead> {
    reset_after_writes(world);
    let reads = read_all_while_the_first_hangs(world);
    world.serve(1, Request::Flush).unwrap();
    assert_eq!(world.status().degraded(), 1, "{world}");
    reads
}

/// The disk answers.
fn end_as_known(world: &mut World, reads: Vec<SectorRead>) {
    world.disks.disk(0).hangs_in = None;
    for (sector, read, into) in reads {
        world.end(&read).unwrap();
        world.compare(sector, &into.take());
    }
}

/// It began before the flush told, and ends when the member is out.
#[test]
fn a_read_that_ends_after_the_flush_of_its_member_has_failed_gives_nothing_of_it() {
    for (seed, shape) in (155..).zip(shapes::of_one_loss()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.set("read_deadline", "0");
        let reads = reads_until_its_flush_has_told(&mut world);
        end_as_known(&mut world, reads);
    }
}

/// The block that the write replaces is from before an answered write: parity that is made of it fits nothing.
#[test]
fn no_write_is_made_of_what_a_member_gives_whose_flush_has_failed() {
    for seed in 160..170 {
        let mut world = World::synced(Setup::shuffled(shapes::RAID5, seed));
        let flush = tells_and_stays(&mut world);
        let bytes: Vec<_> = (0..world.sectors())
            .step_by(8)
            .map(|at| (at + 3, world.random.bytes(SECTOR)))
            .collect();
        let write = |(sector, bytes): &(u64, Vec<u8>)| {
            let from = Rc::new(bytes.clone());
            world.start(0, Request::Write { sector: *sector, from, fua: false })
        };
        let writes: Vec<_> = bytes.iter().map(write).collect();
        world.turns(400);
        world.disks.disk(1).hangs_in = None;
        world.end(&flush).unwrap();
        for (write, (sector, bytes)) in writes.iter().zip(&bytes) {
            world.end(write).unwrap();
            world.remember(*sector, bytes);
        }
        world.verify();
    }
}

/// The deadline of another flush told that it is late, and nothing else. A durable write that was sent later tells.
#[test]
fn nothing_is_read_of_a_member_that_has_told_after_it_was_late_with_a_flush() {
    for (seed, shape) in (200..).zip(shapes::of_one_loss()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.set("read_deadline", "0");
        world.serve(0, Request::Flush).unwrap();
        world.write_random(0, world.sectors());
        let data = world.disks.data();
        world.disks.disk(0).fua_flushes = true;
        world.disks.disk(0).flush_hangs_on = Some(1);
        world.disks.disk(0).writes_hang_in = Some(data.clone());
        let flush = world.start(1, Request::Flush);
        world.sleep_ms(5_000);
        // What is there already: it does not matter how far that comes. Reads elsewhere do not wait for it.
        let rows = u64::from(shape.chunk_sectors.max(8)) * u64::from(shape.disks);
        let sectors = world.sectors() - rows;
        let from = Rc::new(world.read(sectors, rows).unwrap());
        let write = world.start(0, Request::Write { sector: sectors, from, fua: true });
        world.sleep_ms(4_000);
        // The others are asked, and answer late.
        world.disks.disk(1).hangs_in = Some(0..data.start);
        world.sleep_ms(1_500);
        world.disks.disk(0).reset();
        world.disks.disk(0).writes_hang_in = None;
        world.turns(400);
        assert!(!flush.has_ended(), "{world}");
        let found = world.read(0, sectors).unwrap();
        world.compare(0, &found);
        world.verify_each(0..sectors);
        world.disks.disk(1).hangs_in = None;
        world.disks.disk(0).flush_hangs_on = None;
        world.end(&flush).unwrap();
        world.end(&write).unwrap();
        world.verify();
    }
}

/// The first disk does not answer a flush of what was written.
fn hangs_in_a_flush(world: &mut World) -> Pending {
    world.set("read_deadline", "0");
    world.serve(0, Request::Flush).unwrap();
    world.write_random(0, world.sectors());
    world.disks.disk(0).flush_hangs_on = Some(1);
    world.start(1, Request::Flush)
}

/// It was answered at its deadline, and tells of a loss when it ends.
#[test]
fn nothing_is_read_of_a_member_whose_flush_has_failed_after_its_deadline() {
    for (seed, shape) in (215..).zip(shapes::of_one_loss()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        let flush = hangs_in_a_flush(&mut world);
        world.sleep_ms(9_000);
        // The others are asked, and answer late.
        let records = 0..world.disks.data().start;
        world.disks.disk(1).hangs_in = Some(records);
        world.sleep_ms(1_500);
        world.disks.disk(0).reset();
        world.disks.disk(0).flush_hangs_on = None;
        world.turns(400);
        assert!(!flush.has_ended(), "{world}");
        world.verify_each(0..world.sectors());
        world.disks.disk(1).hangs_in = None;
        world.end(&flush).unwrap();
        world.verify();
    }
}

/// Its flush was late, and it is out for that. Then the flush tells of a loss, and reads end that began before.
#[test]
fn a_read_of_a_member_that_is_out_gives_nothing_once_its_late_flush_has_told() {
    for (seed, shape) in (225..).zip(shapes::of_one_loss()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        let flush = hangs_in_a_flush(&mut world);
        let reads = read_all_while_the_first_hangs(&mut world);
        world.end(&flush).unwrap();
        assert_eq!(world.status().degraded(), 1, "{world}");
        world.disks.disk(0).reset();
        world.disks.disk(0).flush_hangs_on = None;
        world.turns(50);
        end_as_known(&mut world, reads);
        world.verify();
    }
}

/// A disk fails one write, and another one does not answer the question that comes of it. Gives the write.
fn fails_while_another_is_asked(
    world: &mut World,
    failing: usize,
    asked: usize,
    sector: u64,
) -> Pending {
    let place = world.disks.superblock(asked).unwrap().place.sector;
    world.disks.disk(asked).hangs_in = Some(place..place + 8);
    world.disks.disk(failing).fail_once(IoErrorKind::Other);
    let from = Rc::new(world.random.bytes(8 * SECTOR));
    let write = world.start(1, Request::Write { sector, from, fua: false });
    world.turns(500);
    write
}

/// It has reset, and a write of it failed: others are asked before it is out, and give what it has lost.
#[test]
fn a_member_that_has_failed_is_not_read_while_the_others_are_asked() {
    for (seed, shape) in (245..).zip(SHAPES) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        if !shape.has_parity() {
            world.set("read_policy", "first");
        }
        let disk = world.disk_of(0);
        let far = (0..world.sectors()).rev().step_by(8).map(|last| last - 7);
        let far = far.into_iter().find(|at| world.disk_of(*at) == disk).expect("it holds more");
        world.serve(0, Request::Flush).unwrap();
        world.write_random(0, 8);
        world.disks.disk(disk).reset();
        let asked = (disk + 1) % usize::from(shape.disks);
        let write = fails_while_another_is_asked(&mut world, disk, asked, far);
        assert!(!write.has_ended(), "{world}");
        world.verify_each(0..8);
        assert!(!write.has_ended(), "the reads have waited for the write ({world})");
        world.disks.disk(asked).hangs_in = None;
        world.end(&write).unwrap();
        assert_eq!(world.member_state(disk), Some(MemberState::Faulty), "{world}");
        world.verify_each(0..8);
    }
}

/// The disk that has the first block resets after a write to that, and no flush tells it. Gives the disk, and another sector
/// of the array that lies on it.
fn reset_that_no_flush_tells(world: &mut World) -> (usize, u64) {
    let disk = world.disk_of(0);
    let far = (8..world.sectors()).step_by(8).find(|at| world.disk_of(*at) == disk);
    world.serve(0, Request::Flush).unwrap();
    world.write_random(0, 8);
    world.disks.disk(disk).reset();
    world.disks.disk(disk).next_flush_fails = None;
    (disk, far.expect("it holds more"))
}

/// It has reset, and told that to the write that failed: no flush tells it once more. A crash would make it decide.
#[test]
fn no_flush_is_answered_past_a_member_that_has_failed_and_is_not_on_record_as_out() {
    for (seed, shape) in (270..).zip(SHAPES) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        let (disk, far) = reset_that_no_flush_tells(&mut world);
        let asked = (disk + 1) % usize::from(shape.disks);
        let write = fails_while_another_is_asked(&mut world, disk, asked, far);
        let flush = world.start(2, Request::Flush);
        world.turns(500);
        assert!(!flush.has_ended(), "{world}");
        world.disks.disk(asked).hangs_in = None;
        world.end(&flush).unwrap();
        let left = (0..usize::from(shape.disks)).filter(|other| *other != disk);
        let says_so = |at: usize| world.disks.superblock(at).unwrap().roles.contains(&Role::Faulty);
        assert!(left.into_iter().all(says_so), "{world}");
        world.end(&write).unwrap();
        world.verify_each(0..8);
    }
}

/// Its own flush had ended when it failed, and that of another one takes longer.
#[test]
fn no_flush_is_answered_past_a_member_that_fails_while_another_is_flushed() {
    for (seed, shape) in (300..).zip(SHAPES) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        let (disk, far) = reset_that_no_flush_tells(&mut world);
        let slow = (disk + 1) % usize::from(shape.disks);
        world.disks.disk(slow).flush_hangs_on = Some(2);
        let flush = world.start(2, Request::Flush);
        world.turns(500);
        let write = fails_while_another_is_asked(&mut world, disk, slow, far);
        world.disks.disk(slow).flush_hangs_on = None;
        world.turns(500);
        assert!(!flush.has_ended(), "{world}");
        world.disks.disk(slow).hangs_in = None;
        world.end(&flush).unwrap();
        assert_eq!(world.member_state(disk), Some(MemberState::Faulty), "{world}");
        world.end(&write).unwrap();
        world.verify_each(0..8);
    }
}

/// A replacement is filled with the old blocks of a disk that has reset. That disk's flush ends well, and then a read of it
/// fails.
#[test]
fn what_was_copied_from_a_member_that_fails_while_another_is_flushed_is_not_kept() {
    for seed in 310..316 {
        let mut world = World::synced(Setup::shuffled(shapes::RAID5, seed));
        let (old, slow, new) = (0, 1, usize::from(shapes::RAID5.disks));
        world.set("sync_max", "0");
        world.add(new).unwrap();
        let with = Some(world.disks.id(new));
        world.command(Action::Replace { member: world.disks.id(old), with }).unwrap();
        let sector = (0..world.sectors()).step_by(8).find(|at| world.disk_of(*at) == old);
        let sector = sector.expect("it holds data");
        world.serve(0, Request::Flush).unwrap();
        world.write_random(sector, 8);
        world.disks.disk(old).reset();
        world.disks.disk(old).next_flush_fails = None;
        world.disks.disk(slow).flush_hangs_on = Some(0);
        let flushes = world.disks.disk(old).flushes;
        world.set("sync_max", "max");
        world.until("a checkpoint", |world| world.disks.disk(old).flushes > flushes);
        world.disks.disk(old).read_error = Some(IoErrorKind::Other);
        // The controller has not heard of it: no write is let in.
        let read = world.start_read(sector, 8);
        world.turns(500);
        world.disks.disk(old).read_error = None;
        world.disks.disk(slow).flush_hangs_on = None;
        world.end(&read).unwrap();
        world.wait_idle();
        assert_eq!(world.member_state(old), Some(MemberState::Faulty), "{world}");
        world.verify_each(sector..sector + 8);
    }
}

/// Two disks refuse a write. One has reset, and fails in a piece. The pieces of the other one take their time.
#[test]
fn a_member_that_fails_in_pieces_of_a_write_is_not_read_while_another_writes_its_pieces() {
    for (seed, shape) in (280..).zip([shapes::RAID5, shapes::RAID6]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        let (disk, data) = (world.disk_of(0), world.disks.data());
        // It has parity there, which is written behind the data.
        let is_parity = |world: &mut World, at: u64| {
            let other = world.disk_of(at);
            world.write_random(at, 8);
            let has_parity =
                world.disks.disk(disk).writes.iter().any(|at| data.contains(&at.start));
            other != disk && has_parity
        };
        let far = (8..world.sectors()).step_by(8).find(|at| is_parity(&mut world, *at));
        let far = far.expect("it has parity");
        let slow = world.disk_of(far);
        world.serve(0, Request::Flush).unwrap();
        world.write_random(0, 8);
        world.disks.disk(disk).reset();
        let refuses = |world: &World, at: usize, kind| {
            let mut disk = world.disks.disk(at);
            disk.fail_once(kind);
            disk.errors_in = Some(data.clone());
        };
        refuses(&world, disk, IoErrorKind::Medium);
        world.disks.disk(slow).writes_hang_in = Some(data.clone());
        let from = Rc::new(world.random.bytes(8 * SECTOR));
        let write = world.start(1, Request::Write { sector: far, from, fua: false });
        world.turns(500);
        assert_eq!(world.disks.disk(disk).write_error, None, "{world}");
        refuses(&world, disk, IoErrorKind::Other);
        refuses(&world, slow, IoErrorKind::Medium);
        world.disks.disk(slow).writes_hang_in = None;
        while world.disks.disk(slow).write_error.is_some() {
            world.turns(1);
        }
        world.disks.disk(slow).writes_hang_in = Some(data.clone());
        world.turns(500);
        assert_eq!(world.disks.disk(disk).write_error, None, "{world}");
        assert!(!write.has_ended(), "{world}");
        world.verify_each(0..8);
        assert!(!write.has_ended(), "{world}");
        world.disks.disk(slow).writes_hang_in = None;
        world.end(&write).unwrap();
        world.verify_each(0..8);
    }
}

/// Two disks refuse a write. One resets while the write of its list hangs to the deadline. Then that of the other one hangs.
#[test]
fn a_member_whose_list_was_not_written_is_not_read_while_another_list_is_written() {
    for seed in 290..296 {
        let mut world = World::synced(Setup::shuffled(shapes::RAID6, seed));
        let data = world.disks.data();
        let takes = |world: &World, disk: usize| {
            world.disks.disk(disk).writes.iter().any(|at| data.contains(&at.start))
        };
        // Lists are written in the order of the members.
        let last = usize::from(shapes::RAID6.disks) - 1;
        let is_taken_by_last = |world: &mut World, at: u64| {
            world.disk_of(at);
            world.write_random(at, 8);
            takes(world, last)
        };
        let far = (8..world.sectors()).step_by(8).find(|at| is_taken_by_last(&mut world, *at));
        let far = far.expect("it has data");
        let disk = (0..last).find(|disk| takes(&world, *disk)).expect("two more take it");
        let sector =
            (0..world.sectors()).step_by(8).find(|at| *at != far && world.disk_of(*at) == disk);
        let sector = sector.expect("it holds more");
        world.serve(0, Request::Flush).unwrap();
        world.write_random(sector, 8);
        for refusing in [disk, last] {
            let list = world.disks.superblock(refusing).unwrap().bad_block_log_range().unwrap();
            let mut disk = world.disks.disk(refusing);
            (disk.write_error, disk.errors_in) = (Some(IoErrorKind::Medium), Some(data.clone()));
            disk.writes_hang_in = Some(list);
        }
        let from = Rc::new(world.random.bytes(8 * SECTOR));
        let write = world.start(1, Request::Write { sector: far, from, fua: false });
        world.turns(500);
        world.sleep_ms(10_100);
        world.turns(500);
        world.disks.disk(disk).writes_hang_in = None;
        world.disks.disk(disk).reset();
        assert!(!write.has_ended(), "{world}");
        world.verify_each(sector..sector + 8);
        assert!(!write.has_ended(), "{world}");
        world.disks.disk(last).writes_hang_in = None;
        world.end(&write).unwrap();
        assert_eq!(world.member_state(disk), Some(MemberState::Faulty), "{world}");
        world.verify_each(sector..sector + 8);
    }
}

/// The controller's own question finds that it has reset. What it gives then is not read while another one takes its time.
#[test]
fn a_member_that_fails_when_it_is_asked_is_not_read_while_another_is_asked() {
    for seed in 255..260 {
        let mut world = World::synced(Setup::shuffled(shapes::RAID1, seed));
        world.set("read_policy", "first");
        let (asked, chosen, late) = (0, 1, 2);
        world.serve(0, Request::Flush).unwrap();
        world.write_random(0, 8);
        world.disks.disk(asked).reset();
        world.disks.disk(asked).read_error = Some(IoErrorKind::Other);
        world.disks.disk(late).flush_hangs_on = Some(0);
        world.order(Action::Fail { member: world.disks.id(chosen), force: false });
        world.turns(500);
        world.disks.disk(asked).read_error = None;
        world.verify_each(0..8);
        world.disks.disk(late).flush_hangs_on = None;
        world.wait_status("who has failed is out", |status| status.degraded() > 0);
        world.verify_each(0..8);
    }
}

/// No other member suffices. What it gives may be from before a write that one has which takes its slot over.
#[test]
fn a_read_waits_until_it_is_known_what_becomes_of_the_last_member_that_gives_it() {
    for (seed, shape) in (265..).zip([shapes::RAID5, shapes::RAID6]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        let disk = world.disk_of(0);
        let far = (8..world.sectors()).step_by(8).find(|at| world.disk_of(*at) == disk);
        let far = far.expect("it holds more");
        let disks = usize::from(shape.disks);
        let others: Vec<usize> = (1..=shape.can_lose()).map(|at| (disk + at) % disks).collect();
        others.iter().for_each(|other| world.fail(*other));
        let asked = (disk + disks - 1) % disks;
        let write = fails_while_another_is_asked(&mut world, disk, asked, far);
        let into = Rc::new(RefCell::new(vec![0; 8 * SECTOR]));
        let read = world.start(2, Request::Read { sector: 0, into });
        world.turns(500);
        assert!(!write.has_ended() && !read.has_ended(), "{world}");
        world.disks.disk(asked).hangs_in = None;
        assert_eq!(world.end(&read), Err(RequestError::Lost), "{world}");
        assert_eq!(world.status().state, ArrayState::Broken, "{world}");
    }
}

/// A write of one sector takes the rest of its unit from a disk that has reset. That is out when the write ends: what the
/// round has read is kept for no later one.
#[test]
fn a_round_keeps_no_block_of_a_member_that_is_out_when_it_ends() {
    for seed in 235..241 {
        let mut world = World::synced(Setup::shuffled(shapes::RAID5, seed));
        world.set("hedged_reads", "0");
        world.set("read_deadline", "0");
        let chunk = u64::from(shapes::RAID5.chunk_sectors);
        let data_disks = u64::from(shapes::RAID5.disks) - 1;
        let unit = (0..).map(|at| at * chunk).find(|at| world.disk_of(*at) == 0);
        let unit = unit.expect("it holds data");
        let row = unit - unit % (data_disks * chunk);
        let of_row = |at: u64| (row..row + data_disks * chunk).contains(&at);
        let others: Vec<u64> =
            (0..data_disks).map(|at| row + at * chunk).filter(|at| *at != unit).collect();
        let disks: Vec<usize> = others.iter().map(|at| world.disk_of(*at)).collect();
        let parity = (1..usize::from(shapes::RAID5.disks)).find(|disk| !disks.contains(disk));
        let parity = parity.expect("it is the last one");
        world.write_random(unit, 8);
        world.disks.disk(0).reset();
        world.disks.disk(parity).writes_hang_in = Some(world.disks.data());
        let bytes = world.random.bytes(SECTOR);
        let write =
            world.start(0, Request::Write { sector: unit + 1, from: Rc::new(bytes), fua: false });
        world.turns(200);
        assert!(!write.has_ended(), "{world}");
        world.disks.disk(0).unplug();
        let far = (0..world.sectors()).find(|at| !of_row(*at) && world.disk_of(*at) == 0);
        world.read(far.expect("it holds data elsewhere"), 1).unwrap();
        assert_eq!(world.status().degraded(), 1, "{world}");
        world.disks.disk(parity).writes_hang_in = None;
        world.end(&write).unwrap();
        // What was written beside this is lost: the new parity was made of what the disk gave.
        world.verify_each(unit..unit + 1);
        world.verify_each(unit + 2..unit + 8);
        others.iter().for_each(|at| world.write_random(*at, 8));
        world.verify_each(unit..unit + 1);
        world.verify_each(unit + 2..unit + 8);
    }
}

/// The first part was read of the disk that has reset. Nothing is answered before the second one, which must be computed.
#[test]
fn a_part_that_was_read_before_a_flush_told_is_read_again_when_another_part_comes_after() {
    for (seed, shape) in (230..).zip([shapes::RAID6, shapes::RAID6, shapes::RAID10, shapes::RAID10])
    {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        let chunk = u64::from(shape.chunk_sectors);
        let chunks = world.sectors() / chunk;
        let is_first = |at: &u64| world.disk_of(at * chunk) == 0;
        let first = (0..chunks - 1).find(is_first).expect("it holds data");
        let second = world.disk_of((first + 1) * chunk);
        reset_after_writes(&mut world);
        if shape.has_parity() {
            world.set("hedged_reads", "0");
        }
        world.set("read_deadline", "0");
        let data = world.disks.data();
        // Its block is had of others only, and these do not answer.
        world.disks.disk(second).unreadable = data.clone().collect();
        let sector = first * chunk;
        let into = Rc::new(RefCell::new(vec![0xa5; 2 * chunk as usize * SECTOR]));
        let read = world.start(0, Request::Read { sector, into: into.clone() });
        world.turns(1);
        let others: Vec<usize> = (1..world.disks.count()).filter(|at| *at != second).collect();
        others.iter().for_each(|at| world.disks.disk(*at).hangs_in = Some(data.clone()));
        world.turns(50);
        assert!(!read.has_ended(), "{world}");
        world.serve(1, Request::Flush).unwrap();
        others.iter().for_each(|at| world.disks.disk(*at).hangs_in = None);
        world.end(&read).unwrap();
        world.compare(sector, &into.take());
    }
}

/// A part before it is waited for. What the member has answered counts as taken only then.
#[test]
fn a_part_of_a_read_that_waits_for_another_part_gives_nothing_of_a_member_that_was_removed() {
    for (seed, shape) in (210..).zip([shapes::RAID6, shapes::RAID5, shapes::RAID6, shapes::RAID5]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        let chunk = u64::from(shape.chunk_sectors);
        let chunks = world.sectors() / chunk;
        let second = (1..chunks).find(|at| world.disk_of(at * chunk) == 0).expect("it holds data");
        let first = world.disk_of((second - 1) * chunk);
        reset_after_writes(&mut world);
        world.set("hedged_reads", "0");
        world.set("read_deadline", "0");
        let data = world.disks.data();
        for disk in [0, first] {
            world.disks.disk(disk).hangs_in = Some(data.clone());
        }
        let sector = (second - 1) * chunk;
        let into = Rc::new(RefCell::new(vec![0xa5; 2 * chunk as usize * SECTOR]));
        let read = world.start(0, Request::Read { sector, into: into.clone() });
        world.turns(50);
        world.serve(1, Request::Flush).unwrap();
        assert_eq!(world.status().degraded(), 1, "{world}");
        world.disks.disk(0).hangs_in = None;
        world.turns(50);
        world.remove(0);
        assert!(!read.has_ended(), "{world}");
        world.disks.disk(first).hangs_in = None;
        world.end(&read).unwrap();
        world.compare(sector, &into.take());
    }
}

/// It was sent before that, and is answered when the member is known no more.
#[test]
fn a_read_that_ends_after_its_member_was_removed_gives_nothing_of_it() {
    for (seed, shape) in (155..).zip(shapes::of_one_loss()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.set("read_deadline", "0");
        let reads = reads_until_its_flush_has_told(&mut world);
        world.remove(0);
        end_as_known(&mut world, reads);
    }
}

/// The other one reads what it has. Only its flush tells that it has lost what the one to go has.
#[test]
fn no_member_is_failed_by_order_where_another_one_has_lost_what_it_was_given() {
    for (seed, shape) in (170..).zip(shapes::of_one_loss()) {
        for shape in [shape, shape.without_bitmap()] {
            let mut world = World::synced(Setup::shuffled(shape, seed));
            world.serve(0, Request::Flush).unwrap();
            world.write_random(0, world.sectors());
            world.disks.disk(1).reset();
            let what = Action::Fail { member: world.disks.id(0), force: false };
            assert_eq!(world.command(what).map(drop), Err(CommandError::Needed), "{world}");
            assert_eq!(world.member_state(1), Some(MemberState::Faulty), "{world}");
            world.verify();
        }
    }
}

#[test]
fn failing_fast_gives_up_no_member_where_the_other_one_has_lost_what_it_was_given() {
    for seed in 180..190 {
        let shape = Shape { failfast: 0b1, disks: 2, ..shapes::RAID1 };
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.set("read_policy", "first");
        world.serve(0, Request::Flush).unwrap();
        world.write_random(0, world.sectors());
        world.disks.disk(1).reset();
        let start = world.disks.data().start;
        world.disks.disk(0).unreadable.insert(start + 3);
        let _ = world.read(3, 1);
        world.turns(2000);
        world.disks.disk(0).unreadable.clear();
        world.verify();
    }
}

/// A shelf is without power for a moment. That is more than the level bears, and nothing of it is on record: all come
/// back by a plain assembly.
#[test]
fn no_member_is_on_record_as_out_where_others_have_lost_what_they_were_given_with_it() {
    for (seed, shape) in (190..).zip([shapes::RAID5, Shape { disks: 2, ..shapes::RAID1 }]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.serve(0, Request::Flush).unwrap();
        world.write_random(0, world.sectors());
        world.disks.disk(1).reset();
        world.disks.disk(0).reset();
        world.disks.disk(0).flush_hangs_on = Some(0);
        let flush = world.start(0, Request::Flush);
        world.turns(400);
        world.disks.disk(0).flush_hangs_on = None;
        assert!(world.end(&flush).is_err(), "{world}");
        world.wait_status("no array", |status| status.state == ArrayState::Broken);
        world.crash();
        world.assemble_all().unwrap();
        assert_eq!(world.status().degraded(), 0, "{world}");
    }
}
