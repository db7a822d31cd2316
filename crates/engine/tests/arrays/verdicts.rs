//! What a write comes to when members do not take it: answered only if every block that was written is
//! held by a member that will be believed after a crash, and who lacks it is on record.

use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use mdspace_engine::array::Action;
use mdspace_engine::assembly::Options;
use mdspace_engine::backend::IoErrorKind;
use mdspace_engine::geometry::Level;
use mdspace_engine::request::{Request, RequestError};
use mdspace_engine::status::{ArrayState, MemberState};

use crate::shapes::{self, DATA_OFFSET, Shape};
use crate::world::{Pending, SECTOR, Setup, World};

/// Lets writes to some data sectors of a disk end in an error.
fn fail_writes(world: &World, disk: usize, kind: IoErrorKind, sectors: Range<u64>) {
    let start = world.disks.data().start;
    let mut disk = world.disks.disk(disk);
    disk.write_error = Some(kind);
    disk.errors_in = Some(start + sectors.start..start + sectors.end);
}

fn start_write(world: &mut World, sector: u64, sectors: u64, fua: bool) -> (Pending, Vec<u8>) {
    let bytes = world.random.bytes(sectors as usize * SECTOR);
    let from = Rc::new(bytes.clone());
    (world.start(0, Request::Write { sector, from, fua }), bytes)
}

fn two_mirrors(seed: u64) -> World {
    World::synced(Setup::shuffled(Shape::new(Level::Raid1, 0, 2, 0), seed))
}

/// Three data blocks and parity, in whole rows.
fn row_of(shape: &Shape) -> u64 {
    u64::from(shape.chunk_sectors) * u64::from(shape.disks - 1)
}

/// The pieces of a refused write find the member out: that is not on record yet, and after a crash the
/// member would be believed with the old block.
#[test]
fn a_write_in_pieces_whose_member_is_failed_meanwhile_waits_for_the_record() {
    for seed in 1..12 {
        let mut world = two_mirrors(seed);
        world.set("write_deadline", "0");
        world.write_random(16, 16);
        fail_writes(&world, 0, IoErrorKind::Medium, 17..18);
        world.disks.disk(0).takes = Duration::from_millis(50);
        let (write, bytes) = start_write(&mut world, 16, 16, true);
        world.rounds(4 + seed as usize);
        // The survivor's superblock is not written before this ends.
        world.disks.disk(1).hangs_in = Some(0..DATA_OFFSET);
        let member = world.disks.id(0);
        world.order(Action::Fail { member, force: false });
        world.rounds(400);
        let early = write.result();
        if early == Some(Ok(())) {
            world.remember(16, &bytes);
        }
        world.crash();
        world.disks.disk(0).plug();
        world.disks.disk(0).takes = Duration::ZERO;
        world.disks.disk(1).hangs_in = None;
        world.assemble_with_force().unwrap();
        world.set("read_policy", "first");
        if early == Some(Ok(())) {
            world.verify();
        }
    }
}

/// Two data members go while the round reads the third: it would write parity alone and say that all is
/// well.
#[test]
fn a_round_that_reads_while_its_array_breaks_is_not_answered() {
    for seed in 1..12 {
        let mut world = World::synced(Setup::shuffled(shapes::RAID5, seed));
        world.set("read_deadline", "0");
        world.write_random(0, row_of(&shapes::RAID5));
        world.disks.disk(2).hangs_in = Some(DATA_OFFSET..DATA_OFFSET + 16);
        let (write, _) = start_write(&mut world, 0, 32, false);
        world.rounds(30);
        assert!(!write.has_ended(), "{world}");
        (0..2).for_each(|disk| world.disks.disk(disk).unplug());
        let reads = [world.start_read(48, 8), world.start_read(64, 8), world.start_read(80, 8)];
        world.wait_status("a broken array", |status| status.state == ArrayState::Broken);
        world.disks.disk(2).hangs_in = None;
        assert_eq!(world.end(&write), Err(RequestError::Lost), "{world}");
        for read in &reads {
            let _ = world.end(read);
        }
    }
}

