//! Members that are replaced while they still work.

use std::rc::Rc;
use std::time::Duration;

use mdspace_engine::array::{Action, CommandError, Reply};
use mdspace_engine::assembly::{LeftOut, Options, Reason};
use mdspace_engine::backend::IoErrorKind;
use mdspace_engine::geometry::Level;
use mdspace_engine::request::{Request, RequestError};
use mdspace_engine::status::{ArrayState, ArrayStatus, MemberState, SyncAction};
use mdspace_format::superblock::{MemberFlags, RESYNC_NONE, Superblock};
use mdspace_format::{Features, Role};

use crate::shapes::{self, MEMBER_SECTORS, Shape};
use crate::world::{Pending, SECTOR, Setup, World};

/// Large enough to be caught half-way. Windows of RAID1 are larger.
fn long(shape: Shape) -> Shape {
    let member_sectors = if shape.level == Level::Raid1 { 65_536 } else { 16_384 };
    Shape { member_sectors, ..shape }
}

fn some_of_every_level() -> impl Iterator<Item = (u64, Shape)> {
    (1..).zip([shapes::RAID1, shapes::RAID5, shapes::RAID6, shapes::RAID10].map(long))
}

fn order(world: &mut World, disk: usize, with: usize) -> Result<(), CommandError> {
    let (member, with) = (world.disks.id(disk), world.disks.id(with));
    world.command(Action::Replace { member, with: Some(with) }).map(drop)
}

/// Adds the first disk beyond the shape's as a spare and has it replace `disk`.
fn begin(world: &mut World, disk: usize) -> usize {
    let spare = usize::from(world.shape().disks);
    world.add(spare).unwrap();
    order(world, disk, spare).unwrap();
    spare
}

fn replacement_offset(status: &ArrayStatus) -> Option<u64> {
    let found = status.members.iter().find(|member| member.replacement);
    found.map(|member| member.recovery_offset_sectors)
}

/// Goes on until the replacement has some of its data.
fn half_way(world: &mut World) {
    let part = world.shape().member_sectors / 8;
    world.wait_status("half of a replacement", |status| {
        replacement_offset(status).is_some_and(|done| done > part)
    });
    assert!(replacement_offset(&world.status()).is_some(), "{world}");
}

fn finish(world: &mut World) {
    world.wait_status("the end of a replacement", |status| {
        status.members.iter().all(|member| !member.replacement)
            && status.sync.action == SyncAction::Idle
    });
}

/// All redundancy is right, and the data are there without as many others as may be lost.
fn judge(world: &mut World, but: usize) {
    assert_eq!(world.status().degraded(), 0, "{world}");
    assert_eq!(world.check(), 0, "{world}");
    let others = (0..usize::from(world.shape().disks)).filter(|disk| *disk != but);
    let gone: Vec<usize> = others.take(world.shape().can_lose()).collect();
    gone.into_iter().for_each(|disk| world.fail(disk));
    world.verify();
}

#[test]
fn a_member_is_replaced_without_a_degraded_moment() {
    for (seed, shape) in (1..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        let new = begin(&mut world, 0);
        for _ in 0..10 {
            world.write_many(2);
            assert_eq!(world.status().degraded(), 0, "{world}");
        }
        finish(&mut world);
        assert_eq!(world.member_state(0), Some(MemberState::Faulty), "{world}");
        assert_eq!(world.member_state(new), Some(MemberState::InSync), "{world}");
        world.disks.reset_counts();
        world.write_many(5);
        assert!(world.disks.disk(0).writes.is_empty(), "{world}");
        world.stop();
        let left_out = world.assemble_all().unwrap();
        assert!(matches!(&*left_out, [LeftOut { member, .. }] if member == "disk0"), "{world}");
        judge(&mut world, 0);
    }
}

/// The check that the other tests go by sees what a replacement has wrong.
#[test]
fn a_flipped_byte_on_a_replacement_is_counted() {
    for (_, shape) in some_of_every_level() {
        let mut world = World::synced(Setup::shuffled(shape, 40));
        let new = begin(&mut world, 0);
        finish(&mut world);
        let at = world.disks.data().start as usize * SECTOR + 700;
        world.disks.disk(new).bytes[at] ^= 1;
        assert!(world.check() > 0, "{world}");
    }
}

#[test]
fn sectors_that_cannot_be_read_are_computed() {
    for (seed, shape) in some_of_every_level() {
        let mut world = World::synced(Setup::shuffled(shape, 60 + seed));
        let start = world.disks.data().start;
        for sector in [3, 700, 701, 5000] {
            world.disks.disk(0).unreadable.insert(start + sector);
            // Not in the same rows: there one member alone may be unreadable.
            world.disks.disk(1).unreadable.insert(start + sector + 8000);
        }
        world.disks.disk(0).unreadable_for_good = true;
        begin(&mut world, 0);
        finish(&mut world);
        judge(&mut world, 0);
    }
}

/// Each of its reads misses the deadline. None takes as long as a write may.
#[test]
fn a_member_that_is_always_late_is_replaced() {
    for (seed, shape) in (1..).zip([shapes::RAID1, shapes::RAID5, shapes::RAID6, shapes::RAID10]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.disks.disk(0).reads_take = Duration::from_secs(2);
        let new = begin(&mut world, 0);
        finish(&mut world);
        assert_eq!(world.member_state(new), Some(MemberState::InSync), "{world}");
        judge(&mut world, 0);
    }
}

