//! Doubt that the user accepts, and what comes to be lacking besides: before that, at once, and later.

use std::rc::Rc;

use mdspace_engine::array::{Action, CommandError};
use mdspace_engine::backend::IoErrorKind;
use mdspace_engine::request::{Request, RequestError};
use mdspace_engine::status::{MemberState, SyncAction};

use crate::shapes::{self, Shape};
use crate::world::{SECTOR, Setup, World};

/// A row of the arrays here, in sectors of the array, and its part of a member.
const ROW: u64 = 48;
const CHUNK: u64 = 16;

/// A RAID6 in which nothing starts by itself.
fn frozen(shape: Shape, seed: u64) -> World {
    let mut world = World::synced(Setup::shuffled(shape, seed));
    world.command(Action::Freeze).unwrap();
    world
}

/// A write of a row fails, for these disks have no room there. They have some right after that.
fn leave_doubt(world: &mut World, row: u64, disks: &[usize]) {
    let start = world.disks.data().start + row * CHUNK;
    for &disk in disks {
        let mut disk = world.disks.disk(disk);
        disk.write_error = Some(IoErrorKind::NoSpace);
        disk.errors_in = Some(start..start + CHUNK);
    }
    let failed = world.write(row * ROW, vec![9; ROW as usize * SECTOR]);
    assert_eq!(failed, Err(RequestError::NoSpace), "{world}");
    disks.iter().for_each(|&disk| world.disks.disk(disk).plug());
}

/// A spare takes the place of a disk that is out, and is filled up to this sector. Then nothing runs.
fn fill_up_to(world: &mut World, spare: usize, sector: u64) {
    world.set("sync_max", &sector.to_string());
    world.add(spare).unwrap();
    world.command(Action::Idle).unwrap();
    world.wait_status("its front", |status| status.sync.completed_sectors >= sector);
    world.sleep_ms(1000);
    world.command(Action::Freeze).unwrap();
    world.wait_status("its end", |status| status.sync.action == SyncAction::Frozen);
    world.set("sync_max", "max");
}

/// Says that something is in doubt, accepts it, and has nothing be in doubt after that.
fn accept(world: &mut World) {
    assert!(world.status().doubted.sectors > 0, "{world}");
    world.command(Action::AcceptDoubt).unwrap();
    assert_eq!(world.status().doubted.sectors, 0, "{world}");
    assert_eq!(world.command(Action::AcceptDoubt).err(), Some(CommandError::NothingInDoubt));
}

/// The whole array can be read, and is whole again with these spares.
fn comes_back(world: &mut World, spares: &[usize]) {
    world.learn();
    spares.iter().for_each(|&spare| drop(world.add(spare).unwrap()));
    world.command(Action::Idle).unwrap();
    world.wait_status("all in sync", |status| status.degraded() == 0);
    world.wait_idle();
    world.verify();
    assert_eq!(world.check(), 0, "{world}");
}

/// A spare that has the block of a row in doubt fails when the user has accepted that: two blocks are lacking now.
#[test]
fn doubt_that_was_accepted_can_be_accepted_again_when_a_spare_fails_too() {
    let mut world = frozen(shapes::RAID6, 1);
    world.fail(0);
    fill_up_to(&mut world, 5, 128);
    leave_doubt(&mut world, 1, &[2]);
    world.fail(1);
    accept(&mut world);
    world.fail(5);
    accept(&mut world);
    comes_back(&mut world, &[6, 7]);
}

/// What was accepted is parity for blocks that were missing then. The spare had its block.
#[test]
fn the_block_of_a_spare_that_fails_later_is_in_doubt_again() {
    for row in [1, 2, 3] {
        let mut world = frozen(shapes::RAID6, 10 + row);
        world.fail(0);
        fill_up_to(&mut world, 5, 128);
        leave_doubt(&mut world, row, &[2, 4]);
        let before: Vec<_> = (0..ROW).map(|at| world.read(row * ROW + at, 1)).collect();
        accept(&mut world);
        world.fail(5);
        assert_eq!(world.status().doubted.sectors, CHUNK, "{world}");
        for (at, before) in (0..).zip(before) {
            let now = world.read(row * ROW + at, 1);
            assert!(now == Err(RequestError::Lost) || now == before, "{at} ({world})");
        }
        accept(&mut world);
        comes_back(&mut world, &[6]);
    }
}

