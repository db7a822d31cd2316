//! What parity can be believed before the first resync, and after a write that ended half-way.

use std::cell::RefCell;
use std::rc::Rc;

use mdspace_engine::array::{Action, CommandError};
use mdspace_engine::assembly::Options;
use mdspace_engine::backend::IoErrorKind;
use mdspace_engine::geometry::Level;
use mdspace_engine::request::{Request, RequestError};
use mdspace_engine::status::{MemberState, SyncAction, SyncEnd};

use crate::shapes::{self, DATA_OFFSET, MEMBER_SECTORS, Shape};
use crate::world::{SECTOR, Setup, World};

/// RAID5 is made by recovery onto its last member, so that its parity is right from the start.
fn resynced_at_first() -> [Shape; 2] {
    [shapes::RAID6, Shape::new(Level::Raid6, 8, 5, 16)]
}

/// An array that was just made over old bytes, no row resynced.
fn unsynced(shape: Shape, seed: u64) -> World {
    let mut world = World::created(Setup::shuffled(shape, seed));
    world.command(Action::Freeze).unwrap();
    world.learn();
    world
}

/// An array that was just made over old bytes, every sector written and no row resynced.
fn written_and_unsynced(shape: Shape, seed: u64) -> World {
    let mut world = unsynced(shape, seed);
    world.write_random(0, world.sectors());
    world
}

fn row_sectors(shape: &Shape) -> u64 {
    u64::from(shape.chunk_sectors) * u64::from(shape.disks - 2)
}

#[test]
fn one_failed_write_puts_no_other_row_in_doubt() {
    for (seed, shape) in (1..).zip(resynced_at_first()) {
        let mut world = written_and_unsynced(shape, seed);
        let row = row_sectors(&shape);
        world.disks.disk(2).write_error = Some(IoErrorKind::NoSpace);
        let failed = world.write(0, vec![9; row as usize * SECTOR]);
        assert_eq!(failed, Err(RequestError::NoSpace), "{world}");
        world.disks.disk(2).write_error = None;
        [1, 3].into_iter().for_each(|disk| world.fail(disk));
        assert!(world.read(0, row).is_err(), "old parity answers for new data ({world})");
        let rest = world.read(row, world.sectors() - row).unwrap();
        world.compare(row, &rest);
    }
}

#[test]
fn unreadable_sectors_are_answered_but_not_mended_before_the_first_resync() {
    for (seed, shape) in (10..).zip(resynced_at_first()) {
        let mut world = written_and_unsynced(shape, seed);
        world.disks.reset_counts();
        world.disks.disk(3).unreadable.extend(DATA_OFFSET..DATA_OFFSET + 4);
        world.verify();
        assert!(world.disks.disk(3).writes.is_empty(), "{world}");
        world.command(Action::Idle).unwrap();
        world.wait_idle();
        world.disks.reset_counts();
        world.disks.disk(3).unreadable.extend(DATA_OFFSET..DATA_OFFSET + 4);
        world.verify();
        assert!(!world.disks.disk(3).writes.is_empty(), "{world}");
    }
}

/// The row whose write failed half-way cannot be rebuilt; all others can.
#[test]
fn a_rebuild_goes_round_a_row_in_doubt() {
    for (seed, shape) in (20..).zip([shapes::RAID5, shapes::RAID5.without_bitmap()]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.command(Action::Freeze).unwrap();
        let row = u64::from(shape.chunk_sectors) * u64::from(shape.disks - 1);
        // The dirty mark and the row's bits are on the members before the error comes.
        world.write_random(row, row);
        world.disks.disk(1).write_error = Some(IoErrorKind::NoSpace);
        let failed = world.write(row, vec![9; row as usize * SECTOR]);
        assert_eq!(failed, Err(RequestError::NoSpace), "{world}");
        world.disks.disk(1).write_error = None;
        world.fail(0);
        let spare = usize::from(shape.disks);
        world.add(spare).unwrap();
        world.command(Action::Idle).unwrap();
        world.wait_status("the end of a rebuild", |status| {
            status.sync.action == SyncAction::Idle && status.sync.last_end.is_some()
        });
        let sync = world.status().sync;
        assert_eq!(sync.last_end, Some(SyncEnd::Incomplete), "{world}");
        assert_eq!(sync.skipped.sectors, u64::from(shape.chunk_sectors), "{world}");
        let before = world.read(0, row).unwrap();
        world.compare(0, &before);
        let rest = world.read(2 * row, world.sectors() - 2 * row).unwrap();
        world.compare(2 * row, &rest);
        assert!(world.read(row, row).is_err(), "old parity answers for new data ({world})");
        // The superblock promises nothing behind the hole, and no more than it fills.
        let superblock = world.disks.superblock(spare).unwrap();
        let chunk = u64::from(shape.chunk_sectors);
        assert_eq!(superblock.recovery_offset_sectors, Some(chunk), "{world}");
        // What was rebuilt behind it is read from there: the others were not needed.
        world.disks.reset_counts();
        world.read(2 * row, world.sectors() - 2 * row).unwrap();
        assert!(world.disks.disk(spare).sectors_read() > 0, "{world}");
    }
}

/// A superblock with a resync offset of 0 says that the array was in use when it ended.
#[test]
fn a_stop_before_the_first_resync_has_begun_puts_nothing_in_doubt() {
    for (seed, shape) in (40..).zip(resynced_at_first()) {
        for readonly in [false, true] {
            let mut world = written_and_unsynced(shape, seed);
            let (lost, other) = (world.disk_of(0), world.disk_of(u64::from(shape.chunk_sectors)));
            if readonly {
                world.command(Action::ReadOnly).unwrap();
                world.crash();
            } else {
                world.stop();
            }
            world.assemble_all().unwrap();
            world.command(Action::Freeze).unwrap();
            assert_eq!(world.status().doubted.sectors, 0, "{world}");
            world.fail(lost);
            world.fail(other);
            world.verify();
        }
    }
}