/// What nobody can read is listed as bad on the replacement; everything else is there.
#[test]
fn what_nobody_can_read_does_not_end_a_replacement() {
    let mut world = World::synced(Setup::shuffled(long(shapes::RAID5), 80));
    let start = world.disks.data().start;
    for disk in [0, 1] {
        world.disks.disk(disk).unreadable.insert(start + 700);
    }
    let new = begin(&mut world, 0);
    finish(&mut world);
    assert_eq!(world.member_state(new), Some(MemberState::InSync), "{world}");
    let name = world.disks.info(new).name;
    let listed = world.status().members.into_iter().find(|member| member.name == name);
    assert_eq!(listed.unwrap().bad_ranges, 1, "{world}");
}

/// A degraded mirror whose last copy is being replaced, and cannot read a block by itself.
fn with_an_unreadable_last_copy(seed: u64) -> (World, usize) {
    let mut world = World::synced(Setup::shuffled(long(shapes::RAID1), seed));
    let copies = usize::from(world.shape().disks);
    (1..copies).for_each(|disk| world.fail(disk));
    let sectors = world.sectors();
    world.write_random(0, sectors);
    world.command(Action::Freeze).unwrap();
    let new = begin(&mut world, 0);
    let start = world.disks.data().start;
    world.disks.disk(0).unreadable.insert(start + 700);
    world.command(Action::Idle).unwrap();
    (world, new)
}

/// Else it would be lost when the member that could give it again is given up.
#[test]
fn a_block_of_the_last_copy_that_cannot_be_read_for_a_moment_comes_to_its_replacement() {
    let (mut world, new) = with_an_unreadable_last_copy(85);
    let block = world.disks.data().start + 700;
    world.until("a read of the block", |world| {
        world.disks.disk(0).reads.iter().any(|read| *read == (block..block + 1))
    });
    world.disks.disk(0).unreadable.clear();
    finish(&mut world);
    assert_eq!(world.member_state(new), Some(MemberState::InSync), "{world}");
    world.verify();
}

/// What is lost is known before the member is given up, as it is on every other way.
#[test]
fn a_block_that_nobody_can_read_is_listed_on_the_member_as_on_its_replacement() {
    let (mut world, _) = with_an_unreadable_last_copy(86);
    finish(&mut world);
    let bad: Vec<u32> = world.status().members.iter().map(|member| member.bad_ranges).collect();
    assert_eq!((bad.first(), bad.last()), (Some(&1), Some(&1)), "{world}");
    assert_eq!(world.read(700, 1), Err(RequestError::Lost), "{world}");
}

#[test]
fn a_member_that_fails_leaves_its_replacement_what_it_has() {
    for (seed, shape) in some_of_every_level() {
        let mut world = World::synced(Setup::shuffled(shape, 100 + seed));
        let new = begin(&mut world, 0);
        half_way(&mut world);
        world.write_many(3);
        world.disks.reset_counts();
        world.disks.disk(0).unplug();
        world.write_many(6);
        let status = world.status();
        assert_eq!((status.degraded(), replacement_offset(&status)), (1, None), "{world}");
        world.wait_idle();
        assert_eq!(world.member_state(new), Some(MemberState::InSync), "{world}");
        let data = world.disks.data();
        let first = world.shape().member_sectors / 16;
        let written = world.disks.disk(new).sectors_written(data.start..data.start + first);
        assert!(written < first, "all of it was copied again: {written} ({world})");
        judge(&mut world, 0);
    }
}

#[test]
fn a_replacement_that_fails_costs_nothing() {
    for (seed, shape) in some_of_every_level() {
        let mut world = World::synced(Setup::shuffled(shape, 140 + seed));
        let new = begin(&mut world, 0);
        half_way(&mut world);
        world.disks.disk(new).unplug();
        world.write_many(6);
        world.wait_idle();
        assert_eq!(world.member_state(new), Some(MemberState::Faulty), "{world}");
        assert_eq!(world.member_state(0), Some(MemberState::InSync), "{world}");
        judge(&mut world, 0);
    }
}

#[test]
fn a_replacement_without_space_is_given_up_and_the_write_is_not() {
    let mut world = World::synced(Setup::shuffled(long(shapes::RAID5), 160));
    let new = begin(&mut world, 0);
    world.disks.disk(new).write_error = Some(IoErrorKind::NoSpace);
    world.write_many(20);
    assert_eq!(world.status().degraded(), 0, "{world}");
    judge(&mut world, 0);
}

#[test]
fn a_stopped_replacement_goes_on_where_it_was() {
    for (seed, shape) in some_of_every_level() {
        let mut world = World::synced(Setup::shuffled(shape, 180 + seed));
        let new = begin(&mut world, 0);
        half_way(&mut world);
        world.write_many(3);
        world.stop();
        let superblock = world.disks.superblock(new).unwrap();
        assert!(superblock.features.contains(Features::REPLACEMENT), "{world}");
        assert_eq!(superblock.own_role(), Role::Slot(0), "{world}");
        assert!(superblock.recovery_offset_sectors.is_some_and(|done| done > 0), "{world}");
        world.disks.reset_counts();
        assert_eq!(world.assemble_all().unwrap(), [], "{world}");
        finish(&mut world);
        let data = world.disks.data();
        let written = world.disks.disk(new).sectors_written(data);
        assert!(written < shape.member_sectors, "{world}");
        world.write_many(3);
        let superblock = world.disks.superblock(new).unwrap();
        assert!(!superblock.features.contains(Features::REPLACEMENT), "{superblock:?}");
        judge(&mut world, 0);
    }
}

