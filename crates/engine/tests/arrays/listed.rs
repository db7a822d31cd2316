//! Members with bad blocks on their list: what lies there is not to be believed, though the device
//! reads it without an error.

use mdspace_engine::array::Action;
use mdspace_engine::geometry::Level;
use mdspace_engine::request::RequestError;
use mdspace_engine::status::MemberState;
use mdspace_format::{BadBlocks, Features};

use crate::shapes::{self, Shape};
use crate::world::{SECTOR, Setup, World};

/// Lists some sectors of a stopped array's member, and spoils what is there.
fn list_and_spoil(world: &mut World, disk: usize, listed: bool) {
    let mut superblock = world.disks.superblock(disk).unwrap();
    let log = superblock.bad_block_log.expect("every member has a log");
    let mut blocks = BadBlocks::new();
    for sectors in [3..5, 20..30, 100..120] {
        let data = superblock.data_offset_sectors;
        blocks.add(data + sectors.start..data + sectors.end);
        for byte in (data + sectors.start) as usize * SECTOR..(data + sectors.end) as usize * SECTOR
        {
            world.disks.disk(disk).bytes[byte] ^= 0x5a;
        }
    }
    if !listed {
        return;
    }
    let start = superblock.bad_block_log_range().unwrap().start as usize * SECTOR;
    let bytes = blocks.encode(log.size_sectors, log.shift).unwrap();
    superblock.features = superblock.features.with(Features::BAD_BLOCKS, true);
    let at = superblock.place.sector as usize * SECTOR;
    let mut disk = world.disks.disk(disk);
    disk.bytes[start..start + bytes.len()].copy_from_slice(&bytes);
    disk.bytes[at..at + 4096].copy_from_slice(&superblock.encode());
}

fn with_a_list(shape: Shape, seed: u64) -> World {
    let mut world = World::synced(Setup::shuffled(shape, seed));
    world.write_many(5);
    world.stop();
    list_and_spoil(&mut world, 0, true);
    world.assemble_all().unwrap();
    world
}

#[test]
fn what_is_listed_is_read_from_elsewhere() {
    for (seed, shape) in (1..).zip(shapes::redundant()) {
        let mut world = with_a_list(shape, seed);
        assert_eq!(world.status().members[0].bad_ranges, 3, "{world}");
        world.verify();
        assert_eq!(world.check(), 0, "{world}");
        assert_eq!(world.repair(), 0, "{world}");
        world.verify();
        assert_eq!(world.member_state(0), Some(MemberState::InSync), "{world}");
    }
}

#[test]
#[should_panic(expected = "is wrong")]
fn without_the_list_it_would_be_believed() {
    let mut world = World::synced(Setup::new(shapes::RAID1, 1));
    world.stop();
    list_and_spoil(&mut world, 0, false);
    world.assemble_all().unwrap();
    world.verify();
}

/// The list cannot be changed yet, so a member that should take a write there is done without.
#[test]
fn a_write_into_what_is_listed_fails_the_member() {
    for (seed, shape) in (50..).zip(shapes::redundant()) {
        let mut world = with_a_list(shape, seed);
        world.write_random(0, world.sectors());
        assert_eq!(world.member_state(0), Some(MemberState::Faulty), "{world}");
        world.verify();
        world.restart();
        world.verify();
    }
}

#[test]
fn a_degraded_array_gives_up_what_is_listed_and_nothing_else() {
    let mut world = with_a_list(shapes::RAID5, 90);
    world.fail(1);
    let mut lost = 0;
    for sector in 0..world.sectors() {
        match world.read(sector, 1) {
            Ok(bytes) => world.compare(sector, &bytes),
            Err(error) => {
                assert_eq!(error, RequestError::Lost);
                lost += 1;
            }
        }
    }
    // Listed data, and the data of the lost member that need it.
    assert!((32..=64).contains(&lost), "{lost} sectors are lost");
}

#[test]
fn a_rebuild_on_two_parities_passes_what_is_listed() {
    let mut world = with_a_list(shapes::RAID6, 91);
    world.fail(1);
    world.add(5).unwrap();
    world.wait_idle();
    assert_eq!(world.member_state(5), Some(MemberState::InSync));
    world.fail(2);
    world.fail(0);
    world.verify();
}

#[test]
fn without_redundancy_what_is_listed_takes_and_gives_nothing() {
    for (seed, shape) in
        (95..).zip([Shape::new(Level::Raid0, 1, 2, 8), Shape::new(Level::Linear, 0, 2, 0)])
    {
        let mut world = with_a_list(shape, seed);
        assert_eq!(world.read(3, 1), Err(RequestError::Lost), "{world}");
        let bytes = vec![1; SECTOR];
        assert_eq!(world.write(3, bytes), Err(RequestError::Lost), "{world}");
        assert_eq!(world.read(3, 1), Err(RequestError::Lost), "{world}");
        world.write_random(5, 3);
        let found = world.read(5, 3).unwrap();
        world.compare(5, &found);
    }
}

#[test]
fn a_listed_member_is_resynced_around_its_list() {
    for (seed, shape) in (100..).zip([shapes::RAID1, shapes::RAID10, shapes::RAID6]) {
        let mut world = with_a_list(shape, seed);
        world.write_random(150, 4);
        world.crash();
        world.assemble_all().unwrap();
        world.wait_idle();
        world.verify();
        world.command(Action::Check).unwrap();
        world.wait_idle();
        assert_eq!(world.status().mismatch_sectors, 0, "{world}");
    }
}
