//! The stripe cache: what it spares, what it costs, and that nobody reads anything old from it.

use std::rc::Rc;

use mdspace_engine::array::Action;
use mdspace_engine::array::settings::StartSettings;
use mdspace_engine::assembly::Options;
use mdspace_engine::backend::IoErrorKind;
use mdspace_engine::geometry::Level;
use mdspace_engine::request::Request;

use crate::shapes::Shape;
use crate::world::{Setup, World};

/// RAID6 of four data disks and two of parity: chunks of 64 KiB, eight rows.
fn raid6() -> Shape {
    let shape = Shape::new(Level::Raid6, 2, 6, 128).without_bitmap();
    Shape { member_sectors: 1024, ..shape }
}

/// The same of RAID5, which has one of parity.
fn raid5() -> Shape {
    let shape = Shape::new(Level::Raid5, 2, 5, 128).without_bitmap();
    Shape { member_sectors: 1024, ..shape }
}

/// A synced array, dirty already.
fn world(seed: u64) -> World {
    world_of(raid6(), seed)
}

fn world_of(shape: Shape, seed: u64) -> World {
    let mut world = World::synced(Setup::new(shape, seed));
    world.write_random(4000, 8);
    world.disks.reset_counts();
    world
}

/// Bytes that members read and wrote since the counts were reset.
fn traffic(world: &World) -> (u64, u64) {
    let bytes =
        |ios: &[std::ops::Range<u64>]| ios.iter().map(|io| (io.end - io.start) * 512).sum::<u64>();
    let disks = 0..usize::from(world.shape().disks);
    disks.fold((0, 0), |(read, written), index| {
        let disk = world.disks.disk(index);
        (read + bytes(&disk.reads), written + bytes(&disk.writes))
    })
}

fn value(world: &World, key: &str) -> u32 {
    let values = world.array().setting_values();
    let found = values.iter().find(|(name, _)| *name == key).expect("a key of parity levels");
    found.1.parse().expect("a number")
}

/// Writes a few blocks often enough that their stripes are kept.
fn warm(world: &mut World) {
    for _ in 0..3 {
        (0..16).for_each(|block| world.write_random(block * 24, 8));
    }
    world.disks.reset_counts();
}

#[test]
fn writing_a_small_area_again_reads_nothing() {
    for (shape, parity) in [(raid6(), 2), (raid5(), 1)] {
        let mut world = world_of(shape, 1);
        warm(&mut world);
        for _ in 0..4 {
            (0..16).for_each(|block| world.write_random(block * 24, 8));
            // Less than a unit needs the old block, which is known too.
            (0..16).for_each(|block| world.write_random(block * 24 + 3, 2));
        }
        let (read, written) = traffic(&world);
        assert_eq!((read, written), (0, 4 * 2 * 16 * (1 + parity) * 4096));
        world.verify();
        assert_eq!(world.check(), 0);
    }
}

#[test]
fn without_room_in_the_cache_old_blocks_are_read() {
    let mut world = world(1);
    warm(&mut world);
    world.array().set("stripe_cache_size", "17").unwrap();
    assert!(value(&world, "stripe_cache_active") <= 17);
    world.disks.reset_counts();
    (0..160).for_each(|block| world.write_random(block * 24, 8));
    assert!(traffic(&world).0 > 0);
    world.verify();
    assert_eq!(world.check(), 0);
}

/// Of the first row, which holds the small area: a data block and Q.
const DATA_DISK: usize = 1;
const Q_DISK: usize = 0;

#[test]
fn a_degraded_array_finds_lost_blocks_in_the_cache() {
    for disk in [DATA_DISK, Q_DISK] {
        let mut world = world(2);
        for _ in 0..3 {
            world.fail_if_whole(disk);
            (0..16).for_each(|block| world.write_random(block * 24, 8));
        }
        world.disks.reset_counts();
        (0..16).for_each(|block| world.write_random(block * 24 + 1, 1));
        let (read, _) = traffic(&world);
        assert_eq!(read, 0);
        world.verify();
        world.add(6).unwrap();
        world.wait_idle();
        world.verify();
        assert_eq!(world.check(), 0);
    }
}

