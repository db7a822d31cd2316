//! Members that take some sectors no more and answer otherwise: the sectors are listed as bad on that
//! member, durably and before the write is answered.

use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use mdspace_engine::array::Action;
use mdspace_engine::backend::IoErrorKind;
use mdspace_engine::geometry::Level;
use mdspace_engine::request::{Request, RequestError};
use mdspace_engine::status::{ArrayState, ArrayStatus, MemberState, SyncAction};
use mdspace_format::{BadBlocks, Features};

use crate::given_up::fail;
use crate::listed::listed;
use crate::shapes::{self, Shape};
use crate::world::{SECTOR, Setup, World};

/// Lets a disk refuse writes to some sectors of its data.
fn refuse(world: &World, disk: usize, sectors: Range<u64>) {
    let start = world.disks.data().start;
    let mut disk = world.disks.disk(disk);
    disk.write_error = Some(IoErrorKind::Medium);
    disk.errors_in = Some(start + sectors.start..start + sectors.end);
}

/// In whole blocks.
fn blocks(shape: &Shape, sectors: Range<u64>) -> Range<u64> {
    let block = u64::from(shape.block_bytes / 512);
    sectors.start / block * block..sectors.end.next_multiple_of(block)
}

fn member(status: &ArrayStatus, disk: usize) -> &mdspace_engine::status::MemberStatus {
    let name = format!("disk{disk}");
    status.members.iter().find(|member| member.name == name).unwrap()
}

/// One write over all of the array: the member keeps its place, and power fails as soon as the write is
/// answered. What was not written is not read, before or after.
#[test]
fn what_a_member_refuses_is_listed_before_the_write_is_answered() {
    for (seed, shape) in (1..).zip(shapes::redundant()) {
        for sectors in [17..18, 19..27] {
            let mut world = World::synced(Setup::shuffled(shape, seed));
            world.write_many(3);
            refuse(&world, 0, sectors.clone());
            world.write_random(0, world.sectors());
            world.crash();
            assert_eq!(listed(&world, 0), [blocks(&shape, sectors)], "{world}");
            assert_eq!(world.assemble_with_force().unwrap(), [], "{world}");
            world.verify();
            world.wait_idle();
            world.verify();
            assert_eq!(world.status().degraded(), 0, "{world}");
        }
    }
}

/// A crash in the middle of a write leaves parity that may not agree with what it was to make up for:
/// with one parity that is an error then, and named, unless the user wants it as it is. Of two parities
/// the second says whether the first is right.
#[test]
fn after_a_crash_what_is_listed_is_an_error_until_the_user_decides() {
    for (seed, shape, unknown) in [(50, shapes::RAID5, 8), (51, shapes::RAID6, 0)] {
        for accepts in [true, false] {
            let mut world = World::synced(Setup::shuffled(shape, seed));
            refuse(&world, 0, 17..25);
            world.write_random(0, world.sectors());
            world.crash();
            world.assemble_all().unwrap();
            world.wait_idle();
            let mut lost = Vec::new();
            for sector in 0..world.sectors() {
                match world.read(sector, 1) {
                    Ok(bytes) => world.compare(sector, &bytes),
                    Err(_) => lost.push(sector),
                }
            }
            let told: Vec<u64> = world.status().lost.first.iter().cloned().flatten().collect();
            assert_eq!((told, lost.len()), (lost, unknown), "{world}");
            match accepts && unknown > 0 {
                true => drop(world.command(Action::AcceptDoubt).unwrap()),
                false => {
                    world.crash();
                    world.assemble_with_force().unwrap();
                }
            }
            world.wait_idle();
            world.verify();
            assert_eq!(world.check(), 0, "{world}");
        }
    }
}

/// Where the user has said so before, nothing is asked after a crash.
#[test]
fn after_a_crash_what_is_listed_is_computed_where_the_user_accepts_doubt() {
    let mut world = World::synced(Setup::shuffled(shapes::RAID5, 52));
    refuse(&world, 0, 17..25);
    world.write_random(0, world.sectors());
    world.crash();
    world.assemble_all().unwrap();
    world.set("accept_doubt", "1");
    world.wait_idle();
    world.verify();
    assert_eq!(world.status().doubted.sectors, 0, "{world}");
}

