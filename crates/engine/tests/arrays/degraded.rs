//! Arrays with as many members lost as the level bears: everything is read, more is written, and a
//! new member gets it all.

use mdspace_engine::array::{Action, CommandError};
use mdspace_engine::geometry::{Geometry, Level};
use mdspace_engine::request::RequestError;
use mdspace_engine::status::{ArrayState, MemberState};

use crate::shapes::{self, Shape};
use crate::world::{Setup, World};

/// Every set of members that may be lost at once, the largest only.
fn losses(shape: &Shape) -> Vec<Vec<usize>> {
    let sets =
        (0..1_u32 << shape.disks).filter(|set| set.count_ones() as usize == shape.can_lose());
    let disks = 0..usize::from(shape.disks);
    sets.map(|set| disks.clone().filter(|disk| set >> disk & 1 == 1).collect()).collect()
}

/// Loses `lost`, writes on, and rebuilds onto new disks.
fn lose_and_rebuild(setup: Setup, lost: &[usize]) {
    let mut world = World::synced(setup);
    world.write_many(12);
    for &disk in lost {
        world.fail(disk);
        world.disks.disk(disk).unplug();
    }
    world.verify();
    world.write_many(20);
    world.verify();
    let new = usize::from(setup.shape.disks)..;
    for (disk, old) in new.zip(lost) {
        world.add(disk).unwrap();
        world.remove(*old);
        world.write_many(4);
    }
    world.wait_idle();
    assert_eq!(world.status().degraded(), 0, "{world}");
    world.verify();
    assert_eq!(world.check(), 0, "redundancy agrees ({world})");
    world.restart();
    world.verify();
}

#[test]
fn every_largest_loss_is_borne_and_mended() {
    for (seed, shape) in (1..).zip(shapes::redundant()) {
        for lost in losses(&shape) {
            lose_and_rebuild(Setup::new(shape, seed), &lost);
        }
    }
}

#[test]
fn every_largest_loss_is_borne_and_mended_when_ios_end_in_any_order() {
    for (seed, shape) in (500..).zip(shapes::redundant()) {
        for (more, lost) in (0..).zip(losses(&shape)) {
            lose_and_rebuild(Setup::shuffled(shape, seed * 100 + more), &lost);
        }
    }
}

#[test]
fn a_degraded_array_is_found_again_after_a_restart() {
    for (seed, shape) in (40..).zip([shapes::RAID5, shapes::RAID6, shapes::RAID10, shapes::RAID1]) {
        let mut world = World::synced(Setup::new(shape, seed));
        world.fail(1);
        world.write_many(10);
        world.restart();
        assert_eq!(world.member_state(1), None, "{world}");
        assert_eq!(world.status().degraded(), 1, "{world}");
        world.verify();
    }
}

/// RAID10 bears more than its copies say when the lost members share no block.
#[test]
fn raid10_lives_as_long_as_every_block_has_a_copy() {
    let mut world = World::synced(Setup::new(shapes::RAID10, 9));
    world.fail(0);
    world.fail(2);
    world.write_many(10);
    world.verify();
    let needed = world.disks.id(3);
    let refused = world.command(Action::Fail { member: needed, force: false });
    assert_eq!(refused.unwrap_err(), CommandError::Needed);
    world.verify();
}

#[test]
fn the_last_needed_member_is_failed_only_by_force() {
    let mut world = World::synced(Setup::new(shapes::RAID5, 10));
    world.fail(0);
    let member = world.disks.id(1);
    let refused = world.command(Action::Fail { member, force: false });
    assert_eq!(refused.unwrap_err(), CommandError::Needed);
    world.write_many(3);
    world.command(Action::Fail { member, force: true }).unwrap();
    assert_eq!(world.write(0, vec![0; 512]), Err(RequestError::Lost));
    assert_eq!(world.read(0, world.sectors()), Err(RequestError::Lost));
}

/// The superblock of a member says what the array is: a broken array without any could not tell its status.
#[test]
fn a_broken_array_keeps_its_last_member() {
    let mut world = World::synced(Setup::new(shapes::RAID1, 11));
    let disks = 0..usize::from(shapes::RAID1.disks);
    disks.clone().for_each(|disk| world.fail(disk));
    disks.skip(1).for_each(|disk| world.remove(disk));
    let member = world.disks.id(0);
    let refused = world.command(Action::Remove { member });
    assert_eq!(refused.unwrap_err(), CommandError::LastMember);
    assert_eq!(world.status().state, ArrayState::Broken);
}