/// A member does not answer reads of them.
#[test]
fn a_stop_waits_ten_seconds_for_the_first_rows_at_most() {
    for (seed, shape) in (44..).zip(resynced_at_first()) {
        let mut world = written_and_unsynced(shape, seed);
        world.disks.disk(1).hangs_in =
            Some(DATA_OFFSET..DATA_OFFSET + u64::from(shape.chunk_sectors));
        let before = world.now_ms();
        world.stop();
        let took = world.now_ms() - before;
        assert!((9_000..15_000).contains(&took), "{took} ms ({world})");
    }
}

/// They have ended when the next order comes, and another task runs that pauses.
#[test]
fn first_rows_that_were_begun_for_an_order_that_is_taken_back_hold_up_no_later_stop() {
    for (seed, shape) in (46..).zip(resynced_at_first()) {
        let mut world = written_and_unsynced(shape, seed);
        let chunk = u64::from(shape.chunk_sectors);
        world.disks.disk(1).hangs_in = Some(DATA_OFFSET..DATA_OFFSET + chunk);
        world.order(Action::ReadOnly);
        world.turns(500);
        world.command(Action::ReadWrite).unwrap();
        world.disks.disk(1).hangs_in = None;
        world.set("sync_max", &(2 * chunk).to_string());
        world.command(Action::Idle).unwrap();
        world.wait_status("a pause", |status| status.sync.completed_sectors == 2 * chunk);
        let before = world.now_ms();
        world.stop();
        assert!(world.now_ms() - before < 5_000, "{world}");
    }
}

/// Parity of old bytes says nothing of a member that is late, and comes back with what it really has.
#[test]
fn a_write_before_the_first_resync_waits_for_a_late_member_that_it_needs() {
    for (seed, shape) in (50..).zip(resynced_at_first()) {
        let mut world = unsynced(shape, seed);
        world.write_random(0, 8);
        // Both have blocks of the first row.
        let (written, late) = (world.disk_of(0), world.disk_of(16));
        world.set("write_deadline", "0");
        world.disks.disk(late).hangs_in = Some(0..u64::MAX);
        let read = world.start_read(16, 8);
        world.wait_status("a late member", |status| status.members[late].late);
        let bytes = world.random.bytes(8 * SECTOR);
        world.remember(0, &bytes);
        let write = Request::Write { sector: 0, from: Rc::new(bytes), fua: false };
        let write = world.submit(0, write);
        world.turns(2000);
        assert!(!write.has_ended(), "{world}");
        world.disks.disk(late).hangs_in = None;
        world.end(&write).unwrap();
        world.end(&read).unwrap();
        world.fail(written);
        let bytes = world.read(0, 8).unwrap();
        world.compare(0, &bytes);
    }
}

/// An array whose every row is marked after a crash in which no write was under way, and no resync runs.
fn crashed(shape: Shape, seed: u64) -> World {
    let mut world = World::synced(Setup::shuffled(shape, seed));
    world.write_random(0, world.sectors());
    world.crash();
    world.assemble_all().unwrap();
    world.command(Action::Freeze).unwrap();
    world
}

/// P and Q agree on what the missing member held: the rows are of one time.
#[test]
fn after_a_crash_two_parities_tell_whether_a_row_is_of_one_time() {
    for (seed, shape) in (60..).zip(resynced_at_first()) {
        for lost in 0..3 {
            let mut world = crashed(shape, seed);
            let member = world.disks.id(lost);
            world.command(Action::Fail { member, force: true }).unwrap();
            world.verify();
            // Every row that lacks a data block was resolved by its read.
            assert!(world.status().doubted.sectors < MEMBER_SECTORS / 2, "{world}");
        }
    }
}

/// The same rows are resolved by resync where they are not read, and then a second loss is borne.
#[test]
fn a_resync_of_a_degraded_raid6_ends_the_doubt_of_a_crash() {
    for (seed, shape) in (70..).zip(resynced_at_first()) {
        let mut world = crashed(shape, seed);
        for (lost, resynced) in [(1, false), (2, true)] {
            let member = world.disks.id(lost);
            world.command(Action::Fail { member, force: true }).unwrap();
            world.command(Action::Idle).unwrap();
            world.wait_idle();
            assert_eq!(world.status().doubted.sectors, 0, "{world}, {resynced}");
            world.verify();
        }
    }
}

/// Where P and Q disagree a write ended half-way: the missing block is an error, and never other bytes.
#[test]
fn where_two_parities_disagree_the_missing_block_is_an_error() {
    for (seed, shape) in (80..).zip(resynced_at_first()) {
        let mut world = crashed(shape, seed);
        let row = row_sectors(&shape);
        // As if one member alone had taken a write: another block than the one that will be missing.
        let (torn, lost) = (world.disk_of(0), world.disk_of(row - 8));
        assert_ne!(torn, lost);
        let at = DATA_OFFSET as usize * SECTOR;
        world.disks.disk(torn).bytes[at..at + SECTOR].fill(0x5a);
        let member = world.disks.id(lost);
        world.command(Action::Fail { member, force: true }).unwrap();
        let chunk = u64::from(shape.chunk_sectors);
        let lost_block = row - chunk;
        assert_eq!(world.read(lost_block, 1), Err(RequestError::Lost), "{world}");
        // Beside it, in the same row, the parities agree.
        let beside = world.read(lost_block + 1, chunk - 1).unwrap();
        world.compare(lost_block + 1, &beside);
        world.command(Action::Idle).unwrap();
        world.wait_status("the end of a resync", |status| {
            status.sync.action == SyncAction::Idle && status.sync.last_end.is_some()
        });
        assert_eq!(world.status().doubted.sectors, 1, "{world}");
        assert_eq!(world.read(lost_block, 1), Err(RequestError::Lost), "{world}");
        // The user takes what parity gives; the array is whole redundancy again.
        world.command(Action::AcceptDoubt).unwrap();
        world.wait_idle();
        assert_eq!(world.status().doubted.sectors, 0, "{world}");
        world.read(lost_block, 1).unwrap();
    }
}