/// The same where the spare had not come so far: nothing more is lacking than before.
#[test]
fn accepted_doubt_stays_accepted_when_a_spare_fails_that_had_nothing_there() {
    let mut world = frozen(shapes::RAID6, 20);
    leave_doubt(&mut world, 9, &[2, 4]);
    world.fail(0);
    fill_up_to(&mut world, 5, 128);
    accept(&mut world);
    world.fail(5);
    assert_eq!(world.status().doubted.sectors, 0, "{world}");
    comes_back(&mut world, &[6]);
}

/// One block of a row in doubt is on a disk that is out, and another one is listed as bad, before the user accepts the
/// doubt or after it.
#[test]
fn doubt_can_be_accepted_where_one_block_is_out_and_one_is_listed() {
    for (seed, accepts_first) in [(30, false), (31, true)] {
        let mut world = frozen(shapes::RAID6, seed);
        leave_doubt(&mut world, 1, &[2]);
        world.fail(0);
        if accepts_first {
            accept(&mut world);
        }
        let start = world.disks.data().start + CHUNK;
        world.disks.disk(1).unreadable.extend(start..start + 8);
        let found = (ROW..2 * ROW).filter(|&sector| world.read(sector, 1).is_err());
        assert!(found.count() >= 8, "{world}");
        let bad: u32 = world.status().members.iter().map(|member| member.bad_ranges).sum();
        assert_eq!(bad, 1, "{world}");
        accept(&mut world);
        comes_back(&mut world, &[5]);
    }
}

/// Two spares are filled in one run, which has gone round the row and has not told so yet.
#[test]
fn doubt_is_accepted_that_a_rebuild_of_two_has_just_gone_round() {
    let shape = Shape { member_sectors: 65_536, ..shapes::RAID6 };
    let mut world = frozen(shape, 40);
    leave_doubt(&mut world, 1, &[2]);
    for disk in [0, 1] {
        world.fail(disk);
        world.add(5 + disk).unwrap();
    }
    world.set("sync_max", "512");
    world.command(Action::Idle).unwrap();
    world.wait_status("a pause", |status| status.sync.completed_sectors == 512);
    accept(&mut world);
    world.set("sync_max", "max");
    comes_back(&mut world, &[]);
}

/// A window waits for the write that fails, and others behind it are filled.
#[test]
fn doubt_is_accepted_in_a_row_that_a_rebuild_of_two_waits_for() {
    for accepts_always in [true, false] {
        let mut world = frozen(shapes::RAID6, 50);
        for disk in [0, 1] {
            world.fail(disk);
            world.add(5 + disk).unwrap();
        }
        if accepts_always {
            world.set("accept_doubt", "1");
        }
        world.set("write_deadline", "0");
        let start = world.disks.data().start;
        {
            let mut disk = world.disks.disk(2);
            disk.write_error = Some(IoErrorKind::NoSpace);
            disk.errors_in = Some(start + CHUNK..start + 2 * CHUNK);
            disk.hangs_in = disk.errors_in.clone();
        }
        let from = Rc::new(vec![9; ROW as usize * SECTOR]);
        let write = world.start(0, Request::Write { sector: ROW, from, fua: false });
        world.turns(40);
        assert!(!write.has_ended(), "{world}");
        world.set("sync_io_depth", "8");
        world.command(Action::Idle).unwrap();
        let behind = start + 2 * CHUNK..start + 4 * CHUNK;
        world.until("filled rows behind it", |world| {
            world.disks.disk(5).sectors_written(behind.clone()) == 2 * CHUNK
        });
        {
            let mut disk = world.disks.disk(2);
            disk.hangs_in = None;
        }
        assert_eq!(world.end(&write), Err(RequestError::NoSpace), "{world}");
        world.disks.disk(2).plug();
        if !accepts_always {
            world.command(Action::AcceptDoubt).unwrap();
        }
        world.wait_status("all in sync", |status| status.degraded() == 0);
        world.wait_idle();
        assert_eq!(world.member_state(5), Some(MemberState::InSync), "{world}");
        assert_eq!(world.status().doubted.sectors, 0, "{world}");
        world.learn();
        assert_eq!(world.check(), 0, "{world}");
    }
}