/// Every block of the small area, read in parts of a block, in blocks and over several of them.
fn read_small_area(world: &mut World) {
    for block in 0..16 {
        for (first, sectors) in [(3, 2), (0, 8), (7, 1)] {
            let (sector, bytes) = (block * 24 + first, sectors as usize * 512);
            let at = sector as usize * 512;
            let found = world.read(sector, sectors).unwrap();
            assert_eq!(found, world.model[at..at + bytes], "{sectors} at {sector}");
        }
    }
}

#[test]
fn a_degraded_array_reads_lost_blocks_from_the_cache() {
    let mut world = world(10);
    for _ in 0..3 {
        world.fail_if_whole(DATA_DISK);
        (0..16).for_each(|block| world.write_random(block * 24, 8));
    }
    world.disks.reset_counts();
    read_small_area(&mut world);
    let (warm, _) = traffic(&world);
    // Other stripes take the place of these.
    world.array().set("stripe_cache_size", "17").unwrap();
    for _ in 0..3 {
        (80..160).for_each(|block| world.write_random(block * 24, 8));
    }
    world.disks.reset_counts();
    read_small_area(&mut world);
    let (cold, _) = traffic(&world);
    // Six of the blocks were on that disk: four others are read for each of their eleven sectors.
    assert_eq!(cold - warm, 6 * 4 * 11 * 512);
    world.verify();
}

#[test]
fn a_lost_block_that_is_cached_in_part_is_computed() {
    let mut world = world(11);
    world.fail_if_whole(DATA_DISK);
    // Every other unit of the first row's blocks comes back; reads go over both kinds.
    for _ in 0..3 {
        (0..32).for_each(|unit| world.write_random(unit * 16, 8));
    }
    assert!(value(&world, "stripe_cache_active") > 0);
    for sector in 0..200 {
        let found = world.read(sector, 19).unwrap();
        let at = sector as usize * 512;
        assert_eq!(found, world.model[at..at + 19 * 512], "{sector}");
    }
    world.verify();
}

#[test]
fn writes_that_do_not_come_back_leave_nothing_and_copy_nothing() {
    let mut world = world(3);
    let before = world.copied_bytes();
    // Every stripe once: seven rows of sixteen.
    (0..112).for_each(|stripe| world.write_random(stripe / 16 * 512 + stripe % 16 * 8, 8));
    assert_eq!(world.copied_bytes(), before);
    assert_eq!(value(&world, "stripe_cache_active"), 0);
    assert_eq!(world.array().stripe_cache_bytes(), 0);
}

#[test]
fn its_memory_is_bounded_by_its_size() {
    let mut world = world(4);
    world.array().set("stripe_cache_size", "20").unwrap();
    for _ in 0..3 {
        (0..128).for_each(|block| world.write_random(block * 8, 8));
        let active = value(&world, "stripe_cache_active");
        assert!((10..=20).contains(&active), "{active}");
        assert!(world.array().stripe_cache_bytes() <= active as usize * 6 * 4096);
    }
}

#[test]
fn check_and_repair_look_at_the_members_and_not_at_the_cache() {
    let mut world = world(5);
    warm(&mut world);
    assert!(value(&world, "stripe_cache_active") > 0);
    // The first row's parity goes bad under the cache.
    let parity = world.disks.data().start + 3;
    for disk in 0..6 {
        world.disks.disk(disk).bytes[parity as usize * 512] ^= u8::from(disk > 3);
    }
    assert!(world.check() > 0);
    assert!(world.repair() > 0);
    assert_eq!(value(&world, "stripe_cache_active"), 0, "a repair leaves nothing of it");
    assert_eq!(world.check(), 0);
    warm(&mut world);
    world.learn();
    world.verify();
    assert_eq!(world.check(), 0);
}

#[test]
fn what_discard_and_zeroes_do_is_not_undone_by_the_cache() {
    for zeroes in [false, true] {
        let mut world = world(6);
        warm(&mut world);
        let request = match zeroes {
            true => Request::WriteZeroes { sector: 0, sectors: 512, fua: false },
            false => Request::Discard { sector: 0, sectors: 512 },
        };
        world.serve(0, request).unwrap();
        world.remember(0, &[0; 512 * 512]);
        (0..16).for_each(|block| world.write_random(block * 24 + 2, 1));
        world.verify();
        assert_eq!(world.check(), 0);
    }
}