/// With as many members missing as there are parities nothing is left that could disagree, but in the rows
/// that a rebuild has filled already.
#[test]
fn rows_that_a_rebuild_has_filled_are_resynced_although_another_member_failed() {
    for (seed, shape) in (120..).zip(resynced_at_first()) {
        let mut world = World::created(Setup::shuffled(shape, seed));
        world.command(Action::Freeze).unwrap();
        let spare = usize::from(shape.disks);
        world.fail(0);
        world.add(spare).unwrap();
        world.set("sync_max", "128");
        world.command(Action::Idle).unwrap();
        world.wait_status("half of a rebuild", |status| status.sync.completed_sectors >= 128);
        world.fail(1);
        world.set("sync_max", "max");
        world.add(spare + 1).unwrap();
        world.command(Action::Idle).unwrap();
        world.wait_status("all members in sync", |status| status.degraded() == 0);
        world.wait_idle();
        assert_eq!(world.check(), 0, "{world}");
    }
}

/// A write that failed is on both parities and not on the member of its block, which then lets a read wait.
#[test]
fn a_block_in_doubt_is_not_computed_while_its_member_is_only_late() {
    for (seed, shape) in (130..).zip(resynced_at_first()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.command(Action::Freeze).unwrap();
        world.write_random(0, world.sectors());
        let disk = world.disk_of(0);
        let before = world.read(0, 8).unwrap();
        world.disks.disk(disk).write_error = Some(IoErrorKind::NoSpace);
        assert_eq!(world.write(0, vec![9; 8 * SECTOR]), Err(RequestError::NoSpace), "{world}");
        world.disks.disk(disk).write_error = None;
        assert_eq!(world.read(0, 8), Ok(before.clone()), "{world}");
        world.disks.disk(disk).hangs_in = Some(world.disks.data());
        let into = Rc::new(RefCell::new(vec![0; 8 * SECTOR]));
        let read = world.start(0, Request::Read { sector: 0, into: into.clone() });
        world.rounds(2000);
        assert!(!read.has_ended(), "{world}");
        world.disks.disk(disk).hangs_in = None;
        world.end(&read).unwrap();
        assert!(into.take() == before, "{world}");
    }
}

/// What the user accepts by force is parity for the one member that is missing, not for the next one.
#[test]
fn doubt_accepted_with_one_member_missing_is_not_accepted_for_a_second() {
    for (seed, shape) in (110..).zip(resynced_at_first()) {
        for resyncs in [false, true] {
            let mut world = World::synced(Setup::shuffled(shape, seed));
            world.write_random(0, world.sectors());
            let row = row_sectors(&shape);
            let chunk = u64::from(shape.chunk_sectors);
            let [torn, second, missing] = [0, chunk, row - 8].map(|at| world.disk_of(at));
            assert!(second != missing, "{world}");
            world.crash();
            let at = DATA_OFFSET as usize * SECTOR;
            world.disks.disk(torn).bytes[at..at + SECTOR].fill(0x5a);
            let left: Vec<usize> =
                (0..usize::from(shape.disks)).filter(|disk| *disk != missing).collect();
            let options = Options { run: true, force: true, ..Options::default() };
            world.assemble(&left, &options).unwrap();
            world.command(Action::Freeze).unwrap();
            // The missing block is computed, whatever its parity is worth. All others are as written.
            let lost_block = row - chunk;
            world.read(lost_block, 1).unwrap();
            let rest = world.read(row, world.sectors() - row).unwrap();
            world.compare(row, &rest);
            if resyncs {
                world.command(Action::Idle).unwrap();
                world.wait_idle();
                assert_eq!(world.status().doubted.sectors, 0, "{world}");
            }
            let member = world.disks.id(second);
            world.command(Action::Fail { member, force: true }).unwrap();
            // Any sector of the torn row but the torn one and the one computed before.
            for sector in (8..lost_block).chain(lost_block + 1..row) {
                match world.read(sector, 1) {
                    Ok(read) => world.compare(sector, &read),
                    Err(error) => assert!(!resyncs && error == RequestError::Lost, "{world}"),
                }
            }
        }
    }
}

/// With one parity nothing can be compared: the user decides, and then nothing is lost for good.
#[test]
fn doubt_that_nothing_can_resolve_ends_when_the_user_accepts_it() {
    for (seed, shape) in (90..).zip([shapes::RAID5, shapes::RAID5.without_bitmap()]) {
        let mut world = crashed(shape, seed);
        let spare = usize::from(shape.disks);
        let member = world.disks.id(1);
        world.command(Action::Fail { member, force: true }).unwrap();
        world.add(spare).unwrap();
        world.command(Action::Idle).unwrap();
        world.wait_status("a rebuild that leaves rows out", |status| {
            status.sync.action == SyncAction::Idle
                && status.sync.last_end == Some(SyncEnd::Incomplete)
        });
        assert!(world.status().doubted.sectors > 0, "{world}");
        assert_eq!(world.read(0, world.sectors()), Err(RequestError::Lost), "{world}");
        world.command(Action::AcceptDoubt).unwrap();
        world.wait_idle();
        world.verify();
        assert_eq!(world.member_state(spare), Some(MemberState::InSync), "{world}");
        assert_eq!(world.check(), 0, "{world}");
        assert_eq!(world.command(Action::AcceptDoubt).err(), Some(CommandError::NothingInDoubt));
    }
}