/// A row whose parity is in doubt, by a write that found no space.
fn row_in_doubt(shape: Shape, seed: u64) -> World {
    let mut world = World::synced(Setup::shuffled(shape, seed));
    world.command(Action::Freeze).unwrap();
    let row = row_of(&shape);
    world.write_random(row, row);
    fail_writes(&world, 1, IoErrorKind::NoSpace, 0..u64::MAX / 2);
    let failed = world.write(row, vec![9; row as usize * SECTOR]);
    assert_eq!(failed, Err(RequestError::NoSpace), "{world}");
    world.disks.disk(1).write_error = None;
    world
}

#[test]
fn a_write_of_a_whole_row_in_doubt_is_answered_and_can_be_read_without_a_member() {
    for (seed, shape) in (1..).zip([shapes::RAID5, shapes::RAID5.without_bitmap(), shapes::RAID4]) {
        for lost in 0..4 {
            let mut world = row_in_doubt(shape, seed);
            world.fail(lost);
            world.write_random(row_of(&shape), row_of(&shape));
            world.verify();
        }
    }
}

/// Nobody waits for that: but whoever fails later must find parity that is believed.
#[test]
fn a_write_that_makes_a_row_whole_ends_its_doubt() {
    for (seed, shape) in (10..).zip([shapes::RAID5, shapes::RAID5.without_bitmap(), shapes::RAID4])
    {
        for lost in 0..4 {
            let mut world = row_in_doubt(shape, seed);
            world.write_random(row_of(&shape), row_of(&shape));
            world.fail(lost);
            world.verify();
            assert_eq!(world.status().doubted.sectors, 0, "{world}");
        }
    }
}

#[test]
fn a_write_that_leaves_a_part_of_the_row_in_doubt_ends_no_doubt_there() {
    let mut world = row_in_doubt(shapes::RAID5, 20);
    let row = row_of(&shapes::RAID5);
    // Columns 0 to 8 of all three blocks.
    for block in 0..3 {
        world.write_random(row + 16 * block, 8);
    }
    world.fail(0);
    for block in 0..3 {
        let bytes = world.read(row + 16 * block, 8).unwrap();
        world.compare(row + 16 * block, &bytes);
    }
    assert_eq!(world.status().doubted.sectors, 8, "{world}");
}

#[test]
fn no_space_hides_no_failure_of_another_member_of_the_round() {
    for (seed, shape) in (30..).zip([shapes::RAID1, shapes::RAID5, shapes::RAID6]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_random(0, 16);
        fail_writes(&world, 0, IoErrorKind::NoSpace, 0..1 << 20);
        fail_writes(&world, 1, IoErrorKind::Gone, 0..1 << 20);
        let ended = world.write(0, vec![3; world.sectors() as usize * SECTOR]);
        // What parity bears of both is listed: the block of the one that is out needs the rest of its row.
        let is_borne = shape.has_parity() && shape.can_lose() == 2;
        assert_eq!(ended.is_ok(), is_borne, "{ended:?} ({world})");
        assert_eq!(world.member_state(0), Some(MemberState::InSync), "{world}");
        assert_eq!(world.member_state(1), Some(MemberState::Faulty), "{world}");
    }
}

