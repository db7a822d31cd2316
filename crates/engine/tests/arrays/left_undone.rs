//! What a sync task could not do, and that it is done when it can be.

use mdspace_engine::array::Action;
use mdspace_engine::backend::IoErrorKind;
use mdspace_engine::request::RequestError;
use mdspace_engine::status::{MemberState, SyncAction, SyncEnd};
use mdspace_format::superblock::RESYNC_NONE;

use crate::shapes::{self, Shape};
use crate::world::{SECTOR, Setup, World};

const TWO: Shape = Shape { disks: 2, ..shapes::RAID1 };

/// Sectors that neither of two disks can read until they are written.
fn spoil(world: &World, sectors: std::ops::Range<u64>) {
    let start = world.disks.data().start;
    for disk in [0, 1] {
        let there = sectors.clone().map(|sector| start + sector);
        world.disks.disk(disk).unreadable.extend(there);
    }
}

fn ended(world: &mut World, end: SyncEnd) {
    world.wait_status("the end of a resync", |status| {
        status.sync.action == SyncAction::Idle && status.sync.last_end == Some(end)
    });
}

/// After a stop everything is in sync.
fn stops_clean(world: &mut World) {
    world.stop();
    for disk in 0..usize::from(world.shape().disks) {
        let superblock = world.disks.superblock(disk).unwrap();
        assert_eq!(superblock.resync_offset_sectors, RESYNC_NONE, "disk {disk} ({world})");
    }
    world.assemble_all().unwrap();
    world.wait_idle();
    assert_eq!(world.check(), 0, "{world}");
    world.verify();
}

/// A crash left sectors in doubt that no copy gives. A write of all copies takes them off the lists and ends
/// their doubt.
#[test]
fn a_write_of_what_no_resync_could_read_ends_its_doubt() {
    for (seed, shape) in (1..).zip([TWO, shapes::RAID10, shapes::RAID5, shapes::RAID6]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_random(0, world.sectors());
        world.crash();
        spoil(&world, 16..20);
        if shape.level == mdspace_engine::geometry::Level::Raid6 {
            let start = world.disks.data().start;
            world.disks.disk(2).unreadable.extend(start + 16..start + 20);
        }
        world.assemble_all().unwrap();
        ended(&mut world, SyncEnd::Incomplete);
        // Those that cannot be read are listed now.
        assert_eq!(world.read(0, world.sectors()), Err(RequestError::Lost), "{world}");
        world.write_random(0, world.sectors());
        stops_clean(&mut world);
    }
}

/// The same where the first resync could not read them: it goes on when they can be.
#[test]
fn a_first_resync_takes_up_what_a_write_has_made_readable() {
    for (seed, shape) in (10..).zip([TWO, shapes::RAID10]) {
        let mut world = World::new(Setup::shuffled(shape, seed));
        world.create(|_| true);
        spoil(&world, 16..20);
        world.assemble_all().unwrap();
        ended(&mut world, SyncEnd::Incomplete);
        let all = world.sectors() as usize * SECTOR;
        world.model = vec![0; all];
        world.write_random(0, world.sectors());
        world.wait_clean();
        stops_clean(&mut world);
    }
}

/// Two places that no resync can make right are each tried once.
#[test]
fn two_places_that_no_resync_can_make_right_are_not_tried_in_turn() {
    let mut world = World::synced(Setup::shuffled(TWO, 20));
    world.write_random(0, world.sectors());
    world.crash();
    for disk in [0, 1] {
        world.disks.disk(disk).unreadable_for_good = true;
    }
    spoil(&world, 16..17);
    world.assemble_all().unwrap();
    ended(&mut world, SyncEnd::Incomplete);
    spoil(&world, 80..81);
    let data = world.disks.data();
    world.disks.disk(1).write_error = Some(IoErrorKind::NoSpace);
    world.disks.disk(1).errors_in = Some(data.start + 80..data.start + 81);
    world.disks.disk(1).error_once = true;
    assert_eq!(world.write(80, vec![1; SECTOR]), Err(RequestError::NoSpace), "{world}");
    world.sleep_ms(5_000);
    world.disks.reset_counts();
    world.sleep_ms(60_000);
    let superblock = world.disks.superblock(0).unwrap().place.sector;
    let written = world.disks.disk(0).sectors_written(superblock..superblock + 8);
    assert_eq!(written, 0, "{world}: {:?}", world.status());
    assert_eq!(world.status().sync.action, SyncAction::Idle, "{world}");
}