/// What may be half-written is made right before anything else is filled: another failure loses it.
#[test]
fn what_a_crash_left_in_doubt_is_resynced_before_a_member_is_filled_or_replaced() {
    for (seed, shape) in (100..).zip([shapes::RAID5, shapes::RAID6]) {
        let mut world = crashed(shape, seed);
        let (member, spare) = (world.disks.id(1), usize::from(shape.disks));
        world.add(spare).unwrap();
        world.command(Action::Replace { member, with: None }).unwrap();
        world.command(Action::Idle).unwrap();
        world.wait_status("the first task", |status| status.sync.action.runs());
        assert_eq!(world.status().sync.action, SyncAction::Resync, "{world}");
        world.wait_idle();
        world.verify();
    }
}

/// The copy that was read is gone, and the other one had no room for what was read there: it has the bytes of
/// before. From then on these stay, also when the first member comes back.
#[test]
fn a_failed_write_turns_old_once_where_the_copy_that_was_read_fails_by_itself() {
    for (seed, shape) in (140..).zip([Shape::new(Level::Raid1, 0, 2, 0), shapes::RAID10]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.command(Action::Freeze).unwrap();
        world.write_random(0, 8);
        let (before, new) = (world.read(0, 8).unwrap(), vec![9; 8 * SECTOR]);
        world.disks.disk(1).write_error = Some(IoErrorKind::NoSpace);
        assert_eq!(world.write(0, new.clone()), Err(RequestError::NoSpace), "{world}");
        world.disks.disk(1).write_error = None;
        let reads = |world: &mut World| world.read(0, 8).unwrap();
        (0..10).for_each(|_| assert!(reads(&mut world) == new, "{world}"));
        world.disks.disk(0).unplug();
        (0..10).for_each(|_| assert!(reads(&mut world) == before, "{world}"));
        world.disks.disk(0).plug();
        world.crash();
        world.assemble_all().unwrap();
        world.verify();
        world.add(0).unwrap();
        world.wait_idle();
        world.verify();
        assert_eq!((world.status().degraded(), world.check()), (0, 0), "{world}");
        world.fail(1);
        world.verify();
    }
}

/// Parity says nothing of what was never written: a member that is late has other bytes there, and was read
/// before.
#[test]
fn a_sector_that_was_never_written_is_not_computed_while_its_member_is_only_late() {
    for (seed, shape) in (150..).zip(resynced_at_first()) {
        let mut world = unsynced(shape, seed);
        let disk = world.disk_of(0);
        world.disks.disk(disk).hangs_in = Some(world.disks.data());
        let into = Rc::new(RefCell::new(vec![0; 8 * SECTOR]));
        let read = world.start(0, Request::Read { sector: 0, into: into.clone() });
        world.rounds(2000);
        world.disks.disk(disk).hangs_in = None;
        world.end(&read).unwrap();
        world.compare(0, &into.take());
    }
}

/// What was written is not waited for: both parities say the same of it.
#[test]
fn a_sector_that_was_written_before_the_first_resync_is_computed_while_its_member_is_late() {
    for (seed, shape) in (160..).zip(resynced_at_first()) {
        let mut world = unsynced(shape, seed);
        world.write_random(0, 8);
        // It is late, and does not fail.
        world.set("write_deadline", "0");
        let disk = world.disk_of(0);
        let last = world.sectors() - row_sectors(&shape);
        let other = (last..).step_by(16).find(|sector| world.disk_of(*sector) == disk).unwrap();
        world.disks.disk(disk).hangs_in = Some(world.disks.data());
        let found = world.read(0, 8).unwrap();
        world.compare(0, &found);
        let never = world.start_read(other, 8);
        world.rounds(2000);
        assert_eq!(never.result(), None, "{world}");
        world.disks.disk(disk).hangs_in = None;
        world.end(&never).unwrap();
        world.verify();
    }
}

/// The row lacks what one member had no room for: without that one the others are of one time, and give the
/// block of a member that fails. What the member without room has stays what is read there.
#[test]
fn without_the_member_that_had_no_room_two_parities_give_the_block_of_one_that_failed() {
    for (seed, shape) in (170..).zip(resynced_at_first()) {
        let row = row_sectors(&shape);
        let disks = 0..usize::from(shape.disks);
        let pairs = disks.clone().flat_map(|full| disks.clone().map(move |lost| (full, lost)));
        for (full, lost) in pairs.filter(|(full, lost)| full != lost) {
            let mut world = World::synced(Setup::shuffled(shape, seed));
            world.command(Action::Freeze).unwrap();
            world.write_random(0, world.sectors());
            let written = world.disk_of(0);
            world.disks.disk(full).write_error = Some(IoErrorKind::NoSpace);
            let result = world.write(0, vec![9; 8 * SECTOR]);
            world.disks.disk(full).write_error = None;
            if lost == written || result.is_ok() {
                continue;
            }
            assert_eq!(result, Err(RequestError::NoSpace), "{world}");
            let there = world.read(0, 8).unwrap();
            world.remember(0, &there);
            world.fail(lost);
            world.verify();
            // A write beside it needs the lost block too, and makes the row right where it is.
            world.write_random(row - 4, 4);
            world.verify();
            world.command(Action::Idle).unwrap();
            world.wait_idle();
            assert_eq!(world.status().doubted.sectors, 0, "{world}");
            let last = disks.clone().rev().find(|disk| *disk != lost).unwrap();
            world.fail(last);
            world.verify();
        }
    }
}