/// What a disk was not told to flush is gone, and what was under way may be on one of the two only.
#[test]
fn power_cuts_leave_a_replacement_nothing_old() {
    for (seed, shape) in some_of_every_level() {
        for rounds in (40..400).step_by(30) {
            let shape = Shape { member_sectors: shape.member_sectors / 8, ..shape };
            let mut world = World::synced(Setup::shuffled(shape, 1000 * seed + rounds));
            let new = begin(&mut world, 0);
            world.rounds(rounds as usize);
            world.write_many(4);
            world.serve(0, Request::Flush).unwrap();
            // Under way: it comes to some members and not to others.
            let (sector, sectors) = world.random_range();
            let torn = Request::Write {
                sector,
                from: Rc::new(world.random.bytes(sectors as usize * SECTOR)),
                fua: false,
            };
            world.start(1, torn);
            world.rounds(rounds as usize % 11);
            world.power_cut([new]);
            world.assemble_all().unwrap();
            world.learn();
            world.write_many(2);
            finish(&mut world);
            world.wait_idle();
            judge(&mut world, 0);
        }
    }
}

/// A crash catches a write that has landed on the member, and not on its replacement.
#[test]
fn a_write_that_came_to_the_member_alone_is_copied_again() {
    for (seed, shape) in some_of_every_level() {
        let mut world = World::synced(Setup::shuffled(shape, 200 + seed));
        world.set("write_deadline", "0");
        let new = begin(&mut world, 0);
        half_way(&mut world);
        let start = world.disks.data().start;
        world.disks.disk(new).hangs_in = Some(start..start + 8);
        let from = Rc::new(world.random.bytes(8 * SECTOR));
        let write = world.start(0, Request::Write { sector: 0, from, fua: false });
        world.rounds(60);
        assert!(!write.has_ended(), "{world}");
        world.crash();
        world.disks.disk(new).hangs_in = None;
        world.assemble_all().unwrap();
        world.learn();
        finish(&mut world);
        world.wait_idle();
        assert_eq!(world.member_state(new), Some(MemberState::InSync), "{world}");
        judge(&mut world, 0);
    }
}

/// At any moment, and when the first superblocks that give up the old member have landed.
#[test]
fn a_crash_in_the_hand_over_leaves_one_of_the_two() {
    let mut seen = [false, false];
    for rounds in 0..200 {
        let (mut world, new) = degraded_and_replaced(300 + rounds);
        world.rounds(rounds as usize);
        seen[usize::from(survives(&mut world, new))] = true;
    }
    for seed in 0..40 {
        let (mut world, new) = degraded_and_replaced(600 + seed);
        world.until("the last update", |world| (1..3).any(|disk| has_given_up(world, disk)));
        seen[usize::from(survives(&mut world, new))] = true;
    }
    assert_eq!(seen, [true, true], "both ends were met");
}

/// One member is gone, and another one is being replaced: neither it nor the new one is to be missed.
fn degraded_and_replaced(seed: u64) -> (World, usize) {
    let mut world = World::synced(Setup::shuffled(shapes::RAID5, seed));
    world.fail(3);
    let new = begin_frozen(&mut world);
    world.order(Action::Idle);
    (world, new)
}

/// One member is gone, and the new one goes at any moment before a superblock gives up who had the slot.
#[test]
fn a_replacement_that_dies_in_the_hand_over_costs_nothing() {
    let mut died_late = 0;
    for rounds in 0..60 {
        let (mut world, new) = degraded_and_replaced(900 + rounds);
        world.rounds(rounds as usize);
        if [1, 2, new].into_iter().any(|disk| has_given_up(&world, disk)) {
            continue;
        }
        world.disks.disk(new).unplug();
        died_late = rounds;
        world.write_random(3, 5);
        assert_ne!(world.status().state, ArrayState::Broken, "{rounds} rounds, {world}");
        assert!(!survives(&mut world, new), "{rounds} rounds, {world}");
    }
    assert!(died_late > 20, "the hand-over was not met, only {died_late} rounds");
}

/// It has failed a write that another copy has not answered, so that the write is not judged. Then it gets all the rest.
#[test]
fn a_replacement_that_has_failed_takes_nothing_over() {
    for seed in 970..976 {
        let mut world = World::synced(Setup::shuffled(long(shapes::RAID1), seed));
        // What a write to the last slots comes to is heard first.
        world.set("write_deadline", "0");
        world.set("sync_max", "4096");
        let new = begin(&mut world, 2);
        world.wait_status("some of it", |status| replacement_offset(status) == Some(4096));
        let data = world.disks.data();
        world.disks.disk(0).writes_hang_in = Some(data.clone());
        world.disks.disk(new).fail_once(IoErrorKind::Other);
        world.disks.disk(new).errors_in = Some(data);
        let bytes = world.random.bytes(8 * SECTOR);
        world.remember(0, &bytes);
        let write = Request::Write { sector: 0, from: Rc::new(bytes), fua: false };
        let write = world.start(1, write);
        world.turns(200);
        assert!(!write.has_ended() && world.disks.disk(new).write_error.is_none(), "{world}");
        world.set("sync_max", "max");
        world.rounds(3000);
        assert_eq!(world.disks.superblock(1).unwrap().roles[2], Role::Slot(2), "{world}");
        world.disks.disk(0).writes_hang_in = None;
        world.end(&write).unwrap();
        world.wait_idle();
        assert_eq!(world.member_state(new), Some(MemberState::Faulty), "{world}");
        assert_eq!(world.status().degraded(), 0, "{world}");
    }
}

