//! Members with bad blocks on their list: what lies there is not to be believed, though the device
//! reads it without an error.

use mdspace_engine::array::Action;
use mdspace_engine::backend::IoErrorKind;
use mdspace_engine::geometry::{Geometry, Level, Slot};
use mdspace_engine::request::{Request, RequestError};
use mdspace_engine::status::{MemberState, SyncEnd};
use mdspace_format::{BadBlocks, Features};

use crate::shapes::{self, Shape};
use crate::world::{SECTOR, Setup, World};

/// Lists some sectors of a stopped array's member, and spoils what is there.
pub(crate) fn list_and_spoil(world: &mut World, disk: usize, listed: bool) {
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

pub(crate) fn with_a_list(shape: Shape, seed: u64) -> World {
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

/// What a stopped array's member has on its list, from its data offset.
pub(crate) fn listed(world: &World, disk: usize) -> Vec<std::ops::Range<u64>> {
    let superblock = world.disks.superblock(disk).unwrap();
    let log = superblock.bad_block_log.unwrap();
    let start = superblock.bad_block_log_range().unwrap().start as usize * SECTOR;
    let length = usize::from(log.size_sectors) * SECTOR;
    let disk = world.disks.disk(disk);
    let blocks = BadBlocks::parse(&disk.bytes[start..start + length], log.shift).unwrap();
    assert!(blocks.is_empty() || superblock.features.contains(Features::BAD_BLOCKS));
    let data = superblock.data_offset_sectors;
    blocks.ranges().iter().map(|bad| bad.start - data..bad.end - data).collect()
}

#[test]
fn a_write_into_what_is_listed_takes_it_off_the_list() {
    for (seed, shape) in (50..).zip(shapes::redundant()) {
        let mut world = with_a_list(shape, seed);
        world.write_random(0, world.sectors());
        let status = world.status();
        assert_eq!(status.degraded(), 0, "{world}");
        // What holds no data, as behind the last chunk of an odd RAID10, is not written.
        let left = u64::from(status.members[0].bad_ranges);
        world.verify();
        world.stop();
        assert_eq!(listed(&world, 0).len() as u64, left, "{world}");
        assert!(left == 0 || !shape.level.has_parity(), "{world}");
        world.assemble_all().unwrap();
        world.verify();
        assert_eq!(world.check(), 0, "{world}");
        if left == 0 {
            (0..shape.can_lose()).for_each(|disk| world.fail(disk + 1));
            world.verify();
        }
    }
}

/// Else a power cut takes what was written, and nothing says that what is below it is not to be believed.
#[test]
fn a_block_leaves_its_list_when_what_was_written_there_is_durable() {
    for (seed, shape) in (90..).zip([shapes::RAID1, shapes::RAID10]) {
        let mut world = with_a_list(shape, seed);
        let old = world.model[..8 * SECTOR].to_vec();
        let new = world.random.bytes(8 * SECTOR);
        world.write(0, new.clone()).unwrap();
        world.until("a shorter list", |world| !listed(world, 0).contains(&(3..5)));
        world.power_cut(0..world.disks.count());
        world.assemble_all().unwrap();
        (1..=shape.can_lose()).for_each(|disk| world.fail(disk));
        let found = world.read(3, 2).unwrap();
        let is = |bytes: &[u8]| found == bytes[3 * SECTOR..5 * SECTOR];
        assert!(is(&old) || is(&new), "{world}");
    }
}

#[test]
fn a_write_that_is_refused_where_it_is_listed_leaves_it_there() {
    for (seed, shape) in (60..).zip([shapes::RAID1, shapes::RAID5, shapes::RAID10]) {
        let mut world = with_a_list(shape, seed);
        let data = world.disks.data();
        world.disks.disk(0).write_error = Some(IoErrorKind::Medium);
        world.disks.disk(0).errors_in = Some(data.start + 20..data.start + 30);
        world.write_random(0, world.sectors());
        assert_eq!(world.member_state(0), Some(MemberState::InSync), "{world}");
        world.verify();
        world.stop();
        assert!(listed(&world, 0).contains(&(20..30)), "{:?} ({world})", listed(&world, 0));
    }
}

#[test]
fn a_repair_writes_what_is_listed_and_takes_it_off() {
    for (seed, shape) in (70..).zip([shapes::RAID1, shapes::RAID5, shapes::RAID6]) {
        let mut world = with_a_list(shape, seed);
        world.repair();
        assert_eq!(world.status().members[0].bad_ranges, 0, "{world}");
        assert_eq!(world.check(), 0, "{world}");
        world.stop();
        assert!(listed(&world, 0).is_empty(), "{world}");
        world.assemble_all().unwrap();
        world.fail(1);
        world.verify();
    }
}

/// Makes sectors of a disk unreadable for good, counted from its data.
fn spoil(world: &World, disk: usize, sectors: impl IntoIterator<Item = u64>) {
    let start = world.disks.data().start;
    let mut disk = world.disks.disk(disk);
    disk.unreadable.extend(sectors.into_iter().map(|sector| start + sector));
    disk.unreadable_for_good = true;
}

#[test]
fn what_a_rewrite_does_not_mend_is_listed_and_nothing_else() {
    for (seed, shape) in (200..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_many(5);
        let block = u64::from(shape.block_bytes / 512);
        spoil(&world, 0, [16, 17, 40]);
        world.verify();
        world.repair();
        world.verify();
        assert_eq!(world.status().degraded(), 0, "{world}");
        world.stop();
        let grown = |range: std::ops::Range<u64>| {
            range.start / block * block..range.end.next_multiple_of(block)
        };
        let found = listed(&world, 0);
        for bad in &found {
            let meant = [grown(16..18), grown(40..41)];
            assert!(meant.iter().any(|range| range.contains(&bad.start)), "{bad:?} ({world})");
        }
        assert!(!shape.level.has_parity() || !found.is_empty(), "{world}");
        world.assemble_all().unwrap();
        world.verify();
    }
}

#[test]
fn a_member_whose_list_is_full_is_failed() {
    let shape = Shape { member_sectors: 2048, ..shapes::RAID1.without_bitmap() };
    for (every, state) in [(8, MemberState::InSync), (2, MemberState::Faulty)] {
        let mut world = World::synced(Setup::new(shape, 300));
        world.set("max_read_errors", "100000");
        world.set("read_policy", "first");
        spoil(&world, 0, (0..2048).step_by(every));
        for start in (0..2048).step_by(64) {
            let bytes = world.read(start, 64).unwrap();
            world.compare(start, &bytes);
        }
        world.rounds(100);
        assert_eq!(world.member_state(0), Some(state), "one in {every}");
        world.verify();
    }
}

/// RAID5 and a mirror of two, one member gone, and sectors of another that nobody can read.
#[test]
fn a_rebuild_goes_on_around_what_nobody_can_read() {
    let mirror = Shape::new(Level::Raid1, 0, 2, 0);
    let raid10 = shapes::RAID10;
    for (seed, shape) in (400..).zip([shapes::RAID5, mirror, raid10]) {
        for bitmap in [true, false] {
            let mut world = World::synced(Setup::shuffled(Shape { bitmap, ..shape }, seed));
            world.write_many(5);
            world.wait_clean();
            world.fail(1);
            spoil(&world, 0, [5, 100, 101]);
            world.add(usize::from(shape.disks)).unwrap();
            world.wait_idle();
            let status = world.status();
            assert_eq!(status.degraded(), 0, "{world}");
            let spare = status.members.iter().find(|member| member.slot == Some(1)).unwrap();
            assert_eq!(spare.bad_ranges, 2, "{world}");
            let mut lost = Vec::new();
            for sector in 0..world.sectors() {
                match world.read(sector, 1) {
                    Ok(bytes) => world.compare(sector, &bytes),
                    Err(RequestError::Lost) => lost.push(sector),
                    Err(error) => panic!("{error} ({world})"),
                }
            }
            let status = world.status();
            let told: Vec<u64> = status.lost.first.iter().cloned().flatten().collect();
            assert!(!lost.is_empty(), "{world}");
            assert_eq!(told, lost, "{world}");
            // A write of whole rows makes them whole again, if the drive takes it.
            world.disks.disk(0).unreadable_for_good = false;
            world.write_random(0, world.sectors());
            world.verify();
            assert_eq!(world.status().lost.sectors, 0, "{world}");
        }
    }
}

#[test]
fn a_member_with_too_many_read_errors_in_an_hour_is_failed() {
    for (most, state) in [("20", MemberState::InSync), ("3", MemberState::Faulty)] {
        for shape in [shapes::RAID1, shapes::RAID6] {
            let mut world = World::synced(Setup::new(shape, 500));
            world.set("max_read_errors", most);
            for turn in 0..8 {
                let start = world.disks.data().start;
                world.disks.disk(0).unreadable.extend(start..start + 64);
                world.read(turn * 8, 8).unwrap();
                world.verify();
            }
            world.rounds(50);
            let errors = world.status().members[0].corrected_errors;
            if most == "3" || errors <= 20 {
                assert_eq!(world.member_state(0), Some(state), "{errors} errors ({world})");
            }
            assert!(errors > 3, "{errors}");
        }
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
        for punch in [
            Request::Punch { sector: 2, sectors: 4 },
            Request::WriteZeroes { sector: 2, sectors: 4, fua: false },
        ] {
            assert_eq!(world.serve(0, punch), Err(RequestError::Lost), "no zeroes ({world})");
        }
        // It promises nothing.
        world.serve(0, Request::Discard { sector: 2, sectors: 4 }).unwrap();
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

/// Each member lacks a sector of the same unit, and none of them lacks one that another lacks.
fn spoil_each_elsewhere(world: &World, shape: &Shape) {
    for disk in 0..usize::from(shape.disks) {
        let at = disk as u64 * u64::from(shape.block_bytes / 512);
        spoil(world, disk, [at, at + 40, at + 104]);
    }
}

#[test]
fn what_one_member_lacks_here_and_another_there_is_all_read() {
    for (seed, shape) in (600..).zip(shapes::redundant()) {
        for length in [1, 8, 24, 200] {
            let mut world = World::synced(Setup::shuffled(shape, seed));
            world.set("max_read_errors", "100000");
            world.write_many(5);
            let block = u64::from(shape.block_bytes / 512);
            spoil_each_elsewhere(&world, &shape);
            let mut at = 0;
            while at < world.sectors() {
                let sectors = (length * block).min(world.sectors() - at);
                let found = world.read(at, sectors);
                let found = found.unwrap_or_else(|e| panic!("{at}+{sectors}: {e} ({world})"));
                world.compare(at, &found);
                at += sectors;
            }
            assert_eq!(world.check(), 0, "{world}");
            assert_eq!(world.status().sync.last_end, Some(SyncEnd::Complete), "{world}");
            assert_eq!(world.repair(), 0, "{world}");
            assert_eq!(world.status().sync.last_end, Some(SyncEnd::Complete), "{world}");
            assert_eq!(world.status().degraded(), 0, "{world}");
            assert_eq!(world.status().lost.sectors, 0, "{world}");
            world.verify();
        }
    }
}

/// Writes smaller than a unit need its old bytes.
#[test]
fn writes_go_round_what_one_member_lacks_here_and_another_there() {
    for (seed, shape) in (700..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.set("max_read_errors", "100000");
        spoil_each_elsewhere(&world, &shape);
        let block = u64::from(shape.block_bytes / 512);
        for at in (0..world.sectors() / block).step_by(5) {
            world.write_random(at * block, block);
        }
        world.verify();
        assert_eq!(world.status().degraded(), 0, "{world}");
        (0..usize::from(shape.disks)).for_each(|disk| world.disks.disk(disk).unreadable.clear());
        world.repair();
        assert_eq!(world.check(), 0, "{world}");
        (0..shape.can_lose()).for_each(|disk| world.fail(disk));
        world.verify();
    }
}

/// A degraded array, each of whose members lacks a sector: what is lost is what the arithmetic says, and
/// neighbours in the same unit are not.
#[test]
fn an_error_is_for_what_is_lost_and_for_nothing_beside_it() {
    for (seed, shape) in (800..).zip([shapes::RAID5, shapes::RAID6]) {
        let shape = Shape { block_bytes: 512, ..shape };
        let mut world = World::synced(Setup::new(shape, seed));
        world.write_many(5);
        world.set("max_read_errors", "100000");
        let gone = shape.can_lose();
        (0..gone).for_each(|disk| world.fail(disk));
        for disk in gone..usize::from(shape.disks) {
            spoil(&world, disk, [2 * disk as u64]);
        }
        let mut lost = Vec::new();
        for sector in 0..world.sectors() {
            match world.read(sector, 1) {
                Ok(bytes) => world.compare(sector, &bytes),
                Err(RequestError::Lost) => lost.push(sector),
                Err(error) => panic!("{error} ({world})"),
            }
        }
        // All of it in row 0: what it lacks, and what those that are gone had beside it.
        let Geometry::Parity(map) = Geometry::new(&world.map()).unwrap() else {
            panic!("a parity level")
        };
        let row = map.row(0);
        let expected: std::collections::BTreeSet<u64> = (gone..usize::from(shape.disks))
            .flat_map(|disk| {
                let lacking = (0..gone).chain([disk]).map(|slot| Slot(slot as u16));
                lacking.map(move |slot| (slot, 2 * disk as u64)).collect::<Vec<_>>()
            })
            .filter(|(slot, _)| *slot != row.p() && Some(*slot) != row.q())
            .filter_map(|(slot, sector)| map.inverse(slot, sector))
            .collect();
        assert!(lost.iter().copied().eq(expected.iter().copied()), "{lost:?}, not {expected:?}");
        let told = world.status().lost;
        assert_eq!(told.sectors, lost.len() as u64, "{told:?}, not {lost:?}");
    }
}

/// The count of an hour is half of the next one's: errors that are far apart fail nobody.
#[test]
fn read_errors_that_are_hours_apart_fail_no_member() {
    for (hours, state) in [(2, MemberState::InSync), (0, MemberState::Faulty)] {
        let mut world = World::synced(Setup::new(shapes::RAID6, 900));
        world.set("max_read_errors", "6");
        for turn in 0..4 {
            let start = world.disks.data().start;
            let errors = [0, 16, 32].map(|sector| start + 64 * turn + sector);
            world.disks.disk(0).unreadable.extend(errors);
            world.repair();
            world.rounds(50);
            world.sleep_ms(hours * 3_600_000);
        }
        assert!(world.status().members[0].corrected_errors > 6, "{world}");
        assert_eq!(world.member_state(0), Some(state), "{hours} hours");
        world.verify();
    }
}

/// A block that both copies could not read once; the log of one copy cannot say so.
#[test]
fn a_write_that_is_refused_where_only_memory_lists_it_fails_the_member() {
    let shape = Shape::new(Level::Raid1, 0, 2, 0);
    for seed in 500..504 {
        let mut world = World::synced(Setup::new(shape, seed));
        world.write_random(32, 32);
        world.stop();
        without_a_log(&world, 0);
        world.assemble_all().unwrap();
        let data = world.disks.data();
        let block = data.start + 40..data.start + 41;
        (0..2).for_each(|disk| world.disks.disk(disk).unreadable.extend(block.clone()));
        assert_eq!(world.read(40, 1), Err(RequestError::Lost), "{world}");
        (0..2).for_each(|disk| world.disks.disk(disk).unreadable.clear());
        world.disks.disk(0).write_error = Some(IoErrorKind::Medium);
        world.disks.disk(0).errors_in = Some(block);
        world.write_random(40, 1);
        world.crash();
        world.assemble_all().unwrap();
        world.set("read_policy", "first");
        world.verify();
        assert_ne!(world.member_state(0), Some(MemberState::InSync), "{world}");
    }
}

/// The log of a member cannot say which of its blocks is lost. A write of that block finds no room there, beside a
/// member that is out.
#[test]
fn a_write_without_room_where_only_memory_lists_it_fails_the_member() {
    let shape = Shape { block_bytes: 4096, ..Shape::new(Level::Raid6, 2, 5, 8) };
    for (seed, out) in (510..).zip(1..5) {
        let mut world = World::synced(Setup::new(shape, seed));
        world.write_random(0, world.sectors());
        world.stop();
        without_a_log(&world, 0);
        world.assemble_all().unwrap();
        world.fail(out);
        let block = world.disks.data().start..world.disks.data().start + 8;
        let spoilt = [0, 5 - out.max(2)];
        for disk in spoilt {
            world.disks.disk(disk).unreadable.extend(block.clone());
        }
        let blocks = [0, 8, 16].map(|sector| world.read(sector, 8));
        assert!(blocks.contains(&Err(RequestError::Lost)), "{world}");
        spoilt.into_iter().for_each(|disk| world.disks.disk(disk).unreadable.clear());
        world.disks.disk(0).write_error = Some(IoErrorKind::NoSpace);
        world.disks.disk(0).errors_in = Some(block);
        world.write_random(0, 24);
        assert_eq!(world.member_state(0), Some(MemberState::Faulty), "{world}");
        world.verify();
    }
}

/// Takes the bad-block log off a stopped array's member.
fn without_a_log(world: &World, disk: usize) {
    let mut superblock = world.disks.superblock(disk).unwrap();
    superblock.bad_block_log = None;
    let at = superblock.place.sector as usize * SECTOR;
    world.disks.disk(disk).bytes[at..at + 4096].copy_from_slice(&superblock.encode());
}