#[test]
fn a_member_that_refuses_sectors_does_its_work_and_is_to_be_replaced() {
    for (seed, shape) in (100..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        refuse(&world, 0, 40..50);
        world.write_random(0, world.sectors());
        world.verify();
        let status = world.status();
        let one = member(&status, 0);
        assert_eq!((one.state, one.want_replacement), (MemberState::InSync, true), "{world}");
        assert_eq!((one.bad_ranges, status.lost.sectors), (1, 0), "{world}");
        world.write_many(10);
        world.verify();
        // The drive takes it after all: then nothing is bad any more.
        world.disks.disk(0).plug();
        world.write_random(0, world.sectors());
        assert_eq!(member(&world.status(), 0).bad_ranges, 0, "{world}");
        assert_eq!(world.check(), 0, "{world}");
        (0..shape.can_lose()).for_each(|disk| world.fail(disk + 1));
        world.verify();
    }
}

/// The log is what keeps old blocks from being read after a crash.
#[test]
#[should_panic(expected = "is wrong")]
fn without_the_list_a_refused_block_would_be_believed() {
    let mut world = World::synced(Setup::new(shapes::RAID1, 1));
    refuse(&world, 0, 17..18);
    world.write_random(0, world.sectors());
    world.wait_clean();
    world.crash();
    let mut superblock = world.disks.superblock(0).unwrap();
    superblock.features = superblock.features.with(Features::BAD_BLOCKS, false);
    let at = superblock.place.sector as usize * SECTOR;
    world.disks.disk(0).bytes[at..at + 4096].copy_from_slice(&superblock.encode());
    world.assemble_with_force().unwrap();
    world.set("read_policy", "first");
    world.verify();
}

#[test]
fn a_spare_replaces_a_member_that_refuses_sectors() {
    for (seed, shape) in (200..).zip([shapes::RAID1, shapes::RAID5, shapes::RAID6, shapes::RAID10])
    {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        let new = usize::from(shape.disks);
        world.add(new).unwrap();
        refuse(&world, 1, 30..31);
        world.write_random(0, world.sectors());
        world.wait_status("a replacement", |status| {
            member(status, 1).state == MemberState::Faulty && status.sync.action == SyncAction::Idle
        });
        assert_eq!(world.member_state(new), Some(MemberState::InSync), "{world}");
        assert_eq!(member(&world.status(), new).bad_ranges, 0, "{world}");
        assert_eq!(world.check(), 0, "{world}");
        world.fail(0);
        world.verify();
    }
}

/// md lists nothing on a replacement: the member that it is to replace still has everything.
#[test]
fn a_replacement_that_refuses_sectors_is_failed() {
    let shape = Shape { member_sectors: 16_384, ..shapes::RAID5 };
    let mut world = World::synced(Setup::shuffled(shape, 220));
    let new = usize::from(shape.disks);
    world.add(new).unwrap();
    let (old, with) = (world.disks.id(0), world.disks.id(new));
    refuse(&world, new, 16_000..16_001);
    let replace = Action::Replace { member: old, with: Some(with) };
    world.command(replace).unwrap();
    world.wait_idle();
    assert_eq!(world.member_state(new), Some(MemberState::Faulty), "{world}");
    assert_eq!(world.member_state(0), Some(MemberState::InSync), "{world}");
    world.verify();
}

#[test]
fn a_failfast_member_that_refuses_sectors_is_failed() {
    for (failfast, state) in [(0b1, MemberState::Faulty), (0b0, MemberState::InSync)] {
        let mut world = World::synced(Setup::new(Shape { failfast, ..shapes::RAID1 }, 230));
        refuse(&world, 0, 30..31);
        world.write_random(0, world.sectors());
        assert_eq!(world.member_state(0), Some(state), "{failfast:b}");
        world.verify();
    }
}