/// Whether a disk's superblock counts on disk 0 no more.
fn has_given_up(world: &World, disk: usize) -> bool {
    let number = world.disks.superblock(0).unwrap().dev_number as usize;
    world.disks.superblock(disk).is_some_and(|found| found.roles[number] == Role::Faulty)
}

/// The power goes, and all is there; says whether the new member has the slot.
fn survives(world: &mut World, new: usize) -> bool {
    world.crash();
    let all: Vec<usize> = (0..world.disks.count()).collect();
    let force = Options { run: true, force: true, ..Options::default() };
    world.assemble(&all, &force).unwrap_or_else(|error| panic!("{error} ({world})"));
    let has_taken_over = world.member_state(new) == Some(MemberState::InSync);
    world.verify();
    has_taken_over
}

/// As [`begin`], but nothing is copied yet, and a spare takes no slot by itself.
fn begin_frozen(world: &mut World) -> usize {
    world.command(Action::Freeze).unwrap();
    let spare = usize::from(world.shape().disks);
    world.add(spare).unwrap();
    order(world, 0, spare).unwrap();
    spare
}

#[test]
fn a_spare_that_comes_later_replaces_who_wants_it() {
    let mut world = World::synced(Setup::shuffled(long(shapes::RAID6), 400));
    let member = world.disks.id(2);
    world.command(Action::Replace { member, with: None }).unwrap();
    let wants = |status: &ArrayStatus| status.members.iter().any(|member| member.want_replacement);
    assert!(wants(&world.status()), "{world}");
    let new = usize::from(world.shape().disks);
    world.add(new).unwrap();
    world.write_many(5);
    finish(&mut world);
    assert_eq!(world.member_state(2), Some(MemberState::Faulty), "{world}");
    assert_eq!(world.member_state(new), Some(MemberState::InSync), "{world}");
    assert!(!wants(&world.status()), "{world}");
    judge(&mut world, 2);
}

/// A drive that cannot mend a sector is on its way out.
#[test]
fn who_lists_bad_blocks_is_replaced() {
    let mut world = World::synced(Setup::shuffled(long(shapes::RAID5), 410));
    let new = usize::from(world.shape().disks);
    world.add(new).unwrap();
    let start = world.disks.data().start;
    world.disks.disk(1).unreadable.insert(start + 700);
    world.disks.disk(1).unreadable_for_good = true;
    world.verify();
    finish(&mut world);
    assert_eq!(world.member_state(1), Some(MemberState::Faulty), "{world}");
    assert_eq!(world.member_state(new), Some(MemberState::InSync), "{world}");
    judge(&mut world, 1);
}

#[test]
fn what_cannot_be_replaced_is_refused_with_its_reason() {
    let mut world = World::synced(Setup::new(long(shapes::RAID5), 420));
    world.add(4).unwrap();
    world.add(5).unwrap();
    assert_eq!(order(&mut world, 0, 6), Err(CommandError::NotAMember));
    assert!(matches!(order(&mut world, 0, 1), Err(CommandError::NotReplaceable(_))));
    assert!(matches!(order(&mut world, 4, 5), Err(CommandError::NotReplaceable(_))));
    order(&mut world, 0, 4).unwrap();
    assert!(matches!(order(&mut world, 0, 5), Err(CommandError::NotReplaceable(_))));
    let member = world.disks.id(4);
    assert_eq!(world.command(Action::Remove { member }).unwrap_err(), CommandError::Active);
    let mut striped = World::created(Setup::new(Shape::new(Level::Raid0, 0, 3, 16), 421));
    let member = striped.disks.id(0);
    let refused = striped.command(Action::Replace { member, with: None }).unwrap_err();
    assert_eq!(refused, CommandError::NoRedundancy);
}

/// Two members take the place of two at once, while a third fails.
#[test]
fn several_members_are_replaced_at_once() {
    let mut world = World::synced(Setup::shuffled(long(shapes::RAID6), 430));
    for (old, new) in [(0, 5), (2, 6)] {
        world.add(new).unwrap();
        order(&mut world, old, new).unwrap();
        world.write_many(2);
    }
    half_way(&mut world);
    world.fail(1);
    world.write_many(5);
    finish(&mut world);
    assert_eq!(world.member_state(5), Some(MemberState::InSync), "{world}");
    assert_eq!(world.member_state(6), Some(MemberState::InSync), "{world}");
    assert_eq!(world.check(), 0, "{world}");
    world.fail(3);
    world.verify();
}

#[test]
fn a_replaced_member_is_left_out_by_name() {
    let mut world = World::synced(Setup::new(shapes::RAID1, 440));
    let new = begin_frozen(&mut world);
    world.stop();
    // As if the copy had ended and power had failed right then.
    change_superblock(&world, new, |superblock| {
        superblock.recovery_offset_sectors = Some(superblock.size_sectors);
    });
    let data = world.disks.data();
    let data = data.start as usize * SECTOR..data.end as usize * SECTOR;
    let copy = world.disks.disk(0).bytes[data.clone()].to_vec();
    world.disks.disk(new).bytes[data].copy_from_slice(&copy);
    let left_out = world.assemble_all().unwrap();
    let name = world.disks.info(new).name;
    let expected = LeftOut { member: "disk0".to_owned(), reason: Reason::Replaced(name) };
    assert_eq!(left_out, [expected], "{world}");
    judge(&mut world, 0);
}

