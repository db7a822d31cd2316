//! How far resync and filling have come: what superblocks promise, and what is copied once more.

use mdspace_engine::array::{Action, CommandError, Reply, Undecided};
use mdspace_engine::backend::IoErrorKind;
use mdspace_engine::geometry::Level;
use mdspace_engine::request::{Request, RequestError};
use mdspace_engine::status::{ArrayState, ArrayStatus, MemberState, SyncAction, SyncEnd};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::shapes::{self, Shape};
use crate::world::{Pending, SECTOR, Setup, World};

/// Enough data disks that a small write reads parity instead of the rest of its row.
const WIDE: Shape = Shape { member_sectors: 4096, ..Shape::new(Level::Raid6, 2, 8, 16) };

/// The first resync is under way when an update of the superblocks says how far it is; then power fails.
/// Rows that count as synced have parity that is on the disks: writes go by it.
#[test]
fn a_first_resync_promises_only_what_is_flushed() {
    let mut promises = 0;
    for rounds in (10..400).step_by(30) {
        let mut world = World::created(Setup::shuffled(WIDE.without_bitmap(), rounds as u64));
        world.rounds(rounds);
        world.add(8).unwrap();
        world.power_cut(0..world.disks.count());
        // At its very front nothing is promised, and all of it is in doubt.
        if world.disks.superblock(0).unwrap().resync_offset_sectors == 0 {
            continue;
        }
        promises += 1;
        world.assemble_all().unwrap();
        world.command(Action::Freeze).unwrap();
        world.learn();
        let written: Vec<_> = (0..60).map(|at| at * 96 + world.random.below(16)).collect();
        for &sector in &written {
            world.write_random(sector, 2);
        }
        world.serve(0, Request::Flush).unwrap();
        (2..4).for_each(|disk| world.fail(disk));
        for &sector in &written {
            let bytes = world.read(sector, 2).unwrap();
            world.compare(sector, &bytes);
        }
    }
    assert!(promises > 3, "{promises}");
}