/// One of two new members has no room. The other one is filled all the same.
#[test]
fn a_new_member_without_space_keeps_no_other_one_from_being_filled() {
    let mirror = Shape { disks: 3, ..shapes::RAID1 };
    for (seed, shape) in (30..).zip([shapes::RAID6, mirror]) {
        for replaces in [false, true] {
            let mut world = World::synced(Setup::shuffled(shape, seed));
            world.wait_clean();
            let [full, other] = [0, 1].map(|more| usize::from(shape.disks) + more);
            let data = world.disks.data();
            world.disks.disk(full).write_error = Some(IoErrorKind::NoSpace);
            world.disks.disk(full).errors_in = Some(data.start + 32..data.end);
            world.command(Action::Freeze).unwrap();
            for (old, new) in [(0, full), (1, other)] {
                if !replaces {
                    world.fail(old);
                }
                world.add(new).unwrap();
                if replaces {
                    let (member, with) = (world.disks.id(old), Some(world.disks.id(new)));
                    world.command(Action::Replace { member, with }).unwrap();
                }
            }
            world.command(Action::Idle).unwrap();
            world.sleep_ms(200_000);
            assert_eq!(world.member_state(other), Some(MemberState::InSync), "{world}");
            world.disks.disk(full).plug();
            world.sleep_ms(100_000);
            assert_eq!(world.member_state(full), Some(MemberState::InSync), "{world}");
            world.wait_idle();
            assert_eq!(world.check(), 0, "{world}");
            world.verify();
        }
    }
}

/// The one with space could not be filled everywhere, for a row is in doubt. The other one is tried again all the
/// same.
#[test]
fn a_new_member_without_space_is_tried_again_whatever_became_of_others() {
    let shape = shapes::RAID6;
    let mut world = World::synced(Setup::shuffled(shape, 36));
    world.command(Action::Freeze).unwrap();
    let (chunk, row) = (u64::from(shape.chunk_sectors), 3 * u64::from(shape.chunk_sectors));
    world.write_random(row, row);
    world.disks.disk(2).write_error = Some(IoErrorKind::NoSpace);
    let failed = world.write(row, vec![9; row as usize * SECTOR]);
    assert_eq!(failed, Err(RequestError::NoSpace), "{world}");
    world.disks.disk(2).plug();
    let data = world.disks.data();
    world.disks.disk(5).write_error = Some(IoErrorKind::NoSpace);
    world.disks.disk(5).errors_in = Some(data.start + 3 * chunk..data.end);
    for disk in [0, 1] {
        world.fail(disk);
        world.add(5 + disk).unwrap();
    }
    world.command(Action::Idle).unwrap();
    ended(&mut world, SyncEnd::Incomplete);
    world.disks.disk(5).plug();
    world.disks.reset_counts();
    world.sleep_ms(100_000);
    let written = world.disks.disk(5).sectors_written(data.start + 3 * chunk..data.end);
    assert!(written >= data.end - data.start - 3 * chunk, "{written} ({world})");
    world.command(Action::AcceptDoubt).unwrap();
    world.wait_status("all in sync", |status| status.degraded() == 0);
}