/// Has the array resync while these disks have no room for data, and nothing more after that.
fn resync_without_room(world: &mut World, full: &[usize]) {
    let data = world.disks.data();
    for disk in full {
        let mut disk = world.disks.disk(*disk);
        (disk.write_error, disk.errors_in) = (Some(IoErrorKind::NoSpace), Some(data.clone()));
    }
    world.command(Action::Idle).unwrap();
    world.wait_idle();
    world.command(Action::Freeze).unwrap();
}

/// A resync wrote one parity and found no room for the other: now that one lacks something, and all others are of
/// one time.
#[test]
fn after_a_resync_that_came_half_way_the_others_give_the_block_of_a_member_that_fails() {
    for (seed, shape) in (180..).zip(resynced_at_first()) {
        let disks = 0..usize::from(shape.disks);
        let pairs = disks.clone().flat_map(|full| disks.clone().map(move |lost| (full, lost)));
        let mut half_way = 0;
        for (full, lost) in pairs.filter(|(full, lost)| full != lost) {
            let mut world = World::synced(Setup::shuffled(shape, seed));
            world.command(Action::Freeze).unwrap();
            world.write_random(0, world.sectors());
            let written = world.disk_of(0);
            if lost == written {
                continue;
            }
            fail_for_want_of_space(&mut world, written);
            resync_without_room(&mut world, &[full]);
            half_way += u32::from(world.status().sync.last_end == Some(SyncEnd::NoSpace));
            world.fail(lost);
            world.verify();
        }
        assert!(half_way > 0);
    }
}

/// There was room for neither parity, or a part of them may have found some: nothing tells what the block of a third
/// member was.
#[test]
fn a_resync_that_found_room_for_no_parity_leaves_no_block_to_be_computed_wrong() {
    let mut unknown = 0;
    for (seed, shape) in (185..).zip(resynced_at_first()) {
        for lost in 0..usize::from(shape.disks) {
            let mut world = World::synced(Setup::shuffled(shape, seed));
            world.command(Action::Freeze).unwrap();
            world.write_random(0, world.sectors());
            let written = world.disk_of(0);
            if lost == written {
                continue;
            }
            fail_for_want_of_space(&mut world, written);
            let full: Vec<usize> =
                (0..usize::from(shape.disks)).filter(|disk| *disk != lost).collect();
            resync_without_room(&mut world, &full);
            world.fail(lost);
            for sector in 0..world.sectors() {
                match world.read(sector, 1) {
                    Ok(read) => world.compare(sector, &read),
                    Err(error) => {
                        assert_eq!(error, RequestError::Lost, "{world}");
                        unknown += 1;
                    }
                }
            }
        }
    }
    assert!(unknown > 0);
}

/// The same, with the third member out before: reads of its block wait for the resync's claim, and may go on
/// under the view that was there before it came half-way.
#[test]
fn no_lane_computes_by_what_was_known_before_a_resync_came_half_way() {
    let mut answered = 0;
    for (seed, shape) in (200..).zip(resynced_at_first().into_iter().cycle()).take(12) {
        let row = row_sectors(&shape);
        let disks = 0..usize::from(shape.disks);
        let pairs = disks.clone().flat_map(|full| disks.clone().map(move |lost| (full, lost)));
        for (full, lost) in pairs.filter(|(full, lost)| full != lost) {
            let mut world = World::synced(Setup::shuffled(shape, seed));
            world.command(Action::Freeze).unwrap();
            world.write_random(0, world.sectors());
            let written = world.disk_of(0);
            if lost == written || full == written {
                continue;
            }
            fail_for_want_of_space(&mut world, written);
            world.fail(lost);
            world.verify();
            {
                let data = world.disks.data();
                let mut disk = world.disks.disk(full);
                (disk.write_error, disk.errors_in) = (Some(IoErrorKind::NoSpace), Some(data));
            }
            world.order(Action::Idle);
            let mut reads = Vec::new();
            for turn in 0..60 {
                for sector in (0..row).step_by(shape.chunk_sectors as usize) {
                    let into = Rc::new(RefCell::new(vec![0; SECTOR]));
                    let request = Request::Read { sector, into: into.clone() };
                    reads.push((sector, into, world.start(turn % 3, request)));
                }
                world.turns(1);
            }
            for (sector, into, pending) in reads {
                match world.end(&pending) {
                    Ok(()) => {
                        world.compare(sector, &into.take());
                        answered += 1;
                    }
                    Err(error) => assert_eq!(error, RequestError::Lost, "{world}"),
                }
            }
        }
    }
    assert!(answered > 0);
}

/// A resync tries in vain to write the parity that the failed write lacks: nothing else changed, and the others give
/// the block of a member that fails.
#[test]
fn a_resync_that_found_no_room_again_leaves_known_which_parity_the_write_lacks() {
    for (seed, shape) in (280..).zip(resynced_at_first()) {
        let disks = 0..usize::from(shape.disks);
        let pairs = disks.clone().flat_map(|full| disks.clone().map(move |lost| (full, lost)));
        let mut tried = 0;
        for (full, lost) in pairs.filter(|(full, lost)| full != lost) {
            let mut world = World::synced(Setup::shuffled(shape, seed));
            world.command(Action::Freeze).unwrap();
            world.write_random(0, world.sectors());
            let written = world.disk_of(0);
            {
                let data = world.disks.data();
                let mut disk = world.disks.disk(full);
                (disk.write_error, disk.errors_in) = (Some(IoErrorKind::NoSpace), Some(data));
            }
            let result = world.write(0, vec![9; 8 * SECTOR]);
            if lost == written || full == written || result.is_ok() {
                continue;
            }
            assert_eq!(result, Err(RequestError::NoSpace), "{world}");
            let there = world.read(0, 8).unwrap();
            world.remember(0, &there);
            world.command(Action::Idle).unwrap();
            world.wait_status("no space", |status| status.sync.last_end == Some(SyncEnd::NoSpace));
            world.command(Action::Freeze).unwrap();
            world.fail(lost);
            world.verify();
            tried += 1;
        }
        assert!(tried > 0);
    }
}