/// The control of the test above: superblocks that promise more are found out.
#[test]
fn a_first_resync_that_promises_too_much_is_noticed() {
    let mut wrong = 0;
    for seed in 0..4 {
        let mut world = World::created(Setup::shuffled(WIDE.without_bitmap(), seed));
        world.command(Action::Freeze).unwrap();
        world.stop();
        for disk in 0..8 {
            let mut superblock = world.disks.superblock(disk).unwrap();
            superblock.resync_offset_sectors = 4000;
            let (at, bytes) = (superblock.place.sector as usize * 512, superblock.encode());
            world.disks.disk(disk).bytes[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        world.assemble_all().unwrap();
        world.command(Action::Freeze).unwrap();
        world.learn();
        // Behind the rows that the stop did.
        let sector = 96 * 10;
        let lost = world.disk_of(sector);
        world.write_random(sector, 2);
        world.fail(lost);
        world.fail((lost + 1) % 8);
        let bytes = world.read(sector, 2).unwrap();
        let at = sector as usize * SECTOR;
        wrong += usize::from(bytes != world.model[at..at + bytes.len()]);
    }
    assert!(wrong > 0);
}

/// A clean array comes back in the middle of its first resync where that was flushed, not at its front.
#[test]
fn a_first_resync_goes_on_after_a_power_cut_where_it_was_flushed() {
    let shape = Shape { member_sectors: 65_536, ..WIDE };
    let mut world = World::created(Setup::shuffled(shape.without_bitmap(), 7));
    world.wait_status("some of the resync", |status| status.sync.completed_sectors > 30_000);
    assert_eq!(world.status().sync.action, SyncAction::Resync);
    world.power_cut(0..world.disks.count());
    let offset = world.disks.superblock(0).unwrap().resync_offset_sectors;
    assert!((4096..=65_536).contains(&offset), "{offset} ({world})");
    world.assemble_all().unwrap();
    world.wait_idle();
    assert_eq!(world.check(), 0, "{world}");
}

/// Fills a member of a mirror, and lets writes to it find no space meanwhile: what was read after such a
/// write is read from then on.
fn fill_without_space(shape: Shape, seed: u64, replace: bool) {
    let mut world = World::synced(Setup::shuffled(shape, seed));
    let new = usize::from(shape.disks);
    if !replace {
        world.fail(0);
        world.remove(0);
    }
    world.add(new).unwrap();
    if replace {
        let (member, with) = (world.disks.id(0), Some(world.disks.id(new)));
        world.command(Action::Replace { member, with }).unwrap();
    }
    for _ in 0..4 {
        let rounds = world.random.below(60) as usize;
        world.rounds(rounds);
        let sector = world.random.below(world.sectors() - 16);
        world.disks.disk(new).write_error = Some(IoErrorKind::NoSpace);
        let data = world.disks.data();
        world.disks.disk(new).errors_in = Some(data);
        let bytes = world.random.bytes(16 * 512);
        let ended = world.write(sector, bytes);
        (world.disks.disk(new).write_error, world.disks.disk(new).errors_in) = (None, None);
        match ended {
            Ok(()) | Err(RequestError::NoSpace) => {}
            Err(error) => panic!("{error} ({world})"),
        }
        let bytes = world.read(sector, 16).unwrap();
        world.remember(sector, &bytes);
    }
    world.verify();
    // A write that found no space on it has failed it: it comes again.
    if world.member_state(new) == Some(MemberState::Faulty) {
        world.remove(new);
        world.add(new).unwrap();
    }
    world.wait_status("all in sync", |status| {
        status.sync.action == SyncAction::Idle && status.degraded() == 0
    });
    world.wait_idle();
    world.verify();
    assert_eq!(world.check(), 0, "{world}");
    let others = (1..usize::from(shape.disks)).take(shape.can_lose());
    others.for_each(|disk| world.fail(disk));
    world.verify();
}

#[test]
fn a_write_that_fails_on_a_mirror_that_is_filled_leaves_nothing_old_there() {
    for (more, shape) in (0..).zip([shapes::RAID1, shapes::RAID10]) {
        let shape = Shape { member_sectors: 2048, ..shape };
        for seed in 0..100 {
            fill_without_space(shape, 1000 * more + seed, false);
            fill_without_space(shape, 1000 * more + seed, true);
        }
    }
}

/// While the first of three mirrors is filled, and has its front, a write fails there: the new member and the third
/// one take it, and only the second has the old bytes. What is read of them then must not change.
#[test]
fn a_mirror_is_in_sync_when_it_has_what_a_failed_write_left() {
    let shape = Shape { member_sectors: 2048, ..shapes::RAID1 };
    let new = usize::from(shape.disks);
    for seed in 200..220 {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.set("read_deadline", "0");
        world.fail(0);
        world.remove(0);
        let data = world.disks.data();
        for disk in [1, 2] {
            world.disks.disk(disk).hangs_in = Some(data.start + 1024..data.end);
        }
        world.add(new).unwrap();
        world.wait_status("its front", |status| status.sync.completed_sectors >= 512);
        world.disks.disk(1).write_error = Some(IoErrorKind::NoSpace);
        world.disks.disk(1).errors_in = Some(data);
        let bytes = world.random.bytes(16 * 512);
        assert_eq!(world.write(64, bytes), Err(RequestError::NoSpace), "{world}");
        (world.disks.disk(1).write_error, world.disks.disk(1).errors_in) = (None, None);
        let found = world.read(64, 16).unwrap();
        world.remember(64, &found);
        [1, 2].into_iter().for_each(|disk| world.disks.disk(disk).hangs_in = None);
        world.until("a new member in sync", |world| {
            let superblock = world.disks.superblock(new).unwrap();
            superblock.own_role().slot().is_some() && superblock.recovery_offset_sectors.is_none()
        });
        // After a crash all of it is believed, and it comes first.
        world.crash();
        world.assemble_all().unwrap();
        world.verify();
    }
}

/// A rebuild that leaves a row in doubt out and then finds no space: it is tried again where there is room,
/// without an order.
#[test]
fn what_a_rebuild_leaves_out_does_not_hide_that_it_found_no_space() {
    let shape = shapes::RAID5;
    let mut world = World::synced(Setup::shuffled(shape, 60));
    world.command(Action::Freeze).unwrap();
    let row = u64::from(shape.chunk_sectors) * u64::from(shape.disks - 1);
    world.write_random(row, row);
    world.disks.disk(1).write_error = Some(IoErrorKind::NoSpace);
    let failed = world.write(row, vec![9; row as usize * 512]);
    assert_eq!(failed, Err(RequestError::NoSpace), "{world}");
    world.disks.disk(1).write_error = None;
    world.fail(0);
    let spare = usize::from(shape.disks);
    world.add(spare).unwrap();
    let data = world.disks.data();
    world.disks.disk(spare).write_error = Some(IoErrorKind::NoSpace);
    world.disks.disk(spare).errors_in = Some(data.end - 32..data.end);
    world.command(Action::Idle).unwrap();
    let ends = |end| move |status: &ArrayStatus| status.sync.last_end == Some(end);
    world.wait_status("no space", ends(SyncEnd::NoSpace));
    world.disks.disk(spare).write_error = None;
    world.wait_status("all but the row in doubt", ends(SyncEnd::Incomplete));
    let status = world.status();
    assert_eq!(status.sync.skipped.sectors, u64::from(shape.chunk_sectors), "{world}");
    world.disks.reset_counts();
    world.read(3 * row, world.sectors() - 3 * row).unwrap();
    assert!(world.disks.disk(spare).sectors_read() > 0, "{world}");
}

/// A rebuild that found no space waits for a while, or until the array has other members.
#[test]
fn a_member_that_comes_ends_the_wait_of_what_could_not_be_done() {
    let shape = shapes::RAID5;
    let mut world = World::synced(Setup::shuffled(shape, 70));
    world.wait_clean();
    world.fail(0);
    let spare = usize::from(shape.disks);
    let data = world.disks.data();
    world.disks.disk(spare).write_error = Some(IoErrorKind::NoSpace);
    world.disks.disk(spare).errors_in = Some(data.clone());
    world.add(spare).unwrap();
    world.wait_status("no space", |status| status.sync.last_end == Some(SyncEnd::NoSpace));
    world.disks.reset_counts();
    world.sleep_ms(1000);
    assert_eq!(world.disks.disk(1).sectors_read_in(data.clone()), 0, "{world}");
    world.add(spare + 1).unwrap();
    world.sleep_ms(1000);
    assert!(world.disks.disk(1).sectors_read_in(data) > 0, "{world}");
}

/// It would not run: who waits for its end would be told of an older one.
#[test]
fn a_check_of_a_read_only_array_is_refused() {
    for (seed, shape) in (80..).zip([shapes::RAID1, shapes::RAID5]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.command(Action::ReadOnly).unwrap();
        for action in [Action::Check, Action::Repair(Undecided::Leave), Action::Sync] {
            let refused = world.command(action).unwrap_err();
            assert_eq!(refused, CommandError::NoSyncReadOnly, "{world}");
        }
        world.command(Action::ReadWrite).unwrap();
        assert_eq!(world.check(), 0, "{world}");
        // Nor does one begin later that was asked for before.
        world.command(Action::Freeze).unwrap();
        world.order(Action::Check);
        world.command(Action::ReadOnly).unwrap();
        world.command(Action::ReadWrite).unwrap();
        world.rounds(50);
        assert_eq!(world.status().sync.action, SyncAction::Idle, "{world}");
    }
}

/// A window with blocks that cannot be read is done block by block. Where a member is late in one of them, those
/// before it are not done anew.
#[test]
fn a_member_that_is_late_in_a_block_has_only_that_block_tried_again() {
    for seed in 1..8 {
        let mut world = World::synced(Setup::shuffled(shapes::RAID1, seed));
        world.write_many(8);
        world.fail(2);
        world.remove(2);
        let data = world.disks.data();
        // Each copy lacks a block, and the second one is late with what the first one lacks.
        world.disks.disk(0).unreadable.insert(data.start + 40);
        world.disks.disk(1).unreadable.insert(data.start + 9);
        world.disks.disk(1).hangs_in = Some(data.start + 40..data.start + 41);
        world.disks.disk(3).writes.clear();
        world.add(3).unwrap();
        world.sleep_ms(20_000);
        world.disks.disk(1).hangs_in = None;
        world.wait_idle();
        assert_eq!(world.disks.disk(3).sectors_written(data.start..data.start + 40), 40, "{world}");
        world.verify();
        assert_eq!(world.check(), 0, "{world}");
    }
}

/// Two members are filled in one run, one of them from further on. What the other one cannot take is no hole in
/// that one, which has it: a third member may not give it.
#[test]
fn what_one_new_member_cannot_take_another_one_keeps() {
    for (seed, shape) in (210..).zip([shapes::RAID1, shapes::RAID6]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        let (first, second) = (usize::from(shape.disks), usize::from(shape.disks) + 1);
        let data = world.disks.data();
        fill_up_to(&mut world, 1, first, 128);
        world.add(second).unwrap();
        world.fail(0);
        {
            let mut other = world.disks.disk(2);
            (other.unreadable, other.unreadable_for_good) = ([data.start + 64].into(), true);
        }
        {
            let mut disk = world.disks.disk(second);
            disk.write_error = Some(IoErrorKind::Gone);
            disk.errors_in = Some(data.start + 64..data.start + 65);
        }
        let name = world.disks.info(second).name;
        world.wait_status("its end", |status| {
            let is_it = |state, found: &str| state == MemberState::Faulty && found == name;
            status.members.iter().any(|member| is_it(member.state, &member.name))
        });
        world.verify();
    }
}

/// The same where the window of both is gone round: its row is in doubt. The user accepts that.
#[test]
fn a_row_in_doubt_stays_with_the_member_that_was_filled_there_before() {
    let mut world = World::synced(Setup::shuffled(shapes::RAID6, 220));
    let data = world.disks.data();
    fill_up_to(&mut world, 1, 5, 128);
    // The row's parity is on the disks 2 and 3: no resync can write it either.
    let (row, block) = (2 * 48, 2 * 48 + 32);
    for disk in [2, 3, 4] {
        world.disks.disk(disk).write_error = Some(IoErrorKind::NoSpace);
        world.disks.disk(disk).errors_in = Some(data.start + 32..data.start + 48);
    }
    let written = world.write(row, vec![9; 48 * 512]);
    assert_eq!(written, Err(RequestError::NoSpace), "{world}");
    let before = world.read(block, 16).unwrap();
    world.add(6).unwrap();
    world.fail(0);
    world.wait_status("a run of both", |status| {
        status.sync.skipped.sectors > 0 && status.sync.completed_sectors >= 128
    });
    assert!(world.read(block, 16) == Ok(before.clone()), "{world}");
    world.set("sync_max", "max");
    world.wait_status("its end", |status| status.sync.last_end == Some(SyncEnd::Incomplete));
    world.command(Action::AcceptDoubt).unwrap();
    world.wait_status("all in sync", |status| status.degraded() == 0);
    assert!(world.read(block, 16) == Ok(before), "{world}");
}

/// Has `new` take the place of `old`, and lets it be filled up to a sector.
fn fill_up_to(world: &mut World, old: usize, new: usize, sector: u64) {
    world.set("sync_max", &sector.to_string());
    world.fail(old);
    world.remove(old);
    world.add(new).unwrap();
    let offset =
        |world: &World| world.disks.superblock(new).and_then(|found| found.recovery_offset_sectors);
    world.until("its front", |world| offset(world).is_some());
    world.wait_status("its front", |status| status.sync.completed_sectors >= sector);
    world.sleep_ms(1000);
}

/// A write fails in one chunk. The members beside those that have it hold other chunks in the same place.
#[test]
fn a_failed_write_leaves_no_hole_in_another_chunk_of_the_same_row() {
    let mut world = World::synced(Setup::shuffled(shapes::RAID10, 230));
    let data = world.disks.data();
    fill_up_to(&mut world, 2, 4, 128);
    {
        let mut other = world.disks.disk(3);
        (other.unreadable, other.unreadable_for_good) = ([data.start + 2].into(), true);
    }
    world.disks.disk(1).write_error = Some(IoErrorKind::NoSpace);
    world.disks.disk(1).errors_in = Some(data);
    assert_eq!(world.write(0, vec![9; 8 * 512]), Err(RequestError::NoSpace), "{world}");
    let found = world.read(16, 16).unwrap();
    world.compare(16, &found);
}

/// Half of a replacement is there. In a row of that half a write fails, and none of it was for its slot.
#[test]
fn a_replacement_keeps_a_block_beside_which_a_write_failed() {
    let shape = shapes::RAID5;
    let new = usize::from(shape.disks);
    let mut world = World::synced(Setup::shuffled(shape, 60));
    world.set("sync_max", "128");
    world.add(new).unwrap();
    let (member, with) = (world.disks.id(0), Some(world.disks.id(new)));
    world.command(Action::Replace { member, with }).unwrap();
    world.wait_status("its front", |status| status.sync.completed_sectors >= 128);
    world.command(Action::Freeze).unwrap();
    world.wait_status("a rest", |status| !status.sync.action.runs());
    // The first data block of the first row is on the first disk, the second one on the second.
    let chunk = u64::from(shape.chunk_sectors);
    let data = world.disks.data();
    {
        let mut disk = world.disks.disk(1);
        (disk.write_error, disk.errors_in) = (Some(IoErrorKind::NoSpace), Some(data));
    }
    let from = Rc::new(vec![9; 8 * 512]);
    world.serve(0, Request::Write { sector: chunk, from, fua: false }).unwrap_err();
    world.disks.disk(1).plug();
    world.fail(0);
    let found = world.read(0, 8).unwrap_or_else(|error| panic!("{error} ({world})"));
    world.compare(0, &found);
}

/// A write fails as a window of two new members begins, of which one was filled there before. It has the new bytes,
/// and the only other one the old: which of them is read must not change when all is filled.
#[test]
fn a_window_that_began_before_a_write_failed_does_not_make_its_member_believed() {
    let shape = Shape { member_sectors: 2048, ..shapes::RAID1 };
    for seed in 0..100 {
        let mut world = World::synced(Setup::shuffled(shape, 1000 + seed));
        let start = world.disks.data().start;
        fill_up_to(&mut world, 0, 3, 1024);
        world.add(4).unwrap();
        world.set("sync_io_depth", "1");
        world.set("read_deadline", "0");
        world.set("write_deadline", "0");
        // The window before that waits for what it writes, and the write for the member without room.
        world.disks.disk(4).hangs_in = Some(start + 256..start + 512);
        world.fail(1);
        world.wait_status("a run of both", |status| status.sync.completed_sectors == 256);
        world.turns(20);
        {
            let data = world.disks.data();
            let mut disk = world.disks.disk(2);
            (disk.write_error, disk.errors_in) = (Some(IoErrorKind::NoSpace), Some(data));
            disk.hangs_in = Some(start + 512..start + 528);
        }
        let from = Rc::new(world.random.bytes(16 * 512));
        let write = world.start(0, Request::Write { sector: 512, from, fua: false });
        world.turns(60);
        assert!(!write.has_ended(), "{world}");
        let turns = world.random.below(20) as usize;
        for disk in if seed % 2 == 0 { [2, 4] } else { [4, 2] } {
            world.disks.disk(disk).hangs_in = None;
            world.turns(turns);
        }
        assert_eq!(world.end(&write), Err(RequestError::NoSpace), "{world}");
        (world.disks.disk(2).write_error, world.disks.disk(2).errors_in) = (None, None);
        let found = world.read(512, 16).unwrap();
        world.remember(512, &found);
        world.set("sync_max", "max");
        world.wait_status("all in sync", |status| {
            status.sync.action == SyncAction::Idle && status.degraded() == 0
        });
        world.verify();
    }
}

/// A drive resets: what it was not told to flush is old again. Until a flush says so it gives that to whoever fills
/// another member; then it is out. Nothing that was copied from it since the last flush counts.
#[test]
fn what_was_filled_from_a_member_whose_flush_failed_is_filled_again() {
    for (seed, shape) in (260..).zip([shapes::RAID1, shapes::RAID6]) {
        let shape = Shape { member_sectors: 2048, ..shape };
        let new = usize::from(shape.disks);
        for (replaces, pause) in [(true, 1024), (true, 1984), (false, 1024), (false, 1984)] {
            let mut world = World::synced(Setup::shuffled(shape, seed));
            if replaces {
                world.set("sync_max", &pause.to_string());
                world.add(new).unwrap();
                let (member, with) = (world.disks.id(0), Some(world.disks.id(new)));
                world.command(Action::Replace { member, with }).unwrap();
                world.wait_status("its front", |status| status.sync.completed_sectors >= pause);
            } else {
                fill_up_to(&mut world, 1, new, pause);
            }
            world.serve(0, Request::Flush).unwrap();
            world.write_random(0, world.sectors());
            world.disks.disk(0).reset();
            world.set("sync_max", "max");
            world.wait_status("a flush", |status| status.degraded() > u32::from(!replaces));
            world.verify();
            world.wait_idle();
            world.verify();
        }
    }
}

/// It goes by order, or drops off, before a flush tells that it has reset.
#[test]
fn what_was_filled_from_a_member_that_goes_is_filled_again() {
    let shapes = [shapes::RAID1, shapes::RAID6];
    let ways = shapes.into_iter().flat_map(|shape| [(shape, true), (shape, false)]);
    for (seed, (shape, by_order)) in (270..).zip(ways) {
        let shape = Shape { member_sectors: 2048, ..shape };
        let new = usize::from(shape.disks);
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.set("sync_max", "1024");
        world.add(new).unwrap();
        let (member, with) = (world.disks.id(0), Some(world.disks.id(new)));
        world.command(Action::Replace { member, with }).unwrap();
        world.wait_status("its front", |status| status.sync.completed_sectors >= 1024);
        rest_and_write(&mut world);
        world.disks.disk(0).reset();
        // That is not enough of it to be put on record.
        world.set("sync_max", "1120");
        let more = world.disks.data().start + 1024..world.disks.data().start + 1120;
        world.disks.reset_counts();
        world.order(Action::Idle);
        world.until("more of it", |world| {
            world.disks.disk(new).sectors_written(more.clone()) == more.end - more.start
        });
        // No time passes, and nothing is flushed.
        world.turns(50);
        assert_eq!(world.status().degraded(), 0, "{world}");
        match by_order {
            true => world.fail(0),
            false => world.disks.disk(0).unplug(),
        }
        world.set("sync_max", "max");
        world.verify();
        world.wait_idle();
        world.verify();
    }
}

const FROM_A_RESET: [Shape; 3] = [shapes::RAID1, shapes::RAID6, shapes::RAID6];

/// The first disk has reset and lost what was written, and the sectors of the last one, from 1024 to 1120, are made of
/// what it gives.
fn filled_by_one_that_has_reset(shape: Shape, seed: u64) -> World {
    let shape = Shape { member_sectors: 2048, ..shape };
    let new = usize::from(shape.disks);
    let mut world = World::synced(Setup::shuffled(shape, seed));
    fill_up_to(&mut world, 1, new, 1024);
    rest_and_write(&mut world);
    world.disks.disk(0).reset();
    world.set("sync_max", "1120");
    let data = world.disks.data();
    let more = data.start + 1024..data.start + 1120;
    world.disks.reset_counts();
    world.order(Action::Idle);
    world.until("more of it", |world| world.disks.disk(new).sectors_written(more.clone()) == 96);
    world.turns(50);
    world.set("read_deadline", "0");
    world.set("write_deadline", "0");
    world
}

/// Of the array, as far as they lie in the place that is filled so.
fn what_is_filled_so(world: &World) -> Range<u64> {
    let data_disks = if world.shape().has_parity() { 3 } else { 1 };
    1024 * data_disks..1120 * data_disks
}

/// Reads what is filled so, and writes parts of it, while the first disk has told and is there.
fn read_and_write_what_is_filled_so(world: &mut World, fua: bool) -> Vec<Pending> {
    let sectors = what_is_filled_so(world);
    world.verify_each(sectors.clone());
    let writes = sectors.step_by(4).map(|sector| {
        let bytes = world.random.bytes(512);
        world.remember(sector, &bytes);
        world.start(0, Request::Write { sector, from: Rc::new(bytes), fua })
    });
    let writes = writes.collect();
    world.turns(400);
    writes
}

/// Whether the controller waits for something.
fn is_busy(world: &mut World) -> bool {
    let told = Arc::new(AtomicBool::new(false));
    world.order_with(Action::Status, {
        let told = told.clone();
        move |_| told.store(true, Ordering::Relaxed)
    });
    world.turns(50);
    !told.load(Ordering::Relaxed)
}

fn ends_well(mut world: World, writes: &[Pending]) {
    writes.iter().for_each(|write| world.end(write).unwrap());
    world.set("sync_max", "max");
    world.verify();
    world.wait_idle();
    world.verify();
}

/// A flush has told that it has reset, and it is there until the others have answered. What the new member has of it is
/// not read meanwhile, and no parity is made of that.
#[test]
fn what_was_filled_from_a_member_that_has_told_is_not_used_while_that_goes_out() {
    for (seed, shape) in (286..).zip(FROM_A_RESET) {
        let mut world = filled_by_one_that_has_reset(shape, seed);
        // Its superblock and its log.
        world.disks.disk(2).hangs_in = Some(0..world.disks.data().start);
        let flush = world.start(1, Request::Flush);
        world.turns(400);
        assert!(!flush.has_ended(), "{world}");
        let writes = read_and_write_what_is_filled_so(&mut world, false);
        world.disks.disk(2).hangs_in = None;
        world.end(&flush).unwrap();
        ends_well(world, &writes);
    }
}

/// The flushes of a checkpoint tell, and the controller waits for the last of them.
#[test]
fn what_was_filled_from_a_member_that_has_told_is_not_used_while_other_flushes_end() {
    for (seed, shape) in (290..).zip(FROM_A_RESET) {
        let mut world = filled_by_one_that_has_reset(shape, seed);
        world.disks.disk(2).flush_hangs_on = Some(0);
        world.order(Action::Freeze);
        world.turns(400);
        let writes = read_and_write_what_is_filled_so(&mut world, true);
        assert!(is_busy(&mut world), "{world}");
        world.disks.disk(2).flush_hangs_on = None;
        world.turns(400);
        world.order(Action::Idle);
        ends_well(world, &writes);
    }
}

/// It drops off, and has told nothing. The others are asked, and one of them answers late.
#[test]
fn what_was_filled_from_a_member_that_drops_off_is_not_used_while_others_are_asked() {
    for (seed, shape) in (310..).zip(FROM_A_RESET) {
        let mut world = filled_by_one_that_has_reset(shape, seed);
        world.disks.disk(2).hangs_in = Some(0..world.disks.data().start);
        world.disks.disk(0).unplug();
        let sector =
            (0..world.sectors()).find(|at| world.disk_of(*at) == 0).expect("it holds data");
        let bytes = world.random.bytes(SECTOR);
        world.remember(sector, &bytes);
        let write = world.start(1, Request::Write { sector, from: Rc::new(bytes), fua: false });
        world.turns(400);
        assert!(!write.has_ended(), "{world}");
        let writes = read_and_write_what_is_filled_so(&mut world, true);
        world.disks.disk(2).hangs_in = None;
        world.end(&write).unwrap();
        ends_well(world, &writes);
    }
}

/// Another member is to go by order. The question to the others is what tells.
#[test]
fn what_was_filled_from_a_member_that_tells_when_it_is_asked_is_not_used() {
    for seed in 294..298 {
        let mut world = filled_by_one_that_has_reset(shapes::RAID6, seed);
        world.disks.disk(2).flush_hangs_on = Some(0);
        let member = world.disks.id(3);
        world.order(Action::Fail { member, force: false });
        world.turns(400);
        let writes = read_and_write_what_is_filled_so(&mut world, true);
        assert!(is_busy(&mut world), "{world}");
        world.disks.disk(2).flush_hangs_on = None;
        world.turns(400);
        ends_well(world, &writes);
    }
}

/// They began before the flush told, and end when the first disk is out and the new member is being filled again.
#[test]
fn reads_give_nothing_of_what_was_filled_from_a_member_that_tells_before_they_end() {
    for (seed, shape) in (300..).zip(FROM_A_RESET) {
        let mut world = filled_by_one_that_has_reset(shape, seed);
        let new = usize::from(shape.disks);
        if shape.has_parity() {
            world.set("hedged_reads", "0");
        }
        // What the first disk gives before its flush tells is old, as long as nothing is known.
        let hangs = |world: &World, hangs: Option<Range<u64>>| {
            [0, new].iter().for_each(|at| world.disks.disk(*at).hangs_in = hangs.clone());
        };
        hangs(&world, Some(world.disks.data()));
        let read = |sector, sectors: usize| {
            let into = Rc::new(RefCell::new(vec![0xa5; sectors * SECTOR]));
            (sector, world.start(0, Request::Read { sector, into: into.clone() }), into)
        };
        let sectors = what_is_filled_so(&world);
        let mut reads: Vec<_> = sectors.clone().map(|sector| read(sector, 1)).collect();
        let wide = (sectors.end - sectors.start) as usize;
        reads.push(read(sectors.start, wide));
        world.turns(50);
        world.serve(1, Request::Flush).unwrap();
        world.turns(400);
        hangs(&world, None);
        for (sector, read, into) in reads {
            world.end(&read).unwrap();
            world.compare(sector, &into.take());
        }
        ends_well(world, &[]);
    }
}

/// A new member alone gives a block that the others list. It falls back with one that goes, and the block is lost with
/// that.
#[test]
fn a_flush_tells_of_a_block_that_is_lost_because_a_new_member_falls_back() {
    for seed in 304..308 {
        let shape = Shape { member_sectors: 2048, ..shapes::RAID1 };
        let mut world = World::synced(Setup::shuffled(shape, seed));
        fill_up_to(&mut world, 1, 3, 1024);
        let data = world.disks.data();
        world.set("sync_max", "1120");
        world.order(Action::Idle);
        let more = data.start + 1024..data.start + 1120;
        world.until("more of it", |world| world.disks.disk(3).sectors_written(more.clone()) == 96);
        world.turns(50);
        let block = data.start + 1048..data.start + 1056;
        world.disks.disk(2).write_error = Some(IoErrorKind::Medium);
        world.disks.disk(2).errors_in = Some(block.clone());
        let bytes = vec![7; 8 * SECTOR];
        world.remember(1048, &bytes);
        world.write(1048, bytes).unwrap();
        {
            let mut first = world.disks.disk(0);
            (first.unreadable, first.unreadable_for_good) = (block.collect(), true);
        }
        while world.status().members[0].bad_ranges == 0 {
            world.verify_each(1048..1056);
        }
        world.disks.disk(0).unplug();
        assert_eq!(world.serve(0, Request::Flush), Err(RequestError::Lost), "{world}");
        assert_ne!(world.status().state, ArrayState::Broken, "{world}");
        assert_eq!(world.serve(1, Request::Flush), Ok(()), "{world}");
    }
}

/// A row is read block by block for a write. Meanwhile a member goes from which another one was filled, which gave its
/// block of the first parts. That one stays, and is filled anew there.
#[test]
fn a_write_is_not_made_of_parts_that_a_member_gave_that_is_filled_anew_since() {
    let mut hung = 0;
    for (seed, first_goes) in (275..285).zip([true, false].into_iter().cycle()) {
        let shape = Shape { member_sectors: 2048, ..shapes::RAID6 };
        let chunk = u64::from(shape.chunk_sectors);
        let mut world = World::synced(Setup::shuffled(shape, seed));
        let row = 1024 / chunk * 3 * chunk;
        let data = [0, 1, 2].map(|column| world.disk_of(row + column * chunk));
        let parity: Vec<usize> = (0..5).filter(|disk| !data.contains(disk)).collect();
        let (goes, stays) = match first_goes {
            true => (parity[0], parity[1]),
            false => (parity[1], parity[0]),
        };
        fill_up_to(&mut world, data[2], 5, 1024);
        rest_and_write(&mut world);
        world.disks.disk(goes).reset();
        world.set("sync_max", "1120");
        let start = world.disks.data().start + 1024;
        world.disks.reset_counts();
        world.order(Action::Idle);
        world.until("more of it", |world| {
            world.disks.disk(5).sectors_written(start..start + 96) == 96
        });
        world.turns(50);

        world.set("hedged_reads", "0");
        world.set("read_deadline", "0");
        world.disks.disk(data[0]).unreadable.insert(start);
        world.disks.disk(goes).unreadable.insert(start);
        world.disks.disk(stays).unreadable.insert(start + 1);
        world.disks.disk(data[1]).hangs_in = Some(start + 3..start + 4);
        let bytes = world.random.bytes(4 * 512);
        let from = Rc::new(bytes);
        let write = world.start(1, Request::Write { sector: row + chunk, from, fua: false });
        world.turns(400);
        hung += usize::from(!write.has_ended());
        world.serve(2, Request::Flush).unwrap();
        world.disks.disk(data[1]).hangs_in = None;
        // The first sector is lost, with three members of its row.
        let _ = world.end(&write);
        let sector = row + 2 * chunk + 2;
        let found = world.read(sector, 1).unwrap();
        world.compare(sector, &found);
    }
    assert!(hung > 0, "no part was read while the flush told");
}

/// Another member is to be replaced too, and the next run begins at its front. What the first replacement has is
/// not copied again, for the member may give something older by now: nor where it ends in the middle of a window.
#[test]
fn what_a_replacement_has_is_not_copied_again_for_another_one() {
    let ways = [(shapes::RAID1, 1024), (shapes::RAID1, 1032), (shapes::RAID6, 1024)];
    for (seed, (shape, has)) in (280..).zip(ways) {
        let shape = Shape { member_sectors: 2048, ..shape };
        let new = usize::from(shape.disks);
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.set("sync_max", &has.to_string());
        for (old, spare, front) in [(0, new, has), (1, new + 1, 0)] {
            world.add(spare).unwrap();
            let (member, with) = (world.disks.id(old), Some(world.disks.id(spare)));
            world.command(Action::Replace { member, with }).unwrap();
            world.wait_status("its front", |status| status.sync.completed_sectors >= front);
        }
        rest_and_write(&mut world);
        world.disks.disk(0).reset();
        world.set("sync_max", "max");
        world.command(Action::Idle).unwrap();
        world.wait_status("a flush", |status| status.degraded() > 0 || !status.sync.action.runs());
        world.verify();
        world.wait_idle();
        world.verify();
    }
}

/// The same of two new members, of which one is filled up to the middle of a window.
#[test]
fn what_a_new_member_has_is_not_filled_again_for_another_one() {
    let shape = Shape { disks: 4, member_sectors: 2048, ..shapes::RAID1 };
    let mut world = World::synced(Setup::shuffled(shape, 290));
    fill_up_to(&mut world, 1, 4, 136);
    world.command(Action::Freeze).unwrap();
    world.fail(2);
    world.remove(2);
    world.add(5).unwrap();
    rest_and_write(&mut world);
    world.disks.disk(0).reset();
    world.disks.reset_counts();
    world.set("sync_max", "256");
    world.order(Action::Idle);
    let window = world.disks.data().start..world.disks.data().start + 256;
    world.until("the window", |world| world.disks.disk(0).reads.contains(&window));
    // The next run does not begin before the other new member is gone again.
    world.set("sync_max", "0");
    world.wait_status("a flush", |status| status.degraded() == 3);
    world.fail(5);
    world.set("sync_max", "max");
    world.wait_status("all filled", |status| status.degraded() == 2);
    world.fail(3);
    world.verify();
}

/// Nothing is copied any more, all is flushed, and then all is written anew.
fn rest_and_write(world: &mut World) {
    world.command(Action::Freeze).unwrap();
    world.wait_status("a rest", |status| status.sync.action == SyncAction::Frozen);
    world.serve(0, Request::Flush).unwrap();
    world.write_random(0, world.sectors());
}

/// A member comes back by the bitmap, and a write that fails leaves a row in doubt that was not marked when that began.
/// Both parities keep what was there before: they agree, and reads end the doubt by them. What came to the member that
/// is filled is not among what was compared.
#[test]
fn a_row_whose_doubt_two_parities_end_is_filled_though_it_was_not_marked_when_the_filling_began() {
    const ROW: u64 = 48;
    let shape = Shape { member_sectors: 2048, ..shapes::RAID6 };
    let mut world = World::synced(Setup::new(shape, 600));
    world.write_random(0, world.sectors());
    world.serve(0, Request::Flush).unwrap();
    world.wait_clean();
    world.sleep_ms(60_000);
    world.fail(1);
    world.remove(1);
    world.write_random(4 * ROW, ROW);
    world.set("sync_max", "32");
    let added = world.add(1);
    assert!(matches!(added, Ok(Reply::Added { by_bitmap: true })), "{world}");
    // Row 10 has its parities on the disks 4 and 0.
    let row = world.disks.data().start + 160;
    for disk in [4, 0] {
        let mut disk = world.disks.disk(disk);
        (disk.write_error, disk.errors_in) = (Some(IoErrorKind::NoSpace), Some(row..row + 16));
    }
    let failed = world.write(10 * ROW, vec![9; 16 * SECTOR]);
    assert_eq!(failed, Err(RequestError::NoSpace), "{world}");
    [4, 0].into_iter().for_each(|disk| world.disks.disk(disk).plug());
    let found = world.read(10 * ROW, 16).unwrap();
    world.remember(10 * ROW, &found);
    world.set("sync_max", "max");
    world.wait_status("all members", |status| status.degraded() == 0);
    world.wait_idle();
    world.verify();
    assert_eq!(world.check(), 0, "{world}");
    world.fail(2);
    world.verify();
}