#[test]
fn a_failed_round_leaves_nothing_behind() {
    for disk in 0..6 {
        let mut world = world(7);
        warm(&mut world);
        world.disks.disk(disk).write_error = Some(IoErrorKind::Medium);
        let from = Rc::new(world.random.bytes(4096));
        world.remember(0, &from);
        world.serve(0, Request::Write { sector: 0, from, fua: false }).unwrap();
        world.disks.disk(disk).write_error = None;
        for _ in 0..2 {
            (0..16).for_each(|block| world.write_random(block * 24, 7));
        }
        world.verify();
        world.wait_idle();
        if world.check() > 0 {
            panic!("disk {disk}: parity is wrong");
        }
    }
}

/// A write for which one member has no space fails, and whatever it would have left in the cache is not
/// found there when that member is lost before a resync has been there.
#[test]
fn a_round_without_space_leaves_nothing_behind() {
    for disk in 0..6 {
        let mut world = world(12);
        warm(&mut world);
        world.command(Action::Freeze).unwrap();
        let data = world.disks.data();
        {
            let mut disk = world.disks.disk(disk);
            (disk.write_error, disk.errors_in) = (Some(IoErrorKind::NoSpace), Some(data));
        }
        let from = Rc::new(world.random.bytes(4096));
        let written = world.serve(0, Request::Write { sector: 0, from, fua: false });
        world.disks.disk(disk).plug();
        let seen = world.read(0, 8).unwrap();
        world.remember(0, &seen);
        if written.is_err() {
            let active = value(&world, "stripe_cache_active");
            assert_eq!(active, 15, "disk {disk}: the stripe of the failed round is gone");
        }
        (0..16).for_each(|block| world.write_random(block * 24 + 1, 2));
        world.verify();
        world.command(Action::Idle).unwrap();
        world.wait_idle();
        assert_eq!(world.check(), 0, "disk {disk}");
    }
}

#[test]
fn the_unit_is_what_members_read_and_write() {
    for unit in [4096, 65536] {
        let mut world = World::new(Setup::new(raid6(), 8));
        world.create(|_| true);
        let mut settings = StartSettings::default();
        settings.set("stripe_size", &unit.to_string()).unwrap();
        let all: Vec<usize> = (0..world.disks.count()).collect();
        world.assemble(&all, &Options { run: true, settings, ..Options::default() }).unwrap();
        world.wait_idle();
        world.learn();
        world.write_random(4000, 8);
        world.disks.reset_counts();
        world.write_random(520, 8);
        assert_eq!(traffic(&world), (3 * unit, 3 * unit), "three blocks in, three out");
        world.disks.reset_counts();
        world.write_random(1024, 512);
        assert_eq!(traffic(&world), (0, 6 * 65536), "a whole row");
        // Nor is anything else cached than units.
        for _ in 0..3 {
            world.write_random(2048, 8);
        }
        assert_eq!(world.array().stripe_cache_bytes() as u64 % unit, 0);
        assert_eq!(value(&world, "stripe_cache_active"), 1);
        world.verify();
        assert_eq!(world.check(), 0);
    }
}

#[test]
fn sizes_that_it_cannot_have_are_refused_with_those_it_can() {
    let world = world(9);
    for wrong in ["16", "262145", "-1", "many", ""] {
        let refused = world.array().set("stripe_cache_size", wrong).unwrap_err().to_string();
        assert!(refused.contains("17 to 262144"), "{refused}");
    }
    assert!(world.array().set("stripe_cache_active", "1").is_err());
    assert_eq!(value(&world, "stripe_cache_size"), 256);
    world.array().set("stripe_cache_size", "262144").unwrap();
    assert_eq!(value(&world, "stripe_cache_size"), 262_144);
}

#[test]
fn a_lost_block_is_computed_where_it_was_asked_for() {
    let mut world = world(5);
    world.write_many(4);
    world.fail(DATA_DISK);
    let before = world.copied_bytes();
    world.verify();
    assert_eq!(world.copied_bytes(), before);
    // With two blocks of a row lost, the other one is in the way.
    world.fail(DATA_DISK + 1);
    world.verify();
    assert!(world.copied_bytes() > before);
}