/// A member that died before the first resync was through: what was written is not lost with it.
#[test]
fn what_was_written_before_the_first_resync_survives_losses() {
    let shapes = [shapes::RAID6, Shape::new(Level::Raid6, 2, 4, 16), shapes::RAID1];
    for (seed, shape) in (70..).zip(shapes.into_iter().chain(shapes::raid10())) {
        for lost in losses(&shape) {
            let mut world = World::created(Setup::new(shape, seed));
            world.command(Action::Freeze).unwrap();
            let all = usize::try_from(world.sectors()).unwrap() * 512;
            world.model = vec![0; all];
            let ranges: Vec<_> = (0..12).map(|_| world.random_range()).collect();
            for &(sector, sectors) in &ranges[..6] {
                world.write_random(sector, sectors);
            }
            for disk in &lost {
                world.fail(*disk);
                for &(sector, sectors) in &ranges[6..9] {
                    world.write_random(sector, sectors);
                }
                verify_ranges(&mut world, &ranges[..9]);
            }
            world.command(Action::Idle).unwrap();
            for disk in 0..lost.len() {
                world.add(usize::from(shape.disks) + disk).unwrap();
            }
            world.wait_idle();
            for &(sector, sectors) in &ranges[9..] {
                world.write_random(sector, sectors);
            }
            world.wait_idle();
            verify_ranges(&mut world, &ranges);
            assert_eq!(world.check(), 0, "{world}, lost {lost:?}");
        }
    }
}

fn verify_ranges(world: &mut World, ranges: &[(u64, u64)]) {
    for &(sector, sectors) in ranges {
        let found = world.read(sector, sectors).unwrap();
        world.compare(sector, &found);
    }
}

/// As above, but with one failure mended before the next: parity that no resync ever made right must
/// not be what the second loss is computed from.
#[test]
fn a_rebuild_before_the_first_resync_leaves_all_parity_right() {
    for (seed, lost) in (90..).zip(losses(&shapes::RAID6)) {
        let mut world = World::created(Setup::new(shapes::RAID6, seed));
        world.command(Action::Freeze).unwrap();
        world.fail(lost[0]);
        world.command(Action::Idle).unwrap();
        world.add(5).unwrap();
        world.wait_idle();
        assert_eq!(world.member_state(5), Some(MemberState::InSync));
        world.learn();
        world.write_many(15);
        world.fail(lost[1]);
        world.write_many(5);
        world.fail(5);
        world.verify();
    }
}

/// The disk of a block of the array's first row, given by its place in it.
fn disk_in_first_row(world: &World, place: u16) -> usize {
    let Geometry::Parity(map) = Geometry::new(&world.map()).unwrap() else {
        panic!("a parity level")
    };
    let row = map.row(0);
    usize::from(row.data(place).0)
}

/// Fails the disks with the parity of the first row.
fn without_parity_of_the_first_row(shape: Shape, seed: u64) -> World {
    let mut world = World::synced(Setup::new(shape, seed));
    let Geometry::Parity(map) = Geometry::new(&world.map()).unwrap() else {
        panic!("a parity level")
    };
    let row = map.row(0);
    for slot in [Some(row.p()), row.q()].into_iter().flatten() {
        world.fail(usize::from(slot.0));
    }
    world
}

/// There is nothing to compute: old blocks would be read for nothing.
#[test]
fn a_write_of_whole_blocks_reads_nothing_where_all_parity_is_out() {
    for (seed, shape) in (900..).zip([shapes::RAID5, shapes::RAID6]) {
        let mut world = without_parity_of_the_first_row(shape, seed);
        let data = world.disks.data();
        world.disks.reset_counts();
        world.write_random(0, 8);
        for disk in 0..usize::from(shape.disks) {
            assert_eq!(world.disks.disk(disk).sectors_read_in(data.clone()), 0, "{world}");
        }
        // Half a unit is put together with its other half.
        world.write_random(12, 2);
        world.verify();
    }
}

/// Two blocks of a row are lost. Each takes a write that heals it, as a block without redundancy does.
#[test]
fn blocks_that_are_lost_beside_each_other_take_writes_where_all_parity_is_out() {
    for (seed, shape) in (910..).zip([shapes::RAID5, shapes::RAID6]) {
        let mut world = without_parity_of_the_first_row(shape, seed);
        let start = world.disks.data().start;
        for place in [0, 1] {
            let disk = disk_in_first_row(&world, place);
            world.disks.disk(disk).unreadable.extend(start..start + 8);
        }
        for place in [0, 1] {
            let sector = place * u64::from(shape.chunk_sectors);
            assert_eq!(world.read(sector, 8), Err(RequestError::Lost), "{world}");
        }
        for place in [0, 1] {
            world.write_random(place * u64::from(shape.chunk_sectors), 8);
        }
        world.verify();
    }
}