/// A row that is torn gives no block of a member that is out. So the one without room lists what it lacks.
#[test]
fn no_space_behind_one_member_takes_no_block_of_another_that_is_out() {
    for (seed, out) in (60..).zip(1..5) {
        let mut world = World::synced(Setup::shuffled(shapes::RAID6, seed));
        world.fail(out);
        fail_writes(&world, 0, IoErrorKind::NoSpace, 0..1 << 20);
        let mut failed = 0;
        for row in 0..10 {
            let bytes = world.random.bytes(8 * SECTOR);
            world.remember(48 * row, &bytes);
            let written = world.write(48 * row, bytes);
            let beside = world.read(48 * row + 8, 40);
            assert!(beside.is_ok(), "{beside:?} beside {written:?} ({world})");
            failed += usize::from(written.is_err());
        }
        assert_eq!(failed, 0, "{world}");
        world.verify();
        assert_eq!(world.member_state(0), Some(MemberState::InSync), "{world}");
        world.restart();
        world.verify();
        fail_writes(&world, 0, IoErrorKind::NoSpace, 0..0);
        world.write_random(0, world.sectors());
        assert_eq!(world.status().members[0].bad_ranges, 0, "{world}");
        world.verify();
    }
}

/// Nor of one that is being filled and has not got it yet.
#[test]
fn no_space_behind_one_member_takes_no_block_of_another_that_is_being_filled() {
    for (seed, out) in (70..).zip(1..5) {
        let mut world = World::synced(Setup::shuffled(shapes::RAID6, seed));
        world.fail(out);
        world.set("sync_max", "16");
        world.add(5).unwrap();
        world.wait_status("a rebuild that pauses", |status| status.sync.completed_sectors == 16);
        fail_writes(&world, 0, IoErrorKind::NoSpace, 0..1 << 20);
        let mut failed = 0;
        for row in 2..10 {
            let bytes = world.random.bytes(8 * SECTOR);
            world.remember(48 * row, &bytes);
            let written = world.write(48 * row, bytes);
            let beside = world.read(48 * row + 8, 40);
            assert!(beside.is_ok(), "{beside:?} beside {written:?} ({world})");
            failed += usize::from(written.is_err());
        }
        assert_eq!(failed, 0, "{world}");
        world.verify();
        fail_writes(&world, 0, IoErrorKind::NoSpace, 0..0);
        world.set("sync_max", "max");
        world.wait_idle();
        assert_eq!(world.member_state(5), Some(MemberState::InSync), "{world}");
        world.verify();
        world.write_random(0, world.sectors());
        assert_eq!(world.check(), 0, "{world}");
        world.verify();
    }
}

/// Members on one full file system: the write says so, and goes well when there is room.
#[test]
fn a_write_without_space_behind_any_member_fails_for_lack_of_space() {
    for (seed, shape) in (40..).zip([shapes::RAID1, shapes::RAID5, shapes::RAID6, shapes::RAID10]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_random(0, 16);
        let disks = 0..usize::from(shape.disks);
        disks.clone().for_each(|disk| fail_writes(&world, disk, IoErrorKind::NoSpace, 0..1 << 20));
        for sectors in [4, world.sectors()] {
            let failed = world.write(0, vec![3; sectors as usize * SECTOR]);
            assert_eq!(failed, Err(RequestError::NoSpace), "{world}");
        }
        assert_eq!(world.status().degraded(), 0, "{world}");
        disks.for_each(|disk| world.disks.disk(disk).write_error = None);
        world.write_random(0, world.sectors());
        world.verify();
    }
}

/// What a write-mostly member found no space for was answered long ago: its list says that it lacks it.
#[test]
fn what_a_write_mostly_member_lacks_after_the_answer_is_never_read_from_it() {
    for seed in 1..8 {
        let shape =
            Shape { write_behind: 8, write_mostly: 0b10, ..Shape::new(Level::Raid1, 0, 2, 0) };
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_random(64, 8);
        world.wait_status("nothing behind", |status| {
            status.write_behind.is_some_and(|behind| behind.under_way == 0)
        });
        fail_writes(&world, 1, IoErrorKind::NoSpace, 64..72);
        world.write_random(64, 8);
        world.wait_status("nothing behind", |status| {
            status.write_behind.is_some_and(|behind| behind.under_way == 0)
        });
        world.rounds(50);
        world.crash();
        let options = Options { run: true, force: true, ..Options::default() };
        world.assemble(&[1], &options).unwrap();
        assert_eq!(world.read(64, 8), Err(RequestError::Lost), "{world}");
    }
}