/// Where it is known which block a write lacks, accepted parity is not taken for what it says with that one.
#[test]
fn a_write_beside_accepted_doubt_computes_around_the_member_that_had_no_room() {
    for (seed, shape) in (220..).zip(resynced_at_first()) {
        let row = row_sectors(&shape);
        for lost in 0..usize::from(shape.disks) {
            let mut world = World::synced(Setup::shuffled(shape, seed));
            world.command(Action::Freeze).unwrap();
            world.write_random(0, world.sectors());
            let written = world.disk_of(0);
            if lost == written {
                continue;
            }
            fail_for_want_of_space(&mut world, written);
            world.fail(lost);
            world.command(Action::AcceptDoubt).unwrap();
            world.verify();
            for place in 0..row / u64::from(shape.chunk_sectors) {
                world.write_random(place * u64::from(shape.chunk_sectors), 4);
                world.verify();
            }
        }
    }
}

/// A block that cannot be read just now may be read again, as it was: that two parities say the same of it ends
/// no doubt before it is written again.
#[test]
fn doubt_of_a_block_that_may_be_read_again_does_not_end_before_it_is_written() {
    for (seed, shape) in (240..).zip(resynced_at_first()) {
        let disks = 0..usize::from(shape.disks);
        let cases = disks.flat_map(|lost| [(lost, false), (lost, true)]);
        for (lost, writes_beside) in cases {
            let mut world = World::synced(Setup::shuffled(shape, seed));
            world.command(Action::Freeze).unwrap();
            world.write_random(0, world.sectors());
            let written = world.disk_of(0);
            if lost == written {
                continue;
            }
            world.disks.disk(written).write_error = Some(IoErrorKind::NoSpace);
            let failed = world.write(0, vec![9; 8 * SECTOR]);
            assert_eq!(failed, Err(RequestError::NoSpace), "{world}");
            let data = world.disks.data();
            world.disks.disk(written).unreadable.extend(data.start..data.start + 8);
            if writes_beside {
                // New parity would fit one of the two that may be read there, and nothing tells which.
                let result = world.write(u64::from(shape.chunk_sectors), vec![7; 4 * SECTOR]);
                assert_eq!(result, Err(RequestError::Lost), "{world}");
            }
            // A full disk cannot list it for good either: what the parities say is given only where its own is not read
            // there again.
            let given = world.read(0, 8).ok().filter(|_| !writes_beside);
            world.disks.disk(written).unreadable.clear();
            world.disks.disk(written).write_error = None;
            let there = world.read(0, 8).unwrap();
            assert!(given.is_none_or(|given| given == there), "{world}");
            world.remember(0, &there);
            world.fail(lost);
            for sector in 0..world.sectors() {
                match world.read(sector, 1) {
                    Ok(read) => world.compare(sector, &read),
                    Err(error) => assert_eq!(error, RequestError::Lost, "{world}"),
                }
            }
        }
    }
}

/// Every sector is what was there, or an error that says so.
fn verify_or_lost(world: &mut World) {
    for sector in 0..world.sectors() {
        match world.read(sector, 1) {
            Ok(read) => world.compare(sector, &read),
            Err(error) => assert_eq!(error, RequestError::Lost, "{world}"),
        }
    }
}

/// A block was computed around the one that lacks a write, and is written again. That compares no parities: what the
/// late member has still does not fit.
#[test]
fn a_mend_ends_no_doubt_where_it_could_not_compare_both_parities() {
    for (seed, shape) in (280..).zip(resynced_at_first()) {
        let disks = 0..usize::from(shape.disks);
        let pairs = disks.clone().flat_map(|full| disks.clone().map(move |bad| (full, bad)));
        for (full, bad) in pairs.filter(|(full, bad)| full != bad) {
            let mut world = World::synced(Setup::shuffled(shape, seed));
            world.command(Action::Freeze).unwrap();
            world.write_random(0, world.sectors());
            world.disks.disk(full).write_error = Some(IoErrorKind::NoSpace);
            let failed = world.write(0, vec![9; 8 * SECTOR]);
            world.disks.disk(full).write_error = None;
            if failed.is_ok() {
                continue;
            }
            let there = world.read(0, 8).unwrap();
            world.remember(0, &there);
            let data = world.disks.data();
            world.disks.disk(bad).unreadable.extend(data.start..data.start + 8);
            world.disks.disk(full).hangs_in = Some(data);
            world.set("read_deadline", "1");
            let row = row_sectors(&shape);
            let reads: Vec<_> = (0..row).step_by(8).map(|at| world.start_read(at, 8)).collect();
            world.sleep_ms(5000);
            world.disks.disk(full).hangs_in = None;
            world.disks.disk(bad).unreadable.clear();
            for read in &reads {
                let _ = world.end(read);
            }
            let mut others = disks.clone().filter(|disk| ![full, bad].contains(disk));
            world.fail(others.next_back().unwrap());
            verify_or_lost(&mut world);
        }
    }
}

/// New parity that fits what old parity says of a block would not fit what is read there later.
#[test]
fn a_write_before_the_first_resync_writes_a_block_again_that_it_could_not_read() {
    for (seed, shape) in (290..).zip(resynced_at_first()) {
        for bad in 0..usize::from(shape.disks) {
            let mut world = unsynced(shape, seed);
            let data = world.disks.data();
            world.disks.disk(bad).unreadable.extend(data.start..data.start + 8);
            let row = row_sectors(&shape);
            world.write_random(row - 4, 4);
            world.write_random(0, 4);
            world.disks.disk(bad).unreadable.clear();
            let written = world.disk_of(0);
            world.fail(written);
            let read = world.read(0, 4).unwrap();
            world.compare(0, &read);
        }
    }
}

