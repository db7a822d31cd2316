//! Members that work and are given up, by order or for their errors: none goes that holds a block which no
//! other member gives.

use std::ops::Range;

use mdspace_engine::array::{Action, CommandError};
use mdspace_engine::backend::IoErrorKind;
use mdspace_engine::geometry::Level;
use mdspace_engine::request::RequestError;
use mdspace_engine::status::MemberState;

use crate::shapes::{self, Shape};
use crate::world::{SECTOR, Setup, World};

const LISTED: Range<u64> = 20..24;

fn shapes_of_one_loss() -> [Shape; 3] {
    [Shape::new(Level::Raid1, 0, 2, 0), shapes::RAID5, shapes::RAID10]
}

/// A disk that refused a write of some data sectors, and lists them.
fn lists(world: &mut World, disk: usize) {
    let start = world.disks.data().start;
    world.disks.disk(disk).write_error = Some(IoErrorKind::Medium);
    world.disks.disk(disk).errors_in = Some(start + LISTED.start..start + LISTED.end);
    world.write_random(0, world.sectors());
    assert_ne!(world.status().members[disk].bad_ranges, 0, "{world}");
}

fn fail(world: &mut World, disk: usize, force: bool) -> Result<(), CommandError> {
    let member = world.disks.id(disk);
    world.command(Action::Fail { member, force }).map(drop)
}

#[test]
fn a_member_that_alone_gives_a_block_is_failed_only_by_force() {
    for (seed, shape) in (1..).zip(shapes_of_one_loss()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        lists(&mut world, 1);
        let refused = fail(&mut world, 0, false);
        let holds = matches!(refused, Err(CommandError::HoldsAlone { sectors: 1..=8 }));
        assert!(holds, "{refused:?} ({world})");
        world.verify();
        // What the other lacks is no reason to keep it.
        fail(&mut world, 1, false).unwrap();
        world.verify();
        assert_eq!(fail(&mut world, 0, false), Err(CommandError::Needed));
    }
    let mut world = World::synced(Setup::new(shapes::RAID6, 7));
    lists(&mut world, 1);
    fail(&mut world, 0, false).unwrap();
    let refused = fail(&mut world, 2, false);
    assert!(matches!(refused, Err(CommandError::HoldsAlone { .. })), "{refused:?}");
    fail(&mut world, 2, true).unwrap();
    assert_eq!(world.member_state(2), Some(MemberState::Faulty));
}

/// RAID5: after a crash a missing block cannot be computed before resync has been there.
#[test]
fn a_member_of_an_array_in_doubt_is_failed_only_by_force() {
    let mut world = World::synced(Setup::new(shapes::RAID5, 20));
    world.write_many(5);
    world.crash();
    world.assemble_all().unwrap();
    world.command(Action::Freeze).unwrap();
    let doubted = world.status().doubted.sectors;
    assert_ne!(doubted, 0, "{world}");
    let refused = fail(&mut world, 0, false);
    // Of each row in doubt the block of the failed member, unless that is parity.
    let holds = matches!(refused, Err(CommandError::HoldsAlone { sectors }) if sectors <= doubted);
    assert!(holds, "{refused:?} ({world})");
    world.command(Action::Idle).unwrap();
    world.wait_idle();
    fail(&mut world, 0, false).unwrap();
    world.verify();
}

/// After a crash a mirror is read from one copy, so that what was read once stays. An order changes which
/// one it is only by force.
#[test]
fn the_copy_that_a_mirror_in_doubt_is_read_from_is_failed_only_by_force() {
    for (seed, shape) in (80..).zip([Shape::new(Level::Raid1, 0, 3, 0), shapes::RAID10]) {
        let mut world = World::synced(Setup::new(shape, seed));
        world.write_many(5);
        world.crash();
        world.assemble_all().unwrap();
        world.command(Action::Freeze).unwrap();
        let refused = fail(&mut world, 0, false);
        let sectors = 1..=world.sectors();
        let is_read = matches!(&refused, Err(CommandError::IsRead { sectors: read }) if sectors.contains(read));
        assert!(is_read, "{refused:?} ({world})");
        // The second copy is not read.
        fail(&mut world, 1, false).unwrap();
        world.verify();
        world.command(Action::Idle).unwrap();
        world.wait_idle();
        world.verify();
    }
    let mut world = World::synced(Setup::new(Shape::new(Level::Raid1, 0, 2, 0), 85));
    world.write_many(5);
    world.crash();
    world.assemble_all().unwrap();
    world.command(Action::Freeze).unwrap();
    assert!(matches!(fail(&mut world, 0, false), Err(CommandError::IsRead { .. })));
    fail(&mut world, 0, true).unwrap();
    assert_eq!(world.member_state(0), Some(MemberState::Faulty));
    world.verify();
}