/// Changes the superblock of a disk while no array uses it.
fn change_superblock(world: &World, disk: usize, change: impl FnOnce(&mut Superblock)) {
    let mut superblock = world.disks.superblock(disk).unwrap();
    change(&mut superblock);
    let (at, encoded) = (superblock.place.sector as usize * SECTOR, superblock.encode());
    world.disks.disk(disk).bytes[at..at + encoded.len()].copy_from_slice(&encoded);
}

/// Mirrors, the first write-mostly, and a spare that is as the first or as the others.
fn mirrors_and_a_spare(shape: Shape, seed: u64, spare_is_write_mostly: bool) -> (World, usize) {
    let shape = Shape { write_mostly: 0b1, ..shape };
    let mut world = World::synced(Setup::shuffled(shape, seed));
    let spare = usize::from(shape.disks);
    world.add(spare).unwrap();
    if spare_is_write_mostly {
        world.stop();
        change_superblock(&world, spare, |superblock| {
            superblock.flags = MemberFlags(MemberFlags::WRITE_MOSTLY);
        });
        world.assemble_all().unwrap();
    }
    (world, spare)
}

/// A write that found no space on the write-mostly copy alone is read as new, since the other one is
/// believed. It stays new, though a replacement would make the old copy the one that is believed.
#[test]
fn a_replacement_waits_where_copies_differ_and_another_would_be_believed() {
    let shapes = [Shape { disks: 2, ..shapes::RAID1 }, shapes::RAID10];
    for (seed, (shape, old)) in (450..).zip(shapes.into_iter().flat_map(|s| [(s, 0), (s, 1)])) {
        let (mut world, new) = mirrors_and_a_spare(shape, seed, old == 1);
        world.write_many(2);
        world.disks.disk(0).write_error = Some(IoErrorKind::NoSpace);
        world.disks.disk(0).errors_in = Some(world.disks.data());
        let bytes = world.random.bytes(8 * SECTOR);
        assert_eq!(world.write(0, bytes.clone()), Err(RequestError::NoSpace), "{world}");
        world.remember(0, &bytes);
        world.verify();
        order(&mut world, old, new).unwrap();
        world.rounds(1000);
        world.verify();
        assert_eq!(world.member_state(old), Some(MemberState::InSync), "{world}");
        world.disks.disk(0).plug();
        finish(&mut world);
        assert_eq!(world.member_state(new), Some(MemberState::InSync), "{world}");
        world.verify();
        judge(&mut world, old);
    }
}

/// A crash leaves copies that differ as well.
#[test]
fn a_replacement_waits_for_resync_after_a_crash_where_another_copy_would_be_believed() {
    let shapes = [Shape { disks: 2, ..shapes::RAID1 }, shapes::RAID10];
    for (seed, (shape, old)) in (460..).zip(shapes.into_iter().flat_map(|s| [(s, 0), (s, 1)])) {
        let (mut world, new) = mirrors_and_a_spare(shape, seed, old == 1);
        world.write_many(2);
        world.command(Action::Freeze).unwrap();
        order(&mut world, old, new).unwrap();
        world.set("write_deadline", "0");
        let start = world.disks.data().start;
        world.disks.disk(0).hangs_in = Some(start..start + 8);
        let bytes = Rc::new(world.random.bytes(8 * SECTOR));
        world.remember(0, &bytes);
        world.start(0, Request::Write { sector: 0, from: bytes, fua: false });
        world.rounds(60);
        world.crash();
        world.disks.disk(0).hangs_in = None;
        world.assemble_all().unwrap();
        world.verify();
        finish(&mut world);
        assert_eq!(world.member_state(new), Some(MemberState::InSync), "{world}");
        world.verify();
        judge(&mut world, old);
    }
}

/// A mirror, the first write-mostly, that is half-way to having a member replaced by one that is
/// write-mostly or not.
fn half_replaced(seed: u64, old: usize, new_is_mostly: bool) -> (World, usize) {
    let shape = Shape { disks: 2, write_behind: 8, ..long(shapes::RAID1) };
    let (mut world, new) = mirrors_and_a_spare(shape, seed, new_is_mostly);
    for key in ["read_deadline", "write_deadline"] {
        world.set(key, "0");
    }
    order(&mut world, old, new).unwrap();
    half_way(&mut world);
    (world, new)
}

/// A write that one disk does not do until it is told. It is remembered if it is answered all the same, in
/// more time than the replacement needs to its end.
fn late_write(world: &mut World, late: usize) -> Pending {
    let start = world.disks.data().start;
    world.disks.disk(late).hangs_in = Some(start + 64..start + 72);
    let bytes = world.random.bytes(8 * SECTOR);
    let from = Rc::new(bytes.clone());
    let write = world.start(0, Request::Write { sector: 64, from, fua: true });
    world.rounds(20_000);
    if write.has_ended() {
        world.remember(64, &bytes);
    }
    write
}