/// A log has room for 512 entries: sectors that do not touch need one each.
#[test]
fn a_member_whose_list_is_full_is_failed_by_the_next_refused_write() {
    for (shape, step) in [(shapes::RAID1.without_bitmap(), 2), (shapes::RAID5, 2)] {
        let shape = Shape { member_sectors: 4096, chunk_sectors: shape.chunk_sectors, ..shape };
        let mut world = World::synced(Setup::new(shape, 240));
        let start = world.disks.data().start;
        world.disks.disk(0).refuses_every = Some((start, step));
        let mut at = 0;
        while world.status().degraded() == 0 {
            let ranges = member(&world.status(), 0).bad_ranges;
            assert!(ranges <= 512 && at < world.sectors(), "{ranges} ranges ({world})");
            world.write_random(at, 16);
            at += 16;
        }
        assert_eq!(world.member_state(0), Some(MemberState::Faulty), "{world}");
        assert!(at / step > 500, "{at}");
        world.verify();
        world.crash();
        world.assemble_with_force().unwrap();
        world.verify();
    }
}

#[test]
fn a_member_without_a_log_is_failed_by_a_refused_write() {
    for (seed, shape) in (250..).zip([shapes::RAID1, shapes::RAID6, shapes::RAID10]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.stop();
        let mut superblock = world.disks.superblock(0).unwrap();
        superblock.bad_block_log = None;
        let at = superblock.place.sector as usize * SECTOR;
        world.disks.disk(0).bytes[at..at + 4096].copy_from_slice(&superblock.encode());
        world.assemble_all().unwrap();
        refuse(&world, 0, 30..31);
        world.write_random(0, world.sectors());
        assert_eq!(world.member_state(0), Some(MemberState::Faulty), "{world}");
        world.verify();
    }
}

/// As many members are gone as the level bears, and another refuses a sector: what is lost is an error,
/// and is named, and everything else goes on.
#[test]
fn a_refused_sector_that_nobody_else_holds_is_an_error_and_nothing_more() {
    for (seed, shape) in (260..).zip([
        Shape::new(Level::Raid1, 0, 2, 0),
        shapes::RAID5,
        shapes::RAID6,
        shapes::RAID10,
    ]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        let last = usize::from(shape.disks) - 1;
        let gone = if shape.has_parity() { shape.can_lose() } else { last };
        let gone: Vec<usize> = match shape.level {
            Level::Raid10 => vec![0],
            _ => (0..gone).collect(),
        };
        gone.iter().for_each(|disk| world.fail(*disk));
        let bad = if shape.level == Level::Raid10 { 1 } else { last };
        refuse(&world, bad, 20..21);
        let mut refused = 0;
        for sector in 0..world.sectors() {
            let new = world.random.bytes(SECTOR);
            match world.write(sector, new.clone()) {
                Ok(()) => world.remember(sector, &new),
                Err(error) => {
                    assert_eq!(error, RequestError::Lost, "{world}");
                    refused += 1;
                }
            }
        }
        // Its own, and those whose parity only what is lost would tell.
        assert!((1..=usize::from(shape.disks)).contains(&refused), "{refused} failed ({world})");
        let mut lost = Vec::new();
        for sector in 0..world.sectors() {
            match world.read(sector, 1) {
                Ok(bytes) => world.compare(sector, &bytes),
                Err(error) => {
                    assert_eq!(error, RequestError::Lost, "{world}");
                    lost.push(sector);
                }
            }
        }
        let status = world.status();
        assert_ne!(status.state, ArrayState::Broken, "{world}");
        assert_eq!(member(&status, bad).state, MemberState::InSync, "{world}");
        // It is not listed: the old bytes are better than none. Parity there is in doubt, and is named.
        assert_eq!(member(&status, bad).bad_ranges, 0, "{world}");
        assert!(lost.len() <= shape.can_lose(), "{lost:?} ({world})");
        assert_eq!(status.doubted.sectors > 0, !lost.is_empty(), "{lost:?} ({world})");
        // The drive takes it again, and so everything can be had.
        world.disks.disk(bad).plug();
        world.write_random(0, world.sectors());
        world.verify();
        assert_eq!(world.status().lost.sectors, 0, "{world}");
    }
}