/// Mended errors are no reason to lose what another member lists as bad.
#[test]
fn read_errors_do_not_give_up_a_member_that_alone_gives_a_block() {
    for (listed, state) in [(true, MemberState::InSync), (false, MemberState::Faulty)] {
        for (seed, shape) in (40..).zip(shapes_of_one_loss()) {
            let mut world = World::synced(Setup::new(shape, seed));
            world.write_random(0, world.sectors());
            world.set("max_read_errors", "3");
            if shape.level == Level::Raid1 {
                world.set("read_policy", "first");
            }
            if listed {
                lists(&mut world, 1);
            }
            let start = world.disks.data().start;
            for _ in 0..8 {
                world.disks.disk(0).unreadable.extend(start + 40..start + 64);
                world.verify();
            }
            world.rounds(50);
            let errors = world.status().members[0].corrected_errors;
            assert!(errors > 3, "{errors} ({world})");
            assert_eq!(world.member_state(0), Some(state), "{listed} ({world})");
            world.verify();
        }
    }
}

/// It would fail at its first refused write, if the other did not lack a block.
#[test]
fn failing_fast_does_not_give_up_a_member_that_alone_gives_a_block() {
    for (listed, state) in [(true, MemberState::InSync), (false, MemberState::Faulty)] {
        let shape = Shape { failfast: 0b1, ..Shape::new(Level::Raid1, 0, 2, 0) };
        let mut world = World::synced(Setup::new(shape, 60));
        if listed {
            lists(&mut world, 1);
        }
        let start = world.disks.data().start;
        world.disks.disk(0).write_error = Some(IoErrorKind::Medium);
        world.disks.disk(0).errors_in = Some(start + 40..start + 42);
        world.write_random(40, 2);
        assert_eq!(world.member_state(0), Some(state), "{listed} ({world})");
        world.verify();
    }
}

/// Nothing can name what it refuses. To fail it would lose what another member lacks: the write is an error.
#[test]
fn a_refused_write_that_no_list_names_gives_up_no_member_that_alone_gives_a_block() {
    for (lists_some, state) in [(true, MemberState::InSync), (false, MemberState::Faulty)] {
        for (seed, shape) in (90..).zip(shapes_of_one_loss()) {
            let mut world = World::synced(Setup::shuffled(shape, seed));
            world.stop();
            let mut superblock = world.disks.superblock(0).unwrap();
            superblock.bad_block_log = None;
            let at = superblock.place.sector as usize * SECTOR;
            world.disks.disk(0).bytes[at..at + 4096].copy_from_slice(&superblock.encode());
            world.assemble_all().unwrap();
            world.command(Action::Freeze).unwrap();
            if lists_some {
                lists(&mut world, 1);
            }
            let start = world.disks.data().start;
            world.disks.disk(0).write_error = Some(IoErrorKind::Medium);
            world.disks.disk(0).errors_in = Some(start + 40..start + 42);
            let mut failed = Vec::new();
            for sector in 0..world.sectors() {
                let new = world.random.bytes(SECTOR);
                match world.write(sector, new.clone()) {
                    Ok(()) => world.remember(sector, &new),
                    Err(error) => {
                        assert_eq!(error, RequestError::Lost, "{world}");
                        failed.push(sector);
                    }
                }
            }
            assert_eq!(world.member_state(0), Some(state), "{lists_some} ({world})");
            assert_eq!(failed.is_empty(), !lists_some, "{failed:?} ({world})");
            assert!(failed.len() <= 8, "{failed:?} ({world})");
            for sector in (0..world.sectors()).filter(|sector| !failed.contains(sector)) {
                let found = world.read(sector, 1).unwrap_or_else(|e| panic!("{e} ({world})"));
                world.compare(sector, &found);
            }
        }
    }
}