/// Once it has the slot it is read like any other: without a wait for what is behind.
#[test]
fn no_write_is_behind_on_a_replacement_that_is_not_write_mostly() {
    for seed in 520..528 {
        let (mut world, new) = half_replaced(seed, 0, false);
        let write = late_write(&mut world, new);
        let was_answered = write.has_ended();
        let into = Rc::new(std::cell::RefCell::new(vec![0; 8 * SECTOR]));
        let read = world.submit(1, Request::Read { sector: 64, into: into.clone() });
        world.disks.disk(new).hangs_in = None;
        world.end(&read).unwrap();
        if was_answered {
            world.compare(64, &into.borrow());
        }
        world.end(&write).unwrap();
        let written = world.read(64, 8).unwrap();
        world.remember(64, &written);
        finish(&mut world);
        world.wait_idle();
        judge(&mut world, 0);
    }
}

/// A replacement that is not write-mostly would be believed after a crash before the copy that has all.
#[test]
fn a_crash_loses_no_write_that_would_be_behind_on_a_replacement() {
    for seed in 530..538 {
        let (mut world, new) = half_replaced(seed, 0, false);
        let write = late_write(&mut world, new);
        lose_power_and_verify(&mut world, new, &write);
    }
}

/// Where a replacement leaves write-mostly members alone, the first of them is believed after a crash.
#[test]
fn no_write_is_behind_where_a_replacement_will_leave_write_mostly_members_alone() {
    for seed in 540..548 {
        let (mut world, new) = half_replaced(seed, 1, true);
        let write = late_write(&mut world, 0);
        assert_eq!(world.member_state(new), Some(MemberState::InSync), "{world}");
        lose_power_and_verify(&mut world, 0, &write);
    }
}

/// All disks lose what they were not told to flush, and this one did not do what it was asked last.
fn lose_power_and_verify(world: &mut World, late: usize, write: &Pending) {
    world.power_cut(0..world.disks.count());
    world.disks.disk(late).hangs_in = None;
    world.assemble_all().unwrap();
    if !write.has_ended() {
        world.learn();
    }
    world.verify();
    world.wait_idle();
    world.verify();
}

/// A crash left something else on a replacement than on its member, below the place that its superblock promises. The
/// resync ends, and power fails in the update that says so, before the replacement's own superblock takes it back.
#[test]
fn a_replacement_promises_no_more_than_it_has_when_the_others_say_clean() {
    for (seed, shape) in (1..).zip([Shape { disks: 2, ..shapes::RAID1 }, shapes::RAID5]) {
        let (mut world, new) = torn_from_its_replacement(shape, seed);
        let place = world.disks.superblock(new).expect("it is a member").place.sector;
        world.disks.disk(new).hangs_in = Some(place..place + 8);
        world.sleep_ms(2000);
        world.power_cut(0..=new);
        world.disks.disk(new).hangs_in = None;
        is_replaced_by_a_right_copy(&mut world, new);
    }
}

/// As above, but it is its own write that fails, and power fails before the next update says that it is out.
#[test]
fn a_replacement_that_fails_in_the_update_that_says_clean_is_copied_anew() {
    for (seed, shape) in (20..).zip([Shape { disks: 2, ..shapes::RAID1 }, shapes::RAID5]) {
        let (mut world, new) = torn_from_its_replacement(shape, seed);
        let found = world.disks.superblock(0).expect("it is a member");
        let place = world.disks.superblock(new).expect("it is a member").place.sector;
        world.disks.disk(new).write_error = Some(IoErrorKind::Medium);
        world.disks.disk(new).errors_in = Some(place..place + 8);
        (0..new)
            .for_each(|disk| world.disks.disk(disk).cut_in_update = Some((found.events + 2, 0)));
        world.sleep_ms(2000);
        let last = world.disks.superblock(0).expect("it is a member");
        assert_eq!((last.events, last.resync_offset_sectors), (found.events + 1, RESYNC_NONE));
        world.power_cut(0..=new);
        world.disks.disk(new).plug();
        is_replaced_by_a_right_copy(&mut world, new);
    }
}

/// A member that was filled is the first to say that all agrees: with force nothing was left to resync. Power fails
/// before a replacement has taken back what it lacks since the crash before.
#[test]
fn a_replacement_promises_no_more_than_it_has_when_a_filled_member_says_clean() {
    let shape = Shape { member_sectors: 1024, ..shapes::RAID5 };
    let mut world = World::synced(Setup::new(shape, 30));
    let (new, filled) = (4, 5);
    world.set("sync_max", "1008");
    begin(&mut world, 0);
    part_is_recorded(&mut world, new, 1008);
    world.sleep_ms(30_000);
    world.fail(1);
    // So near to its end that nothing is recorded before.
    world.set("sync_max", "992");
    world.add(filled).unwrap();
    world.command(Action::Idle).unwrap();
    part_is_recorded(&mut world, filled, 992);
    let at = world.disks.data().start + 992;
    // In the last row of which the replacement has its part, and the other one not.
    let sectors: Vec<u64> = (62 * 48..63 * 48).step_by(16).collect();
    for sector in sectors {
        world.disks.disk(new).writes.clear();
        world.write_random(sector, 8);
        if world.disks.disk(new).sectors_written(at..at + 8) > 0 {
            break;
        }
    }
    let old = world.random.bytes(8 * SECTOR);
    world.disks.disk(new).bytes[at as usize * SECTOR..][..old.len()].copy_from_slice(&old);
    world.crash();
    world.assemble_with_force().unwrap();
    let place = world.disks.superblock(new).expect("it is a member").place.sector;
    world.disks.disk(new).hangs_in = Some(place..place + 8);
    world.sleep_ms(2000);
    world.power_cut(0..=filled);
    world.disks.disk(new).hangs_in = None;
    let force = Options { run: true, force: true, ..Options::default() };
    world.assemble(&[filled, 0, 2, 3, new], &force).unwrap();
    world.wait_status("the hand-over", |status| {
        status.members.iter().all(|member| !member.replacement)
    });
    assert_eq!(world.member_state(new), Some(MemberState::InSync));
    world.verify();
    world.wait_idle();
    assert_eq!(world.check(), 0, "{world}");
}