/// A second new member comes while the first one is filled, which finds no space, or cannot be filled everywhere. The
/// second one does not wait for the first.
#[test]
fn a_spare_that_comes_during_a_rebuild_that_fails_gets_its_slot() {
    let shape = shapes::RAID6;
    let (chunk, row) = (u64::from(shape.chunk_sectors), 3 * u64::from(shape.chunk_sectors));
    for (seed, has_space) in [(41, true), (40, false)] {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        let data = world.disks.data();
        world.command(Action::Freeze).unwrap();
        if has_space {
            world.write_random(row, row);
            world.disks.disk(2).write_error = Some(IoErrorKind::NoSpace);
            let failed = world.write(row, vec![9; row as usize * SECTOR]);
            assert_eq!(failed, Err(RequestError::NoSpace), "{world}");
            world.disks.disk(2).plug();
        } else {
            world.disks.disk(5).write_error = Some(IoErrorKind::NoSpace);
            world.disks.disk(5).errors_in = Some(data.start + chunk..data.end);
        }
        world.set("sync_max", &chunk.to_string());
        world.fail(0);
        world.fail(1);
        world.add(5).unwrap();
        world.command(Action::Idle).unwrap();
        world.wait_status("a pause", |status| status.sync.completed_sectors == chunk);
        world.add(6).unwrap();
        world.set("sync_max", "max");
        let end = if has_space { SyncEnd::Incomplete } else { SyncEnd::NoSpace };
        world.wait_status("the end of the first rebuild", |status| {
            status.sync.last_end == Some(end)
        });
        world.sleep_ms(5_000);
        let state = world.member_state(6);
        assert_ne!(state, Some(MemberState::Spare), "{world}: {:?}", world.status().sync);
    }
}

/// A place for which a member has no room is left for later; what lies behind it is not.
#[test]
fn a_resync_goes_on_behind_a_place_without_space() {
    for (seed, shape) in (40..).zip([shapes::RAID5, shapes::RAID6]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_random(0, world.sectors());
        world.crash();
        let data = world.disks.data();
        let chunk = u64::from(shape.chunk_sectors);
        for row in 0..data.end / chunk - data.start / chunk {
            for disk in 0..usize::from(shape.disks) {
                // Wrong on every disk at another sector: one of them is parity.
                let at = (data.start + row * chunk + disk as u64) as usize * SECTOR;
                world.disks.disk(disk).bytes[at] ^= 1;
            }
        }
        world.assemble_all().unwrap();
        for disk in 0..usize::from(shape.disks) {
            world.disks.disk(disk).write_error = Some(IoErrorKind::NoSpace);
            world.disks.disk(disk).errors_in = Some(data.start + chunk..data.start + 2 * chunk);
        }
        ended(&mut world, SyncEnd::NoSpace);
        let left = world.status().doubted;
        assert_eq!((left.ranges, left.sectors), (1, chunk), "{world}: {left:?}");
        for disk in 0..usize::from(shape.disks) {
            world.disks.disk(disk).plug();
        }
        ended(&mut world, SyncEnd::Complete);
        assert_eq!(world.status().doubted.sectors, 0, "{world}");
        assert_eq!(world.check(), 0, "{world}");
    }
}

/// Parity of a row that a crash left half-written cannot be read, nor written for want of space. It is read
/// again later: it still is not that of the row.
#[test]
fn a_resync_that_could_not_rewrite_a_sector_for_want_of_space_is_not_done() {
    for (seed, shape) in (50..).zip([TWO, shapes::RAID5, shapes::RAID6]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_random(0, world.sectors());
        world.crash();
        let last = usize::from(shape.disks) - 1;
        let data = world.disks.data();
        let at = data.start as usize * SECTOR;
        // On parity of the first row, on Q, and on the second copy.
        world.disks.disk(last).bytes[at..at + SECTOR].fill(0x5a);
        world.disks.disk(last).unreadable.insert(data.start);
        world.disks.disk(last).unreadable_for_good = true;
        world.disks.disk(last).write_error = Some(IoErrorKind::NoSpace);
        world.disks.disk(last).errors_in = Some(data.start..data.start + 1);
        world.assemble_all().unwrap();
        world.wait_status("the end of a resync", |status| {
            status.sync.action == SyncAction::Idle && status.sync.last_end.is_some()
        });
        world.disks.disk(last).unreadable.clear();
        world.disks.disk(last).plug();
        world.sleep_ms(60_000);
        world.wait_idle();
        assert_eq!(world.check(), 0, "{world}");
    }
}

