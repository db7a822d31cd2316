//! Power cuts in which disks lose what they were not told to flush.

use std::rc::Rc;

use mdspace_engine::geometry::Level;
use mdspace_engine::request::Request;

use crate::shapes::{self, Shape};
use crate::world::{SECTOR, Setup, World};

#[test]
fn a_recovery_offset_promises_only_what_is_flushed() {
    let shape = Shape { member_sectors: 16_384, ..Shape::new(Level::Raid5, 2, 3, 8) };
    for rounds in (600..1600).step_by(100) {
        let mut world = World::synced(Setup::shuffled(shape, rounds as u64));
        world.fail(0);
        world.remove(0);
        world.add(3).unwrap();
        world.rounds(rounds);
        // Any update of the superblocks tells how far the recovery is.
        world.add(4).unwrap();
        world.power_cut([3]);
        world.assemble_all().unwrap();
        world.wait_idle();
        assert_eq!(world.check(), 0, "{world}, {rounds} rounds");
        world.verify();
    }
}

/// A write that hangs elsewhere keeps the array from being marked clean, which would flush everything.
#[test]
fn a_bit_is_cleared_only_when_its_data_are_flushed_everywhere() {
    for (seed, shape) in (1..).zip([shapes::RAID1, shapes::RAID5, shapes::RAID10]) {
        for disk in 0..usize::from(shape.disks) {
            let mut world = World::synced(Setup::new(shape, seed));
            let begin = world.disks.data().start;
            world.set("write_deadline", "0");
            world.disks.disk(1).hangs_in = Some(begin..begin + 8);
            for sector in [0, 16] {
                let from = Rc::new(vec![9; 8 * SECTOR]);
                world.start(0, Request::Write { sector, from, fua: false });
            }
            world.rounds(10);
            world.write_random(world.sectors() - 8, 8);
            let begun = world.status().bitmap.unwrap().dirty_bits;
            world
                .wait_status("a clearing pass", |status| status.bitmap.unwrap().dirty_bits < begun);
            world.disks.disk(1).hangs_in = None;
            world.power_cut([disk]);
            world.assemble_all().unwrap();
            world.wait_idle();
            assert_eq!(world.check(), 0, "{world}, disk {disk}");
        }
    }
}

/// Users write on both sides of where the rebuild is, and power fails on every disk.
#[test]
fn power_cuts_in_a_rebuild_leave_nothing_old_on_the_new_member() {
    for (seed, shape) in (1..).zip([shapes::RAID1, shapes::RAID5, shapes::RAID6, shapes::RAID10]) {
        for rounds in (20..500).step_by(40) {
            let shape = Shape { member_sectors: 2048, ..shape };
            let mut world = World::synced(Setup::shuffled(shape, 1000 * seed + rounds));
            let new = usize::from(shape.disks);
            begin_rebuild(&mut world, new, rounds as usize);
            let all: Vec<usize> = (0..world.disks.count()).collect();
            world.power_cut(all);
            // Nothing was under way: parity may be believed.
            world.assemble_with_force().unwrap();
            world.verify();
            world.write_many(2);
            world.wait_idle();
            assert_eq!(world.status().degraded(), 0, "{world}, {rounds} rounds");
            assert_eq!(world.check(), 0, "{world}, {rounds} rounds");
            (1..=shape.can_lose()).for_each(|disk| world.fail(disk));
            world.verify();
        }
    }
}

/// A rebuild onto `new`, so many rounds on, with writes that are flushed.
fn begin_rebuild(world: &mut World, new: usize, rounds: usize) {
    world.fail(0);
    world.remove(0);
    world.add(new).unwrap();
    world.rounds(rounds);
    world.write_many(4);
    world.serve(0, Request::Flush).unwrap();
}

/// The control of the test above: the new member is believed further than its data are there.
#[test]
fn a_recovery_offset_that_promises_too_much_is_noticed() {
    for (seed, shape) in (1..).zip([shapes::RAID1, shapes::RAID5, shapes::RAID6, shapes::RAID10]) {
        let shape = Shape { member_sectors: 16_384, ..shape };
        let mut world = World::synced(Setup::shuffled(shape, 900 + seed));
        let new = usize::from(shape.disks);
        world.fail(0);
        world.remove(0);
        world.add(new).unwrap();
        world.rounds(20);
        world.stop();
        let mut superblock = world.disks.superblock(new).unwrap();
        assert!(superblock.recovery_offset_sectors.is_some_and(|done| done < 15_000), "{world}");
        superblock.recovery_offset_sectors = Some(16_000);
        let (at, bytes) = (superblock.place.sector as usize * SECTOR, superblock.encode());
        world.disks.disk(new).bytes[at..at + bytes.len()].copy_from_slice(&bytes);
        world.assemble_all().unwrap();
        world.wait_idle();
        assert!(world.check() > 0, "{world}");
    }
}