/// What the failed request left behind would land over a newer write that was answered.
#[test]
fn a_request_without_redundancy_leaves_no_write_behind_when_it_fails() {
    for (seed, shape) in (1..).zip(shapes::plain()) {
        let mut world = World::created(Setup::shuffled(shape, seed));
        world.stop();
        crate::listed::list_and_spoil(&mut world, 1, true);
        world.assemble_all().unwrap();
        let data = world.disks.superblock(0).unwrap().data_offset_sectors;
        world.disks.disk(0).hangs_in = Some(data..u64::MAX);
        world.disks.reset_counts();
        let sectors = world.sectors();
        let (all, _) = start_write(&mut world, 0, sectors, false);
        world.turns(200);
        assert_eq!(all.result(), Some(Err(RequestError::Lost)), "{world}");
        world.disks.disk(0).hangs_in = None;
        world.turns(200);
        assert!(world.disks.disk(0).writes.is_empty(), "it lands after its answer ({world})");
    }
}

/// The others have what a member lacks that is only being filled, and room.
#[test]
fn a_spare_without_space_fails_and_the_write_goes_well() {
    for (seed, shape) in (1..).zip([shapes::RAID1, shapes::RAID5, shapes::RAID6, shapes::RAID10]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.fail(0);
        let spare = usize::from(shape.disks);
        world.set("sync_max", "0");
        world.add(spare).unwrap();
        world.wait_status("a recovery", |status| {
            status.members.iter().any(|member| member.state == MemberState::Recovering)
        });
        fail_writes(&world, spare, IoErrorKind::NoSpace, 0..1 << 20);
        world.write_random(0, world.sectors());
        assert_eq!(world.member_state(spare), Some(MemberState::Faulty), "{world}");
        world.verify();
        world.stop();
        world.assemble_all().unwrap();
        world.verify();
    }
}

/// One member lists a sector; the member of another block of the same columns goes while that is
/// written. Parity cannot make up for both.
#[test]
fn a_write_that_loses_a_member_on_its_way_is_judged_by_blocks() {
    for (seed, shape) in (1..).zip([shapes::RAID5, shapes::RAID4, shapes::RAID5.without_bitmap()]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        fail_writes(&world, 1, IoErrorKind::Medium, 4..5);
        world.write_random(20, 1);
        assert_eq!(world.status().members[1].bad_ranges, 1, "{world}");
        world.verify();
        world.disks.disk(1).plug();
        fail_writes(&world, 0, IoErrorKind::Gone, 0..1 << 20);
        let before = world.status().degraded();
        let ended = world.write(4, vec![5; SECTOR]);
        assert_eq!((before, ended), (0, Err(RequestError::Lost)), "{world}");
        assert_eq!(world.status().degraded(), 1, "{world}");
        // Beside it nothing is lost.
        world.write_random(5, 8);
        let bytes = world.read(5, 8).unwrap();
        world.compare(5, &bytes);
    }
}

/// Another lane has not heard yet that a member failed a write, and would read the old block from it.
#[test]
fn a_write_is_answered_when_no_lane_reads_who_failed_it() {
    for (seed, shape) in (160..).zip([shapes::RAID1, shapes::RAID5, shapes::RAID10]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        let sectors = row_of(&shape).max(16);
        world.write_random(0, sectors);
        world.dozing = Some(1);
        fail_writes(&world, 0, IoErrorKind::Gone, 0..shape.member_sectors);
        let (write, bytes) = start_write(&mut world, 0, sectors, false);
        world.turns(3000);
        assert!(!write.has_ended(), "{world}");
        world.dozing = None;
        world.end(&write).unwrap_or_else(|error| panic!("{error} ({world})"));
        world.remember(0, &bytes);
        world.verify();
    }
}
