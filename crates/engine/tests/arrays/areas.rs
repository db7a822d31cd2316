//! Metadata that lie close to one another on a member: none is written over another, or over data.

use mdspace_engine::assembly::{Options, Refusal};
use mdspace_engine::geometry::Level;
use mdspace_format::{BadBlocks, Features, MetadataVersion};

use crate::shapes::{self, Shape};
use crate::world::{SECTOR, Setup, World};

/// `mdadm --grow --bitmap=internal` puts the bitmap of version 1.0 into what the superblock leaves of its 4 KiB.
fn with_a_bitmap_behind_the_superblock(seed: u64) -> World {
    let mut world =
        World::synced(Setup::new(Shape { version: MetadataVersion::V1_0, ..shapes::RAID5 }, seed));
    world.stop();
    world.crash();
    for disk in 0..4 {
        let bitmap = world.disks.bitmap(disk).expect("a bitmap");
        world.disks.change_superblock(disk, |superblock| superblock.bitmap_offset_sectors = 2);
        world.disks.put_bitmap(disk, &bitmap);
    }
    world.assemble_all().unwrap();
    world
}

#[test]
fn a_superblock_does_not_lie_over_the_bitmap_behind_it() {
    let mut world = with_a_bitmap_behind_the_superblock(1);
    world.write_random(0, 8);
    assert_eq!(world.disks.bitmap(1).expect("it is in use").1.count(), 1, "{world}");
    world.stop();
    world.crash();
    for disk in 0..4 {
        assert!(world.disks.bitmap(disk).is_some(), "no bitmap on disk {disk} ({world})");
    }
    world.assemble_all().unwrap();
    world.write_random(0, 8);
    world.add(4).unwrap();
    world.fail(1);
    world.wait_idle();
    world.verify();
    for disk in [0, 2, 3, 4] {
        assert!(world.disks.bitmap(disk).is_some(), "no bitmap on disk {disk} ({world})");
    }
}

/// md takes any place for a bitmap (`bitmap/location`), before the bad-block log or behind it.
#[test]
fn a_new_member_keeps_its_areas_apart_wherever_the_bitmap_lies() {
    for (seed, offset) in (10..).zip([8, 12, 16, 20, 24]) {
        let mut world = World::synced(Setup::new(shapes::RAID1, seed));
        world.stop();
        world.crash();
        for disk in 0..3 {
            let bitmap = world.disks.bitmap(disk).expect("a bitmap");
            world.disks.change_superblock(disk, |superblock| {
                superblock.bitmap_offset_sectors = offset;
                superblock.bad_block_log = None;
            });
            world.disks.put_bitmap(disk, &bitmap);
        }
        world.assemble_all().unwrap();
        world.fail(0);
        world.remove(0);
        world.add(3).unwrap();
        world.wait_idle();
        world.write_random(0, 8);
        let added = world.disks.superblock(3);
        let added =
            added.unwrap_or_else(|| panic!("it cannot be parsed, offset {offset} ({world})"));
        assert_eq!(added.validate(world.disks.info(3).sectors), Ok(()), "offset {offset}");
        assert!(world.disks.bitmap(3).is_some(), "offset {offset} ({world})");
        world.restart();
        world.fail(1);
        world.fail(2);
        world.verify();
    }
}

/// Its own bitmap is damaged, so that its size is that of the others'.
#[test]
fn a_bitmap_that_has_no_room_on_a_member_is_not_written_over_what_lies_behind() {
    let shape = Shape { member_sectors: 20_000, ..Shape::new(Level::Raid1, 0, 2, 0) };
    let mut world = World::synced(Setup::new(shape, 20));
    world.stop();
    world.crash();
    let mut listed = BadBlocks::new();
    listed.add(100..108);
    let mut log = Vec::new();
    world.disks.change_superblock(1, |superblock| {
        let place = superblock.bad_block_log.as_mut().expect("a log");
        place.offset_sectors = superblock.bitmap_offset_sectors + 1;
        log = listed.encode(place.size_sectors, 0).expect("there is room");
        superblock.features = superblock.features.with(Features::BAD_BLOCKS, true);
    });
    let place = world.disks.superblock(1).unwrap().bad_block_log_range().unwrap();
    let at = place.start as usize * SECTOR;
    world.disks.disk(1).bytes[at..at + log.len()].copy_from_slice(&log);
    let run = Options { run: true, ..Options::default() };
    let refused = world.assemble(&[0, 1], &run);
    if refused.is_ok() {
        // Its bit does not lie in the sector of the header.
        world.write_random(19_000, 8);
        assert!(world.disks.disk(1).bytes[at..at + log.len()] == log, "its log is gone ({world})");
    }
    assert!(matches!(refused, Err(Refusal::NoRoomForBitmap { .. })), "{refused:?}");
    world.assemble(&[0], &run).unwrap();
    world.verify();
}

/// The others' bitmap has become larger than its room while it was away.
#[test]
fn a_spare_without_room_for_the_bitmap_keeps_no_array_from_starting() {
    let shape = Shape { member_sectors: 20_000, ..Shape::new(Level::Raid1, 0, 2, 0) };
    let mut world = World::synced(Setup::new(shape, 21));
    world.add(2).unwrap();
    world.stop();
    world.crash();
    world.disks.change_superblock(2, |superblock| {
        let place = superblock.bad_block_log.as_mut().expect("a log");
        place.offset_sectors = superblock.bitmap_offset_sectors + 1;
    });
    let left_out = world.assemble_all().unwrap();
    assert!(matches!(&left_out[..], [spare] if spare.member == "disk2"), "{left_out:?}");
    world.verify();
}