/// A write to disk 2 fails, for neither that nor disk 3, with P, has room for these sectors of the row. Nothing says
/// what the row is right without when others are lost.
fn leave_doubt(world: &mut World, row: u64, sectors: std::ops::Range<u64>) {
    let chunk = u64::from(world.shape().chunk_sectors);
    let start = world.disks.data().start + row * chunk;
    for disk in [2, 3] {
        world.disks.disk(disk).write_error = Some(IoErrorKind::NoSpace);
        world.disks.disk(disk).errors_in = Some(start..start + chunk);
    }
    let (at, length) = ((row * 3 + 2) * chunk + sectors.start, sectors.end - sectors.start);
    let new = vec![9; length as usize * SECTOR];
    assert_eq!(world.write(at, new), Err(RequestError::NoSpace), "{world}");
    [2, 3].into_iter().for_each(|disk| world.disks.disk(disk).plug());
}

/// One block of a row is in doubt, and another one of it cannot be read. The rest of the row is filled.
#[test]
fn a_rebuild_goes_round_blocks_in_doubt_and_no_others() {
    let shape = Shape { chunk_sectors: 64, member_sectors: 512, ..shapes::RAID6 };
    for (seed, is_unreadable) in [(60, false), (61, true)] {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.command(Action::Freeze).unwrap();
        leave_doubt(&mut world, 1, 16..24);
        world.fail(0);
        world.fail(1);
        let start = world.disks.data().start;
        if is_unreadable {
            world.disks.disk(4).unreadable.insert(start + 64 + 40);
        }
        world.add(5).unwrap();
        world.add(6).unwrap();
        world.disks.reset_counts();
        world.command(Action::Idle).unwrap();
        ended(&mut world, SyncEnd::Incomplete);
        let left = world.status().sync.skipped;
        let filled = world.disks.disk(5).sectors_written(start + 64..start + 128);
        assert_eq!((left.ranges, left.sectors), (1, 8), "{left:?} ({world})");
        assert_eq!(filled, if is_unreadable { 55 } else { 56 }, "{world}");
        world.command(Action::AcceptDoubt).unwrap();
        world.wait_status("all in sync", |status| status.degraded() == 0);
        world.wait_idle();
        let bad: u32 = world.status().members.iter().map(|member| member.bad_ranges).sum();
        assert_eq!(bad, if is_unreadable { 3 } else { 0 }, "{world}");
    }
}

/// A check of an array that has nothing left to compare there.
#[test]
fn a_check_leaves_blocks_in_doubt_out_and_no_others() {
    let shape = Shape { chunk_sectors: 64, member_sectors: 512, ..shapes::RAID6 };
    let mut world = World::synced(Setup::shuffled(shape, 65));
    world.command(Action::Freeze).unwrap();
    leave_doubt(&mut world, 1, 16..24);
    world.fail(0);
    world.fail(1);
    world.check();
    let left = world.status().sync.skipped;
    assert_eq!((left.ranges, left.sectors), (1, 8), "{left:?} ({world})");
}

/// Two rows are in doubt. A write of one of them ends its doubt, and that row is filled although the other is not.
#[test]
fn a_row_whose_doubt_has_ended_is_filled_while_others_stay_in_doubt() {
    let shape = shapes::RAID6;
    let mut world = World::synced(Setup::shuffled(shape, 70));
    world.command(Action::Freeze).unwrap();
    leave_doubt(&mut world, 1, 0..16);
    leave_doubt(&mut world, 6, 0..16);
    for disk in [0, 1] {
        world.fail(disk);
        world.add(5 + disk).unwrap();
    }
    world.command(Action::Idle).unwrap();
    ended(&mut world, SyncEnd::Incomplete);
    assert_eq!(world.status().sync.skipped.sectors, 32, "{world}");
    world.write_random(48, 48);
    world.wait_status("a row more", |status| status.sync.skipped.sectors == 16);
    world.disks.reset_counts();
    world.sleep_ms(100_000);
    assert_eq!(world.disks.disk(2).sectors_read(), 0, "what stays in doubt is not tried ({world})");
    world.write_random(6 * 48, 48);
    world.wait_status("all in sync", |status| status.degraded() == 0);
}