#[test]
fn zeroes_that_a_member_refuses_are_listed_like_bytes() {
    for (seed, shape) in (270..).zip(shapes::redundant()) {
        for discard in [false, true] {
            let mut world = World::synced(Setup::shuffled(shape, seed));
            refuse(&world, 0, 21..22);
            let (sector, sectors) = (0, world.sectors());
            let request = match discard {
                true => Request::Discard { sector, sectors },
                false => Request::WriteZeroes { sector, sectors, fua: false },
            };
            world.serve(0, request).unwrap();
            assert_eq!(member(&world.status(), 0).bad_ranges, 1, "{world}");
            assert_eq!(world.status().degraded(), 0, "{world}");
            if !discard {
                world.model.fill(0);
            } else {
                world.learn();
            }
            world.verify();
            world.disks.disk(0).plug();
            world.repair();
            assert_eq!(world.check(), 0, "{world}");
        }
    }
}

#[test]
fn a_rebuild_goes_on_around_what_the_new_member_refuses() {
    for (seed, shape) in (300..).zip([shapes::RAID1, shapes::RAID5, shapes::RAID6, shapes::RAID10])
    {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_many(5);
        world.fail(1);
        let new = usize::from(shape.disks);
        refuse(&world, new, 100..103);
        world.add(new).unwrap();
        world.wait_idle();
        let status = world.status();
        assert_eq!(member(&status, new).state, MemberState::InSync, "{world}");
        assert_eq!(member(&status, new).bad_ranges, 1, "{world}");
        world.verify();
        assert_eq!(world.check(), 0, "{world}");
    }
}

/// Nothing is wrong with a new member that lacks what nobody can read: no spare is to take its place.
#[test]
fn a_member_that_could_not_be_filled_uses_up_no_spares() {
    let mut world = World::synced(Setup::shuffled(shapes::RAID5, 310));
    world.fail(1);
    let start = world.disks.data().start;
    world.disks.disk(0).unreadable.insert(start + 50);
    world.disks.disk(0).unreadable_for_good = true;
    for spare in [4, 5] {
        world.add(spare).unwrap();
    }
    world.wait_idle();
    world.rounds(1000);
    let states = [4, 5].map(|disk| world.member_state(disk));
    assert!(states.contains(&Some(MemberState::Spare)), "{states:?}");
    assert_eq!(member(&world.status(), 0).state, MemberState::InSync, "{world}");
}

/// Every lane meets the sectors at once, and reads meanwhile.
#[test]
fn no_lane_reads_what_a_member_refused() {
    for seed in 0..30 {
        let shape =
            [shapes::RAID1, shapes::RAID5, shapes::RAID6, shapes::RAID10][seed as usize % 4];
        let mut world = World::synced(Setup::shuffled(shape, 400 + seed));
        refuse(&world, 0, 8..40);
        for _ in 0..6 {
            world.write_many(4);
            world.verify();
        }
        assert_eq!(world.status().degraded(), 0, "{world}");
        world.disks.disk(0).plug();
        world.repair();
        assert_eq!(world.check(), 0, "{world}");
        world.fail(1);
        world.verify();
    }
}

/// A drive may take its time to refuse a sector. Halving a write of 1 MiB down to sectors would be thousands
/// of such refusals: what was not tried in ten seconds counts as refused, whether or not a write has a
/// deadline. Who wants other sectors does not wait for that.
#[test]
fn a_member_that_refuses_everything_slowly_holds_a_write_no_longer_than_its_deadline() {
    const MIB: u64 = 2048;
    let raid5 = Shape { member_sectors: 2 * MIB, chunk_sectors: MIB as u32, ..shapes::RAID5 };
    let raid1 = Shape { member_sectors: 2 * MIB, ..shapes::RAID1 };
    for (seed, shape) in (450..).zip([raid1, raid5]) {
        for deadline in ["10", "0"] {
            let mut world = World::synced(Setup::shuffled(shape, seed));
            world.set("write_deadline", deadline);
            world.write_random(0, MIB);
            let slot = (0..usize::from(shape.disks)).find(|disk| {
                world.disks.disk(*disk).writes.iter().any(|io| io.end - io.start == MIB)
            });
            let disk = slot.unwrap();
            refuse(&world, disk, 0..MIB);
            world.disks.disk(disk).takes = Duration::from_millis(300);
            let before = world.now_ms();
            let bytes = world.random.bytes(MIB as usize * SECTOR);
            world.remember(0, &bytes);
            let write = Request::Write { sector: 0, from: Rc::new(bytes), fua: false };
            let held = world.start(0, write);
            let elsewhere = world.sectors() - 8;
            world.write_random(elsewhere, 8);
            let took = world.now_ms() - before;
            assert!(took < 3000, "elsewhere: {took} ms ({world})");
            assert!(!held.has_ended(), "{world}");
            world.end(&held).unwrap();
            let took = world.now_ms() - before;
            // The bits of a write wait for a flush that is under way, and then for their own.
            assert!((10_000..13_000).contains(&took), "{took} ms ({world})");
            world.verify();
            assert_eq!(world.status().degraded(), 0, "{world}");
            assert_eq!(member(&world.status(), disk).bad_ranges, 1, "{world}");
        }
    }
}

