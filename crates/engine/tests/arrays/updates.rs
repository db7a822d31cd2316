//! Members that fail in an update of superblocks or bitmap: no lane may be a step ahead of what the
//! others say by then, nor wait for a word that nobody gives any more.

use std::rc::Rc;

use mdspace_engine::array::Action;
use mdspace_engine::backend::IoErrorKind;
use mdspace_engine::request::Request;
use mdspace_engine::status::{ArrayState, MemberState, SyncAction};
use mdspace_format::Role;

use crate::shapes;
use crate::world::{SECTOR, Setup, World};

/// Lets a disk refuse every write of its superblock, and nothing else.
fn refuse_superblocks(world: &World, disk: usize) {
    let place = world.disks.superblock(disk).unwrap().place.sector;
    let mut disk = world.disks.disk(disk);
    disk.write_error = Some(IoErrorKind::Other);
    disk.errors_in = Some(place..place + 8);
}

/// Lets a disk refuse every write of its bitmap, and nothing else.
fn refuse_bitmaps(world: &World, disk: usize) {
    let start = world.disks.superblock(disk).unwrap().bitmap_sector().unwrap();
    let mut disk = world.disks.disk(disk);
    disk.write_error = Some(IoErrorKind::Other);
    disk.errors_in = Some(start..start + 8);
}

/// Every member lies on one file system that copies what is written, and it has no room for a moment: neither the bits of a
/// write nor the superblocks can be written.
#[test]
fn no_member_fails_when_metadata_have_no_room_for_a_moment() {
    for (seed, shape) in (30..).zip([shapes::RAID1, shapes::RAID6, shapes::RAID10]) {
        for refuse in [refuse_superblocks, refuse_bitmaps] {
            let mut world = World::synced(Setup::new(shape, seed));
            world.write_random(0, world.sectors());
            world.wait_clean();
            for disk in 0..usize::from(shape.disks) {
                refuse(&world, disk);
                world.disks.disk(disk).write_error = Some(IoErrorKind::NoSpace);
            }
            let bytes = world.random.bytes(16 * SECTOR);
            let from = Rc::new(bytes.clone());
            let pending = world.start(0, Request::Write { sector: 0, from, fua: false });
            world.sleep_ms(2000);
            assert!(!pending.has_ended(), "{world}");
            (0..usize::from(shape.disks)).for_each(|disk| world.disks.disk(disk).plug());
            assert_eq!(world.end(&pending), Ok(()), "{world}");
            world.model[..bytes.len()].copy_from_slice(&bytes);
            assert_eq!(world.status().degraded(), 0, "{world}");
            world.verify();
        }
    }
}

/// The others record that it is out, and go on.
#[test]
fn a_member_that_finds_no_room_for_metadata_for_long_is_failed() {
    for (seed, shape) in (40..).zip([shapes::RAID1, shapes::RAID6]) {
        let mut world = World::synced(Setup::new(shape, seed));
        world.wait_clean();
        refuse_superblocks(&world, 1);
        world.disks.disk(1).write_error = Some(IoErrorKind::NoSpace);
        world.write_random(0, 16);
        assert_eq!(world.member_state(1), Some(MemberState::Faulty), "{world}");
        world.verify();
    }
}

/// Nothing is under way that would have the controller look again: the array is dirty, and no sync task
/// runs.
#[test]
fn writes_go_on_when_a_member_fails_in_an_update_that_none_of_them_asked_for() {
    for (seed, shape) in (1..).zip([shapes::RAID6, shapes::RAID10]) {
        let mut world = World::created(Setup::new(shape, seed));
        world.command(Action::Freeze).unwrap();
        world.wait_status("a frozen array", |status| status.sync.action == SyncAction::Frozen);
        world.learn();
        world.write_random(0, 16);
        world.sleep_ms(1000);
        assert_eq!(world.status().state, ArrayState::Active, "{world}");
        let spare = usize::from(shape.disks);
        world.add(spare).unwrap();
        refuse_superblocks(&world, 1);
        world.remove(spare);
        assert_eq!(world.member_state(1), Some(MemberState::Faulty), "{world}");
        world.write_random(0, 16);
        world.write_random(16, world.sectors() - 16);
        world.verify();
    }
}

/// The update that marks the array dirty is broken off by a member's bitmap, and power fails then: where
/// data was written meanwhile under superblocks that say clean, nobody would look at its parity.
#[test]
fn nothing_is_written_before_the_survivors_say_dirty() {
    for (seed, shape) in (10..).zip([shapes::RAID1, shapes::RAID5, shapes::RAID6, shapes::RAID10]) {
        for rounds in 0..60 {
            let mut world = World::synced(Setup::shuffled(shape, seed * 100 + rounds));
            world.write_random(0, 64);
            world.wait_clean();
            refuse_bitmaps(&world, 1);
            let bytes = world.random.bytes(64 * SECTOR);
            let write = Request::Write { sector: 0, from: Rc::new(bytes), fua: false };
            let pending = world.start(0, write);
            world.rounds(rounds as usize);
            let answered = pending.has_ended();
            world.crash();
            world.disks.disk(1).plug();
            world.assemble_with_force().unwrap();
            world.wait_idle();
            if world.member_state(1).is_none() {
                world.add(1).unwrap();
                world.wait_idle();
            }
            assert_eq!(world.check(), 0, "after {rounds} rounds, answered: {answered} ({world})");
        }
    }
}

/// A cable takes two members at once, and the update notices one after the other: that the first is out must
/// not be on record when the second turns out to be lost with it.
#[test]
fn members_that_an_update_loses_one_by_one_are_lost_together() {
    for grace in 0..6 {
        let mut world = World::synced(Setup::new(shapes::RAID5, 700 + grace));
        world.write_many(3);
        world.wait_clean();
        world.disks.disk(0).unplug();
        world.disks.disk(1).unplug();
        // Its cache takes some writes yet.
        world.disks.disk(1).grace = grace;
        assert!(world.write(0, vec![1; SECTOR]).is_err(), "{world}");
        is_broken_and_comes_back(world, grace);
    }
}

/// The same where the bitmap is what notices the first one: its bit is set before anything is read.
#[test]
fn members_that_the_bitmap_loses_one_by_one_are_lost_together() {
    for grace in 0..8 {
        let mut world = World::synced(Setup::new(shapes::RAID5, 710 + grace));
        let row = 3 * u64::from(shapes::RAID5.chunk_sectors);
        // The array is dirty then: the next write asks for its bit alone.
        world.write_random(0, row);
        world.disks.disk(0).unplug();
        world.disks.disk(1).unplug();
        world.disks.disk(1).grace = grace;
        let last = world.sectors() - row;
        assert!(world.write(last, vec![2; row as usize * SECTOR]).is_err(), "{world}");
        is_broken_and_comes_back(world, grace);
    }
}

/// No survivor's superblock says that the first two disks are out, and once they are there again all is as before.
fn is_broken_and_comes_back(mut world: World, grace: u64) {
    world.wait_status("broken", |status| status.state == ArrayState::Broken);
    for disk in 2..4 {
        let superblock = world.disks.superblock(disk).expect("a member");
        let lost = |role: &&Role| matches!(role, Role::Faulty);
        assert_eq!(superblock.roles.iter().take(4).find(lost), None, "grace {grace} ({world})");
    }
    world.crash();
    (0..2).for_each(|disk| world.disks.disk(disk).plug());
    world.assemble_all().unwrap();
    world.wait_idle();
    world.verify();
}