/// The same where a crash left the row in doubt, and the user accepts parity there.
#[test]
fn a_write_in_accepted_doubt_writes_a_block_again_that_it_could_not_read() {
    for (seed, shape) in (300..).zip([shapes::RAID5, shapes::RAID6]) {
        for bad in 0..usize::from(shape.disks) {
            let mut world = World::synced(Setup::shuffled(shape, seed));
            world.command(Action::Freeze).unwrap();
            world.write_random(0, world.sectors());
            let full = world.disk_of(u64::from(shape.chunk_sectors));
            world.disks.disk(full).write_error = Some(IoErrorKind::NoSpace);
            let at = u64::from(shape.chunk_sectors);
            assert!(world.write(at, vec![9; 8 * SECTOR]).is_err(), "{world}");
            world.disks.disk(full).write_error = None;
            world.command(Action::AcceptDoubt).unwrap();
            let data = world.disks.data();
            world.disks.disk(bad).unreadable.extend(data.start..data.start + 8);
            let written = world.write(0, vec![7; 4 * SECTOR]);
            world.disks.disk(bad).unreadable.clear();
            if written.is_err() {
                continue;
            }
            let own = world.disk_of(0);
            world.fail(own);
            if let Ok(read) = world.read(0, 4) {
                assert!(read.iter().all(|byte| *byte == 7), "disk {bad} ({world})");
            }
        }
    }
}

/// Below the place to which a spare is filled both parities are there. What is known of a row stays known when the
/// user accepts its parity.
#[test]
fn accepted_doubt_is_computed_as_before_where_a_spare_is_filled() {
    for (seed, shape) in (310..).zip(resynced_at_first()) {
        let disks = 0..usize::from(shape.disks);
        let pairs = disks.clone().flat_map(|old| disks.clone().map(move |lost| (old, lost)));
        for (old, lost) in pairs.filter(|(old, lost)| old != lost) {
            let mut world = World::synced(Setup::shuffled(shape, seed));
            world.command(Action::Freeze).unwrap();
            world.write_random(0, world.sectors());
            let written = world.disk_of(0);
            if [old, lost].contains(&written) {
                continue;
            }
            world.set("sync_max", "128");
            world.fail(old);
            world.add(usize::from(shape.disks)).unwrap();
            world.command(Action::Idle).unwrap();
            world.wait_status("half of a recovery", |status| status.sync.completed_sectors >= 128);
            world.command(Action::Freeze).unwrap();
            fail_for_want_of_space(&mut world, written);
            world.fail(lost);
            let row = row_sectors(&shape);
            let before = world.read(0, row).unwrap_or_else(|error| panic!("{error} ({world})"));
            world.compare(0, &before);
            world.command(Action::AcceptDoubt).unwrap();
            let after = world.read(0, row).unwrap();
            world.compare(0, &after);
        }
    }
}

/// What is only being filled has no block that others were computed from.
#[test]
fn a_spare_without_room_does_not_hide_what_a_failed_write_lacks() {
    for (seed, shape) in (260..).zip([shapes::RAID5, shapes::RAID6]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.command(Action::Freeze).unwrap();
        world.write_random(0, world.sectors());
        let full = world.disk_of(0);
        world.disks.disk(full).write_error = Some(IoErrorKind::NoSpace);
        let new = vec![9; 8 * SECTOR];
        assert_eq!(world.write(0, new.clone()), Err(RequestError::NoSpace), "{world}");
        world.fail(full);
        world.remember(0, &new);
        world.verify();
        let spare = usize::from(shape.disks);
        world.add(spare).unwrap();
        let data = world.disks.data();
        for disk in (0..=spare).filter(|disk| *disk != full) {
            let mut disk = world.disks.disk(disk);
            (disk.write_error, disk.errors_in) = (Some(IoErrorKind::NoSpace), Some(data.clone()));
        }
        world.command(Action::Idle).unwrap();
        world.wait_status("no space", |status| status.sync.last_end == Some(SyncEnd::NoSpace));
        world.command(Action::Freeze).unwrap();
        world.verify();
    }
}

/// The others have what it had no room for, and parity that fits: with one parity too.
#[test]
fn the_block_that_a_member_had_no_room_for_is_computed_when_that_member_fails() {
    for (seed, shape) in (190..).zip([shapes::RAID5, shapes::RAID6]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.command(Action::Freeze).unwrap();
        world.write_random(0, world.sectors());
        let full = world.disk_of(0);
        world.disks.disk(full).write_error = Some(IoErrorKind::NoSpace);
        let new = vec![9; 8 * SECTOR];
        assert_eq!(world.write(0, new.clone()), Err(RequestError::NoSpace), "{world}");
        world.fail(full);
        world.remember(0, &new);
        world.verify();
        world.write_random(u64::from(shape.chunk_sectors), 4);
        world.verify();
        world.add(usize::from(shape.disks)).unwrap();
        world.command(Action::Idle).unwrap();
        world.wait_status("all members in sync", |status| status.degraded() == 0);
        world.wait_idle();
        world.verify();
        assert_eq!((world.status().doubted.sectors, world.check()), (0, 0), "{world}");
    }
}