/// What md or we list is parsed again, whatever the drive refuses.
#[test]
fn the_log_on_the_member_is_what_the_array_believes() {
    let mut world = World::synced(Setup::new(shapes::RAID5, 500));
    let start = world.disks.data().start;
    world.disks.disk(2).refuses_every = Some((start, 24));
    world.write_random(0, world.sectors());
    let ranges = member(&world.status(), 2).bad_ranges;
    world.stop();
    let found = listed(&world, 2);
    assert_eq!(found.len() as u32, ranges);
    assert!(found.iter().all(|bad| bad.end == bad.start + 1 && bad.start % 24 == 0), "{found:?}");
    let mut blocks = BadBlocks::new();
    found.into_iter().for_each(|bad| blocks.add(bad));
    assert_eq!(blocks.ranges().len() as u32, ranges);
}

/// The first write that one member gets is refused, or the second, and so on until none is left to be:
/// once, or from then on. Power fails as soon as all are answered.
#[test]
fn every_write_of_a_member_may_be_the_one_that_is_refused() {
    let shapes = [shapes::RAID1, shapes::RAID5, shapes::RAID6, shapes::RAID10];
    for (seed, shape) in (600..).zip(shapes.map(|shape| Shape { member_sectors: 128, ..shape })) {
        for once in [true, false] {
            let (mut nth, mut stayed, in_sync) = (0, 0, Some(MemberState::InSync));
            let ended_in = loop {
                let mut world = World::synced(Setup::shuffled(shape, 1000 * seed + nth));
                world.wait_clean();
                world.disks.disk(0).write_error = Some(IoErrorKind::Medium);
                world.disks.disk(0).error_once = once;
                world.disks.disk(0).grace = nth;
                world.write_many(4);
                let state = world.member_state(0);
                let spent = world.disks.disk(0).grace == 0;
                stayed += u32::from(!world.disks.disk(0).error_once && state == in_sync);
                world.crash();
                world.disks.disk(0).plug();
                world.assemble_with_force().unwrap_or_else(|error| panic!("{error} ({world})"));
                world.verify();
                world.wait_idle();
                world.verify();
                if !spent {
                    break nth;
                }
                nth += 1;
            };
            assert!(!once || stayed > 1, "{stayed} times in sync ({shape})");
            assert!(ended_in > 4, "{ended_in} writes ({shape})");
        }
    }
}

/// It is torn once, and no more when all of it has ended: an order to fail a member waits for torn rows.
#[test]
fn a_row_of_which_members_refuse_two_parts_holds_up_no_order_later() {
    let mut world = World::synced(Setup::new(shapes::RAID6, 91));
    [0, 1].into_iter().for_each(|disk| refuse(&world, disk, 0..8));
    world.write_random(0, world.sectors());
    assert!([0, 1].into_iter().all(|disk| !listed(&world, disk).is_empty()), "{world}");
    for disk in [0, 1] {
        world.disks.disk(disk).write_error = None;
    }
    fail(&mut world, 0, false).unwrap();
    assert_eq!(world.member_state(0), Some(MemberState::Faulty), "{world}");
    world.verify();
}
