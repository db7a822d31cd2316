//! Power cuts in which disks lose what they were not told to flush.

use std::rc::Rc;

use mdspace_engine::assembly::{Options, Refusal};
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

/// What was answered before lies in the caches of the others, and the start's own update must not say clean over it: when
/// power fails then, a plain assembly would compute the block of the missing member by parity that is gone.
#[test]
fn a_start_by_force_says_clean_only_of_what_is_flushed() {
    let disks = 0..usize::from(shapes::RAID5.disks);
    let pairs = disks.clone().flat_map(|missing| disks.clone().map(move |cut| (missing, cut)));
    let (mut refused, mut started) = (0, 0);
    for (seed, (missing, cut)) in (60..).zip(pairs.filter(|(missing, cut)| missing != cut)) {
        let mut world = World::synced(Setup::new(shapes::RAID5, seed));
        world.write_random(0, world.sectors());
        world.serve(0, Request::Flush).unwrap();
        world.wait_clean();
        world.write_random(0, 1);
        world.crash();
        let others: Vec<usize> = disks.clone().filter(|disk| *disk != missing).collect();
        world.assemble(&others, &Options { run: true, force: true, ..Options::default() }).unwrap();
        world.wait_status("a start", |status| status.degraded() == 1);
        world.power_cut([cut]);
        match world.assemble(&others, &Options { run: true, ..Options::default() }) {
            Err(Refusal::DirtyDegraded) => refused += 1,
            Err(why) => panic!("{why} ({world}, {missing}, {cut})"),
            Ok(_) => {
                started += 1;
                // The one that was not flushed may be old.
                world.verify_each(1..world.sectors());
            }
        }
    }
    println!("{refused} refused, {started} started");
}
