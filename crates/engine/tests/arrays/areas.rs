//! Metadata that lie close to one another on a member: none is written over another, or over data.

use mdspace_format::MetadataVersion;

use crate::shapes::{self, Shape};
use crate::world::{Setup, World};

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