/// Waits until a disk has so many of its sectors, and says so when nothing is copied.
fn part_is_recorded(world: &mut World, disk: usize, sectors: u64) {
    world.wait_status("a part of a copy", |status| {
        status.sync.action.runs() && status.sync.completed_sectors >= sectors
    });
    world.command(Action::Freeze).unwrap();
    world.wait_status("a pause", |status| status.sync.action == SyncAction::Frozen);
    let promised = world.disks.superblock(disk).expect("it is a member").recovery_offset_sectors;
    assert_eq!(promised, Some(sectors), "{world}");
}

/// Another host has it, and it is the first to get an update.
#[test]
fn a_replacement_that_meets_a_reservation_is_the_last_to_get_an_update() {
    for (seed, shape) in some_of_every_level() {
        let mut world = World::synced(Setup::shuffled(shape, 560 + seed));
        let new = begin_frozen(&mut world);
        world.wait_clean();
        let place = world.disks.superblock(new).unwrap().place.sector;
        let before = world.disks.superblock_bytes(1);
        world.disks.disk(new).write_error = Some(IoErrorKind::Reserved);
        world.disks.disk(new).errors_in = Some(place..place + 8);
        let ended = world.write(0, vec![1; 8 * SECTOR]);
        assert_eq!(ended, Err(RequestError::Lost), "{world}");
        assert_eq!(world.status().state, ArrayState::Broken, "{world}");
        assert_eq!(world.disks.superblock_bytes(1), before, "{world}");
    }
}

/// A full copy of disk 0 that has not taken its slot over yet, where no other member is to be missed.
fn degraded_and_copied(seed: u64) -> (World, usize) {
    let mut world = World::synced(Setup::shuffled(shapes::RAID5, seed));
    world.fail(3);
    let new = begin_frozen(&mut world);
    world.write_many(2);
    world.serve(0, Request::Flush).unwrap();
    world.order(Action::Idle);
    (world, new)
}

fn is_copied(world: &World, new: usize) -> bool {
    let superblock = world.disks.superblock(new).expect("it is a member");
    superblock.recovery_offset_sectors == Some(superblock.size_sectors)
}

/// Its own superblock says that it has all, and those of the others are yet to.
#[test]
fn a_full_copy_is_the_member_when_the_old_one_fails() {
    for seed in 600..620 {
        let (mut world, new) = degraded_and_copied(seed);
        world.until("a full copy", |world| is_copied(world, new));
        assert!(!has_given_up(&world, 1), "{world}");
        world.disks.disk(0).unplug();
        world.rounds(2000);
        assert_ne!(world.status().state, ArrayState::Broken, "{world}");
        assert_eq!(world.member_state(new), Some(MemberState::InSync), "{world}");
        assert_eq!(world.member_state(0), Some(MemberState::Faulty), "{world}");
        world.write_many(3);
        world.verify();
        world.stop();
        world.assemble(&[1, 2, new], &Options::default()).unwrap();
        world.verify();
    }
}

/// The flush that makes the copy durable is that in which the old member fails.
#[test]
fn a_copy_that_is_flushed_when_the_old_member_fails_that_flush_is_the_member() {
    let mut seen = 0;
    for seed in 620..660 {
        let (mut world, new) = degraded_and_copied(seed);
        world.disks.reset_counts();
        let data = world.disks.data();
        world.until("the last of a copy", |world| {
            world.disks.disk(new).sectors_written(data.clone()) >= MEMBER_SECTORS
        });
        assert!(!is_copied(&world, new), "{world}");
        world.disks.disk(0).flush_error = Some(IoErrorKind::Gone);
        world.rounds(2000);
        // That may have been a flush of less.
        if world.status().state == ArrayState::Broken {
            continue;
        }
        seen += 1;
        assert_eq!(world.member_state(0), Some(MemberState::Faulty), "{world}");
        assert_eq!(world.member_state(new), Some(MemberState::InSync), "{world}");
        world.write_many(3);
        world.verify();
    }
    assert!(seen > 10, "only {seen}");
}

/// Power fails at any moment after that, and the old member is gone for good.
#[test]
fn a_full_copy_is_the_member_after_a_power_cut_too() {
    for rounds in 0..80 {
        let (mut world, new) = degraded_and_copied(640 + rounds);
        world.until("a full copy", |world| is_copied(world, new));
        world.disks.disk(0).unplug();
        world.rounds(rounds as usize);
        world.power_cut(0..world.disks.count());
        let force = Options { run: true, force: true, ..Options::default() };
        let started = world.assemble(&[1, 2, new], &force);
        started.unwrap_or_else(|why| panic!("{why} ({rounds} rounds, {world})"));
        assert_eq!(world.member_state(new), Some(MemberState::InSync), "{world}");
        world.verify();
    }
}