/// It was computed without the block that did not fit, and fits all others: another one is computed with its help.
#[test]
fn a_spare_that_was_filled_where_a_block_was_refused_helps_to_compute_another_block() {
    for other_fails in [false, true] {
        let shape = shapes::RAID5;
        let mut world = World::synced(Setup::shuffled(shape, 192));
        world.command(Action::Freeze).unwrap();
        world.write_random(0, world.sectors());
        let full = world.disk_of(0);
        let chunk = u64::from(shape.chunk_sectors);
        let beside = world.disk_of(chunk);
        world.disks.disk(full).write_error = Some(IoErrorKind::NoSpace);
        let new = vec![9; 8 * SECTOR];
        assert_eq!(world.write(0, new.clone()), Err(RequestError::NoSpace), "{world}");
        world.fail(full);
        world.remember(0, &new);
        world.set("sync_max", "128");
        world.add(usize::from(shape.disks)).unwrap();
        world.command(Action::Idle).unwrap();
        world.wait_status("its front", |status| status.sync.completed_sectors >= 128);
        if other_fails {
            // What was filled before counts from then on.
            let far = world.sectors() - 8;
            let disks = (0..usize::from(shape.disks)).filter(|disk| *disk != full);
            let data = world.disks.data();
            disks.clone().for_each(|disk| {
                world.disks.disk(disk).errors_in = Some(data.clone());
                world.disks.disk(disk).write_error = Some(IoErrorKind::NoSpace);
            });
            assert_eq!(world.write(far, new.clone()), Err(RequestError::NoSpace), "{world}");
            disks.for_each(|disk| world.disks.disk(disk).write_error = None);
        }
        world.command(Action::Freeze).unwrap();
        world.wait_status("its end", |status| status.sync.action == SyncAction::Frozen);
        let start = world.disks.data().start;
        world.disks.disk(beside).unreadable.insert(start + 3);
        let found = world.read(chunk, 8).unwrap_or_else(|error| panic!("{error} ({world})"));
        world.compare(chunk, &found);
        let bad: u32 = world.status().members.iter().map(|member| member.bad_ranges).sum();
        assert_eq!(bad, 0, "{world}");
    }
}

/// The controller hears with its next mail that a write has made a row whole.
#[test]
fn a_block_of_a_row_that_was_just_made_whole_is_computed() {
    for (seed, shape) in (320..).zip([shapes::RAID5, shapes::RAID6]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.command(Action::Freeze).unwrap();
        world.write_random(0, world.sectors());
        let full = world.disk_of(0);
        let others = (0..usize::from(shape.disks)).filter(|disk| *disk != full);
        let lost: Vec<usize> = others.take(shape.can_lose() - 1).collect();
        fail_for_want_of_space(&mut world, full);
        lost.into_iter().for_each(|disk| world.fail(disk));
        let row = row_sectors(&shape);
        let new = world.random.bytes(row as usize * SECTOR);
        world.remember(0, &new);
        world.serve(1, Request::Write { sector: 0, from: Rc::new(new), fua: false }).unwrap();
        let start = world.disks.data().start;
        world.disks.disk(full).unreadable.insert(start + 3);
        let found = world.read(0, 8).unwrap_or_else(|error| panic!("{error} ({world})"));
        world.compare(0, &found);
        let bad: u32 = world.status().members.iter().map(|member| member.bad_ranges).sum();
        assert_eq!(bad, 0, "{world}");
    }
}

/// The same of a block beside the one that the members' space did not suffice for.
#[test]
fn a_block_beside_the_outlier_of_a_row_that_was_just_made_whole_is_computed() {
    for (seed, shape) in (325..).zip([shapes::RAID5, shapes::RAID6]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.command(Action::Freeze).unwrap();
        world.write_random(0, world.sectors());
        let chunk = u64::from(shape.chunk_sectors);
        let [full, beside] = [0, chunk].map(|sector| world.disk_of(sector));
        fail_for_want_of_space(&mut world, full);
        let row = row_sectors(&shape);
        let new = world.random.bytes(row as usize * SECTOR);
        world.remember(0, &new);
        world.serve(1, Request::Write { sector: 0, from: Rc::new(new), fua: false }).unwrap();
        let start = world.disks.data().start;
        world.disks.disk(beside).unreadable.insert(start + 3);
        let found = world.read(chunk, 8).unwrap_or_else(|error| panic!("{error} ({world})"));
        world.compare(chunk, &found);
    }
}

/// The rebuild has left a row out already, and would end without it.
#[test]
fn doubt_that_is_accepted_during_a_rebuild_keeps_no_row_from_being_filled() {
    let shape = shapes::RAID6;
    let row = row_sectors(&shape);
    let mut world = World::synced(Setup::shuffled(shape, 330));
    world.command(Action::Freeze).unwrap();
    world.write_random(row, row);
    world.disks.disk(2).write_error = Some(IoErrorKind::NoSpace);
    let failed = world.write(row, vec![9; row as usize * SECTOR]);
    assert_eq!(failed, Err(RequestError::NoSpace), "{world}");
    world.disks.disk(2).plug();
    for disk in [0, 1] {
        world.fail(disk);
        world.add(usize::from(shape.disks) + disk).unwrap();
    }
    world.set("sync_max", "128");
    world.command(Action::Idle).unwrap();
    world.wait_status("half of a rebuild", |status| status.sync.completed_sectors >= 128);
    world.command(Action::AcceptDoubt).unwrap();
    world.set("sync_max", "max");
    world.wait_status("all in sync", |status| status.degraded() == 0);
}

/// Has a write of the first block fail, for its disk has no room, and believes what is read there then.
fn fail_for_want_of_space(world: &mut World, disk: usize) {
    let data = world.disks.data();
    world.disks.disk(disk).errors_in = Some(data);
    world.disks.disk(disk).write_error = Some(IoErrorKind::NoSpace);
    let failed = world.write(0, vec![9; 8 * SECTOR]);
    assert_eq!(failed, Err(RequestError::NoSpace), "{world}");
    world.disks.disk(disk).errors_in = None;
    world.disks.disk(disk).write_error = None;
    let there = world.read(0, 8).unwrap();
    world.remember(0, &there);
}