/// It fails in its first superblock as a member: nobody has heard that the old one is out, which comes back.
#[test]
fn a_full_copy_that_fails_with_the_old_member_leaves_that_on_record() {
    for seed in 720..740 {
        let (mut world, new) = degraded_and_copied(seed);
        world.until("a full copy", |world| is_copied(world, new));
        let place = world.disks.superblock(new).unwrap().place.sector;
        world.disks.disk(new).write_error = Some(IoErrorKind::Medium);
        world.disks.disk(new).errors_in = Some(place..place + 8);
        world.disks.disk(0).unplug();
        world.rounds(2000);
        assert_eq!(world.status().state, ArrayState::Broken, "{world}");
        world.crash();
        (0..=new).for_each(|disk| world.disks.disk(disk).plug());
        world.assemble_with_force().unwrap();
        world.verify();
    }
}

/// Half a replacement, and a crash in a write that came to the member and not to it. The array is assembled again.
fn torn_from_its_replacement(shape: Shape, seed: u64) -> (World, usize) {
    let mut world = World::synced(Setup::new(shape, seed));
    let new = usize::from(shape.disks);
    world.set("sync_max", "128");
    world.add(new).unwrap();
    let (member, with) = (world.disks.id(0), Some(world.disks.id(new)));
    world.command(Action::Replace { member, with }).unwrap();
    world.wait_status("half of a copy", |status| status.sync.completed_sectors >= 128);
    world.command(Action::Freeze).unwrap();
    world.wait_status("a pause", |status| status.sync.action == SyncAction::Frozen);
    let promised = world.disks.superblock(new).expect("it is a member").recovery_offset_sectors;
    assert!(promised.is_some_and(|done| done >= 64), "{promised:?}");
    let data = world.disks.data().start;
    let sectors: Vec<u64> = (0..world.sectors()).step_by(16).collect();
    for sector in sectors {
        world.disks.disk(new).writes.clear();
        world.write_random(sector, 8);
        if world.disks.disk(new).sectors_written(data..data + 8) > 0 {
            break;
        }
    }
    let at = data as usize * SECTOR;
    let old = world.random.bytes(8 * SECTOR);
    world.disks.disk(new).bytes[at..at + old.len()].copy_from_slice(&old);
    world.crash();
    world.assemble_all().unwrap();
    (world, new)
}

fn is_replaced_by_a_right_copy(world: &mut World, new: usize) {
    world.assemble_all().unwrap();
    world.wait_status("the hand-over", |status| {
        status.members.iter().all(|member| !member.replacement)
    });
    assert_eq!(world.member_state(new), Some(MemberState::InSync));
    world.verify();
    assert_eq!(world.check(), 0, "{world}");
}

/// A write found no space behind a member and came to its replacement. A resync makes the copies alike there, and the
/// bitmap's bit goes: the replacement's superblock promises that place no more by then.
#[test]
fn a_replacement_promises_nothing_that_a_bit_was_kept_for() {
    let shape = long(Shape { disks: 2, ..shapes::RAID1 });
    let mut world = World::synced(Setup::new(shape, 9));
    world.set("sync_max", "2048");
    let new = begin(&mut world, 0);
    world.wait_status("a part of a copy", |status| status.sync.completed_sectors >= 2048);
    world.command(Action::Freeze).unwrap();
    world.wait_status("a pause", |status| status.sync.action == SyncAction::Frozen);
    let data = world.disks.data();
    world.disks.disk(0).write_error = Some(IoErrorKind::NoSpace);
    world.disks.disk(0).errors_in = Some(data);
    for (sector, sectors) in [(0, 1024), (1600, 8)] {
        let bytes = world.random.bytes(sectors * SECTOR);
        assert_eq!(world.write(sector, bytes), Err(RequestError::NoSpace), "{world}");
    }
    world.disks.disk(0).write_error = None;
    world.learn();
    world.set("sync_max", "1536");
    world.command(Action::Idle).unwrap();
    world.sleep_ms(30_000);
    let (header, map) = world.disks.bitmap(1).expect("a bitmap");
    let is_marked = |sector| map.ranges().any(|bits| header.sectors_of(bits).contains(&sector));
    assert!(!is_marked(0) && is_marked(1600), "{world}");
    world.power_cut(0..=new);
    is_replaced_by_a_right_copy(&mut world, new);
}

/// A member fails in the update that a pass over the bitmap makes before it clears bits. None are: it comes back by
/// those that there are.
#[test]
fn the_bitmap_says_nothing_of_a_clearing_that_a_failed_member_kept_from_coming() {
    let mut world = World::synced(Setup::shuffled(long(shapes::RAID5), 750));
    begin_frozen(&mut world);
    world.write_random(0, 8);
    world.wait_clean();
    let before = world.disks.bitmap(0).expect("a bitmap").0.events_cleared;
    let place = world.disks.superblock(2).unwrap().place.sector;
    world.disks.disk(2).write_error = Some(IoErrorKind::Medium);
    world.disks.disk(2).errors_in = Some(place..place + 8);
    world.sleep_ms(30_000);
    assert_eq!(world.member_state(2), Some(MemberState::Faulty), "{world}");
    assert_eq!(world.disks.bitmap(0).expect("a bitmap").0.events_cleared, before, "{world}");
    world.disks.disk(2).plug();
    world.remove(2);
    let added = world.add(2).unwrap();
    assert!(matches!(added, Reply::Added { by_bitmap: true }), "{world}");
}
