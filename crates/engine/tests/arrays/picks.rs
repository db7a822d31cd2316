//! What is read in doubt is read again, until something is written there: also where a member gives its block at one
//! time and not at another.

use std::cell::RefCell;
use std::rc::Rc;

use mdspace_engine::array::Action;
use mdspace_engine::assembly::Options;
use mdspace_engine::backend::IoErrorKind;
use mdspace_engine::geometry::{Geometry, Level};
use mdspace_engine::request::{Request, RequestError};
use mdspace_engine::status::{ArrayState, ArrayStatus, MemberState, SyncAction, SyncEnd};

use crate::shapes::{self, Shape};
use crate::world::{SECTOR, Setup, World};

/// Sectors of a block that is written and read as a whole.
const BLOCK: u64 = 8;

/// What becomes of the member whose block could not be read, before it is read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Nothing,
    Resync,
    Restart,
}

const ANYTHING: [Then; 3] = [Then::Nothing, Then::Resync, Then::Restart];

fn mirrors() -> Vec<Shape> {
    let mut shapes = vec![Shape::new(Level::Raid1, 0, 2, 0), shapes::RAID1];
    shapes.extend(shapes::raid10());
    shapes
}

/// Everything is written and nothing is synced by itself.
fn written(shape: Shape, seed: u64) -> World {
    let mut world = World::synced(Setup::shuffled(shape, seed));
    world.command(Action::Freeze).unwrap();
    world.write_random(0, world.sectors());
    world
}

/// The disk that a read of the first block goes to.
fn first_disk(world: &mut World) -> usize {
    disk_of(world, 0)
}

/// The disk that a read of the block goes to that begins there.
fn disk_of(world: &mut World, sector: u64) -> usize {
    if !world.shape().has_parity() {
        world.set("read_policy", "first");
    }
    world.disk_of(sector)
}

fn has_no_room(world: &World, disk: usize) {
    let data = world.disks.data();
    let mut disk = world.disks.disk(disk);
    (disk.write_error, disk.errors_in) = (Some(IoErrorKind::NoSpace), Some(data));
}

/// The first block of a disk's data, where it cannot be read before it was written.
fn becomes_unreadable(world: &World, disk: usize) {
    let start = world.disks.data().start;
    world.disks.disk(disk).unreadable.extend(start..start + BLOCK);
}

/// A write of the first block fails, for its disk has no room; what is read there then is the old block.
fn fails_for_want_of_space(world: &mut World) -> usize {
    let full = first_disk(world);
    has_no_room(world, full);
    assert_eq!(world.write(0, vec![9; BLOCK as usize * SECTOR]), Err(RequestError::NoSpace));
    let old = world.read(0, BLOCK).unwrap();
    world.compare(0, &old);
    full
}

/// Reads the first block twice, with `between` in the middle: if the first read is answered the second one gives the
/// same. Says whether it is.
fn reads_the_same(world: &mut World, what: &str, between: impl FnOnce(&mut World)) -> bool {
    let first = world.read(0, BLOCK);
    between(world);
    let again = world.read(0, BLOCK).unwrap_or_else(|error| panic!("{what}: {error} ({world})"));
    let Ok(first) = first else {
        world.compare(0, &again);
        return false;
    };
    assert!(first == again, "{what}: something else is read now ({world})");
    world.remember(0, &first);
    world.verify();
    true
}

fn then(world: &mut World, then: Then) {
    match then {
        Then::Nothing => {}
        Then::Resync => {
            world.command(Action::Idle).unwrap();
            world.wait_idle();
        }
        Then::Restart => {
            world.stop();
            world.assemble_all().unwrap();
            world.command(Action::Freeze).unwrap();
        }
    }
}

/// A crash left other bytes of the first block on this disk than on the others: as if it had missed a write.
fn crashes_with_another_block(world: &mut World, disk: usize, options: &Options) {
    let start = world.disks.data().start as usize * SECTOR;
    let bytes = start..start + BLOCK as usize * SECTOR;
    let old = world.disks.disk(disk).bytes[bytes.clone()].to_vec();
    world.write_random(0, BLOCK);
    world.crash();
    world.disks.disk(disk).bytes[bytes].copy_from_slice(&old);
    world.remember(0, &old);
    let all: Vec<usize> = (0..world.disks.count()).collect();
    world.assemble(&all, options).unwrap();
    if !options.read_only {
        world.command(Action::Freeze).unwrap();
    }
}

fn run() -> Options {
    Options { run: true, ..Options::default() }
}

/// From now on a disk has no list of what it lacks.
fn take_list(world: &mut World, disk: usize) {
    world.stop();
    world.disks.change_superblock(disk, |superblock| superblock.bad_block_log = None);
    world.assemble_all().unwrap();
    world.command(Action::Freeze).unwrap();
}

/// It cannot be read just now, and there is no room to write it again: where another copy answers, its own must not
/// be read any more.
#[test]
fn a_copy_without_room_is_not_read_again_once_another_one_was() {
    for (seed, shape) in (1..).zip(mirrors()) {
        is_not_read_again_without_room(shape, seed);
    }
}

/// A block that found no room cannot be read just now, and others give another one.
fn is_not_read_again_without_room(shape: Shape, seed: u64) {
    for has_list in [true, false] {
        for next in ANYTHING {
            let what = format!("list: {has_list}, {next:?}");
            let mut world = written(shape, seed);
            let first = first_disk(&mut world);
            if !has_list {
                take_list(&mut world, first);
            }
            let full = fails_for_want_of_space(&mut world);
            becomes_unreadable(&world, full);
            let answered = reads_the_same(&mut world, &what, |world| {
                world.disks.disk(full).unreadable.clear();
                then(world, next);
            });
            assert!(answered || !has_list, "{what}: a list can name it ({world})");
            world.disks.disk(full).plug();
            then(&mut world, Then::Resync);
            world.verify();
            assert_eq!(world.status().doubted.sectors, 0, "{what} ({world})");
            assert_eq!(world.check(), 0, "{what} ({world})");
        }
    }
}

/// The same where a crash left copies different. The block can be had: it is not an error.
#[test]
fn a_copy_that_takes_no_write_after_a_crash_is_not_read_again_once_another_one_was() {
    for (seed, shape) in (30..).zip(mirrors()) {
        for (next, kind) in ANYTHING
            .into_iter()
            .flat_map(|next| [IoErrorKind::NoSpace, IoErrorKind::Medium].map(|kind| (next, kind)))
        {
            let what = format!("{kind:?}, {next:?}");
            let mut world = written(shape, seed);
            let first = first_disk(&mut world);
            crashes_with_another_block(&mut world, first, &run());
            has_no_room(&world, first);
            world.disks.disk(first).write_error = Some(kind);
            becomes_unreadable(&world, first);
            let answered = reads_the_same(&mut world, &what, |world| {
                world.disks.disk(first).unreadable.clear();
                then(world, next);
            });
            assert!(answered, "{what}: a list can name it ({world})");
        }
    }
}

/// Nothing may be written: what another copy gave is given as long as the array runs.
#[test]
fn a_read_only_mirror_in_doubt_gives_what_can_be_read_and_goes_on_giving_it() {
    for (seed, shape) in (60..).zip(mirrors()) {
        let mut world = written(shape, seed);
        let first = first_disk(&mut world);
        crashes_with_another_block(&mut world, first, &Options { read_only: true, ..run() });
        becomes_unreadable(&world, first);
        world.disks.reset_counts();
        let answered = reads_the_same(&mut world, "read-only", |world| {
            world.disks.disk(first).unreadable.clear();
        });
        assert!(answered, "the other copy can be read ({world})");
        for disk in 0..usize::from(shape.disks) {
            assert!(world.disks.disk(disk).writes.is_empty(), "{world}");
        }
    }
}

/// A read-only array could write no list. Power fails when it takes writes, before anything more is read or written.
#[test]
fn what_a_read_only_array_gave_stays_when_it_takes_writes() {
    for (seed, shape) in (65..).zip(mirrors()) {
        let mut world = written(shape, seed);
        let first = first_disk(&mut world);
        crashes_with_another_block(&mut world, first, &Options { read_only: true, ..run() });
        becomes_unreadable(&world, first);
        let seen = world.read(0, BLOCK).unwrap();
        world.remember(0, &seen);
        world.command(Action::Freeze).unwrap();
        world.command(Action::ReadWrite).unwrap();
        world.crash();
        world.disks.disk(first).unreadable.clear();
        world.assemble_all().unwrap();
        world.command(Action::Freeze).unwrap();
        world.verify_each(0..BLOCK);
    }
}

/// Power failed in the update that takes the first copy out, for it had failed a write. One of the others says so, and is
/// missing after the next crash.
#[test]
fn what_another_copy_gave_stays_though_one_member_alone_says_that_the_first_is_out() {
    for seed in 75..80 {
        let mut world = written(shapes::RAID1, seed);
        let (first, said) = (0, 2);
        let data = world.disks.data();
        let events = world.disks.superblock(1).unwrap().events;
        {
            let mut disk = world.disks.disk(first);
            (disk.write_error, disk.errors_in) = (Some(IoErrorKind::Other), Some(data));
        }
        world.disks.disk(1).cut_in_update = Some((events + 1, 0));
        world.disks.disk(said).cut_in_update = Some((events + 2, 0));
        let bytes = world.random.bytes(BLOCK as usize * SECTOR);
        let from = Rc::new(bytes.clone());
        let write = world.start(1, Request::Write { sector: 0, from, fua: true });
        let events_of = |world: &World, disk| world.disks.superblock(disk).unwrap().events;
        world.until("the update", |world| events_of(world, said) == events + 1);
        assert!(!write.has_ended() && events_of(&world, 1) == events, "{world}");
        world.power_cut([1, said]);
        world.disks.disk(first).plug();
        world.assemble_all().unwrap();
        world.command(Action::Freeze).unwrap();
        let seen = world.read(0, BLOCK).unwrap();
        assert_eq!(seen, bytes, "{world}");
        world.remember(0, &seen);
        world.crash();
        world.assemble(&[first, 1], &run()).unwrap();
        world.command(Action::Freeze).unwrap();
        world.verify_each(0..BLOCK);
    }
}

/// The first copy is not there when the first resync is to go on, and is back after a crash. Nothing was written.
#[test]
fn what_another_copy_gave_stays_where_the_first_resync_goes_on_without_the_first_one() {
    for (seed, disks) in (85..).zip([2, 3]) {
        let mut world = World::created(Setup::shuffled(Shape { disks, ..shapes::RAID1 }, seed));
        world.set("sync_max", "128");
        let done = |status: &ArrayStatus| status.sync.completed_sectors == 128;
        world.wait_status("a part of the resync", done);
        world.stop();
        let data = world.disks.data();
        let behind = (data.start + 128) as usize * SECTOR..data.end as usize * SECTOR;
        world.disks.disk(0).bytes[behind].fill(7);
        let others: Vec<usize> = (1..usize::from(disks)).collect();
        world.assemble(&others, &Options { read_only: true, ..run() }).unwrap();
        world.command(Action::Freeze).unwrap();
        world.command(Action::ReadWrite).unwrap();
        world.learn();
        world.crash();
        world.assemble_all().unwrap();
        world.command(Action::Freeze).unwrap();
        world.verify_each(0..world.sectors());
    }
}

/// The first copy is not there when the array starts after a crash, and is back after the next one.
#[test]
fn what_another_copy_gave_stays_where_an_array_has_started_without_the_first_one() {
    for (seed, shape) in (70..).zip(mirrors()) {
        for read_only in [false, true] {
            let mut world = written(shape, seed);
            let first = first_disk(&mut world);
            world.write_random(0, BLOCK);
            let start = world.disks.data().start as usize * SECTOR;
            let bytes = start..start + BLOCK as usize * SECTOR;
            world.crash();
            // Its write had not landed.
            world.disks.disk(first).bytes[bytes].fill(7);
            let others: Vec<usize> =
                (0..usize::from(shape.disks)).filter(|at| *at != first).collect();
            world.assemble(&others, &Options { read_only, ..run() }).unwrap();
            if read_only {
                world.command(Action::ReadWrite).unwrap();
            }
            world.command(Action::Freeze).unwrap();
            world.verify_each(0..BLOCK);
            world.crash();
            world.assemble_all().unwrap();
            world.command(Action::Freeze).unwrap();
            world.verify_each(0..BLOCK);
        }
    }
}

/// The read waited behind the write that left its block in doubt: what it may do goes by what is so now.
#[test]
fn a_read_that_waited_behind_a_failed_write_leaves_no_copy_that_is_read_again() {
    for (seed, shape) in (80..).zip(mirrors()) {
        let mut world = written(shape, seed);
        let first = first_disk(&mut world);
        world.set("write_deadline", "0");
        world.set("read_deadline", "1");
        has_no_room(&world, first);
        world.disks.disk(first).hangs_in = Some(world.disks.data());
        let into = Rc::new(RefCell::new(vec![0; BLOCK as usize * SECTOR]));
        let read = world.start(0, Request::Read { sector: 0, into: into.clone() });
        world.turns(20);
        let from = Rc::new(vec![9; BLOCK as usize * SECTOR]);
        let write = world.start(1, Request::Write { sector: 0, from, fua: false });
        world.turns(20);
        world.sleep_ms(5000);
        assert!(!read.has_ended() && !write.has_ended(), "{world}");
        becomes_unreadable(&world, first);
        world.disks.disk(first).hangs_in = None;
        assert_eq!(world.end(&write), Err(RequestError::NoSpace), "{world}");
        world.end(&read).unwrap();
        world.disks.disk(first).unreadable.clear();
        world.sleep_ms(5000);
        let again = world.read(0, BLOCK).unwrap();
        assert!(*into.borrow() == again, "something else is read now ({world})");
    }
}

fn with_two_parities() -> [Shape; 2] {
    [shapes::RAID6, Shape::new(Level::Raid6, 8, 5, 16)]
}

/// Both parities give the new block, and there is no room to write it over the old one.
#[test]
fn a_block_without_room_is_not_read_again_once_two_parities_gave_another() {
    for (seed, shape) in (100..).zip(with_two_parities()) {
        is_not_read_again_without_room(shape, seed);
    }
}

/// What is accepted is what is read from then on: it is written where the block could not be read. Else that is an error:
/// the block may be right, and parity wrong.
#[test]
fn a_block_in_accepted_doubt_is_not_read_again_once_parity_gave_another() {
    for (seed, shape) in (120..).zip([shapes::RAID5, shapes::RAID6]) {
        for (next, has_room) in
            ANYTHING.into_iter().flat_map(|next| [true, false].map(|has_room| (next, has_room)))
        {
            let what = format!("room: {has_room}, {next:?}");
            let mut world = written(shape, seed);
            let first = first_disk(&mut world);
            crashes_with_another_block(&mut world, first, &run());
            world.command(Action::AcceptDoubt).unwrap();
            if !has_room {
                has_no_room(&world, first);
            }
            becomes_unreadable(&world, first);
            let answered = reads_the_same(&mut world, &what, |world| {
                world.disks.disk(first).unreadable.clear();
                then(world, next);
            });
            assert!(answered || !has_room, "{what}: parity was accepted ({world})");
        }
    }
}

/// A member fails in the read itself, and no superblock says so yet. When power fails then it is believed again.
#[test]
fn what_two_parities_give_for_a_member_that_fails_waits_until_the_others_say_that_it_is_out() {
    for (seed, shape) in (140..).zip(with_two_parities()) {
        for is_crash in [true, false] {
            let mut world = written(shape, seed);
            let first = first_disk(&mut world);
            match is_crash {
                true => crashes_with_another_block(&mut world, first, &run()),
                false => assert_eq!(fails_for_want_of_space(&mut world), first),
            }
            world.serve(0, Request::Flush).unwrap();
            let old = world.read(0, BLOCK).unwrap();
            world.compare(0, &old);
            world.disks.disk(first).unplug();
            let others = || (0..usize::from(shape.disks)).filter(|disk| *disk != first);
            let place = world.disks.superblock(first).unwrap().place.sector;
            others().for_each(|disk| world.disks.disk(disk).hangs_in = Some(place..place + 1));
            let into = Rc::new(RefCell::new(vec![0; BLOCK as usize * SECTOR]));
            let read = world.start(0, Request::Read { sector: 0, into: into.clone() });
            world.turns(500);
            if read.has_ended() {
                assert!(
                    read.result() != Some(Ok(())) || *into.borrow() == old,
                    "answered too early ({world})"
                );
            }
            others().for_each(|disk| world.disks.disk(disk).hangs_in = None);
            world.end(&read).unwrap();
            let found = into.take();
            world.power_cut(0..world.disks.count());
            world.disks.disk(first).plug();
            world.assemble_with_force().unwrap();
            world.command(Action::Freeze).unwrap();
            assert!(world.read(0, BLOCK).unwrap() == found, "{is_crash} ({world})");
            assert_ne!(world.member_state(first), Some(MemberState::InSync), "{world}");
        }
    }
}

/// Has a resync find no room on any other disk either, so that what comes after it runs.
fn resync_finds_no_room(world: &mut World) {
    (0..usize::from(world.shape().disks)).for_each(|disk| has_no_room(world, disk));
    world.command(Action::Idle).unwrap();
    world.wait_status("no space", |status| status.sync.last_end == Some(SyncEnd::NoSpace));
    world.command(Action::Freeze).unwrap();
}

/// A spare is filled from the second copy, for the first one cannot be read just then. Who is filled so must not be all
/// that has its block.
#[test]
fn a_spare_that_was_filled_from_another_copy_leaves_none_that_is_read_when_it_fails() {
    for seed in 160..164 {
        let mut world = written(shapes::RAID1, seed);
        world.fail(0);
        let full = fails_for_want_of_space(&mut world);
        resync_finds_no_room(&mut world);
        becomes_unreadable(&world, full);
        world.add(3).unwrap();
        world.command(Action::Idle).unwrap();
        world.wait_status("a full spare", |status| status.degraded() == 0);
        world.command(Action::Freeze).unwrap();
        world.disks.disk(full).unreadable.clear();
        assert!(reads_the_same(&mut world, "a spare", |world| world.fail(3)), "{world}");
    }
}

/// The same for who is to replace the member in that very slot.
#[test]
fn a_replacement_that_takes_over_gives_what_was_read_of_its_member() {
    let [raid6, other] = with_two_parities();
    for (seed, shape) in (170..).zip([shapes::RAID1, shapes::RAID10, raid6, other]) {
        let mut world = written(shape, seed);
        let full = fails_for_want_of_space(&mut world);
        resync_finds_no_room(&mut world);
        becomes_unreadable(&world, full);
        let spare = usize::from(shape.disks);
        world.add(spare).unwrap();
        let (member, with) = (world.disks.id(full), Some(world.disks.id(spare)));
        let data = world.disks.data();
        world.set("write_deadline", "0");
        world.disks.disk(spare).hangs_in = Some(data.end - BLOCK..data.end);
        world.command(Action::Replace { member, with }).unwrap();
        world.command(Action::Idle).unwrap();
        world.until("a copy of the block", |world| {
            world.disks.disk(spare).sectors_written(data.start..data.start + BLOCK) == BLOCK
        });
        world.turns(100);
        world.disks.disk(full).unreadable.clear();
        let answered = reads_the_same(&mut world, "a replacement", |world| {
            world.disks.disk(spare).hangs_in = None;
            world.wait_status("a new member", |status| {
                let is_there = |name: &str| {
                    status
                        .members
                        .iter()
                        .any(|member| member.name == name && member.state == MemberState::InSync)
                };
                is_there(&format!("disk{spare}"))
            });
            world.command(Action::Freeze).unwrap();
        });
        assert!(answered, "{world}");
    }
}

/// Doubt is accepted in a row that one member had no room for, and then a block of another one cannot be read. None where
/// it would be the same one.
fn accepted_beside_an_unreadable_block(shape: Shape, seed: u64, bad: usize) -> Option<World> {
    let mut world = written(shape, seed);
    let full = fails_for_want_of_space(&mut world);
    if bad == full {
        return None;
    }
    world.disks.disk(full).plug();
    world.command(Action::AcceptDoubt).unwrap();
    becomes_unreadable(&world, bad);
    Some(world)
}

/// It is known that parity does not fit what another member has: what it says of a block that cannot be read just now
/// is neither given nor written, nor is the block listed.
#[test]
fn accepted_parity_that_is_known_not_to_fit_says_nothing_of_a_block_that_may_be_read_again() {
    for bad in 0..usize::from(shapes::RAID5.disks) {
        let Some(mut world) = accepted_beside_an_unreadable_block(shapes::RAID5, 180, bad) else {
            continue;
        };
        verify_or_lost(&mut world);
        world.disks.disk(bad).unreadable.clear();
        world.verify();
    }
}

/// Nor does a resync write what it says over a block that is right.
#[test]
fn a_resync_computes_no_block_by_accepted_parity_that_is_known_not_to_fit() {
    for shape in [shapes::RAID5, shapes::RAID6] {
        for bad in 0..usize::from(shape.disks) {
            let Some(mut world) = accepted_beside_an_unreadable_block(shape, 240, bad) else {
                continue;
            };
            world.command(Action::Idle).unwrap();
            world.wait_idle();
            verify_or_lost(&mut world);
            world.disks.disk(bad).unreadable.clear();
            world.verify();
        }
    }
}

/// The same where memory alone lists the block when the user accepts.
#[test]
fn accepted_parity_that_is_known_not_to_fit_says_nothing_of_a_block_that_memory_alone_lists() {
    for bad in 0..usize::from(shapes::RAID5.disks) {
        let mut world = written(shapes::RAID5, 230);
        take_list(&mut world, bad);
        let full = fails_for_want_of_space(&mut world);
        if bad == full {
            continue;
        }
        world.disks.disk(full).plug();
        becomes_unreadable(&world, bad);
        verify_or_lost(&mut world);
        world.command(Action::AcceptDoubt).unwrap();
        world.disks.disk(bad).unreadable.clear();
        verify_or_lost(&mut world);
        then(&mut world, Then::Restart);
        world.verify();
    }
}

/// The pick drops off under a resync, and no superblock of the others takes a write: after a restart it is read again.
#[test]
fn a_resync_under_which_an_array_breaks_ends_no_doubt() {
    for (seed, shape) in (190..).zip(mirrors()) {
        let mut world = written(shape, seed);
        let first = first_disk(&mut world);
        crashes_with_another_block(&mut world, first, &run());
        let (data, all) = (world.disks.data(), world.disks.count());
        world.disks.disk(first).hangs_in = Some(data.start..data.start + 1);
        world.command(Action::Idle).unwrap();
        world.wait_status("a resync", |status| status.sync.action == SyncAction::Resync);
        world.turns(100);
        for disk in (0..all).filter(|disk| *disk != first) {
            let mut disk = world.disks.disk(disk);
            (disk.write_error, disk.errors_in) = (Some(IoErrorKind::Medium), Some(0..data.start));
        }
        world.disks.disk(first).unplug();
        world.disks.disk(first).hangs_in = None;
        world.wait_status("no array", |status| status.state == ArrayState::Broken);
        world.wait_idle();
        reads_the_same(&mut world, "broken", |world| {
            world.crash();
            (0..all).for_each(|disk| world.disks.disk(disk).plug());
            world.assemble(&(0..all).collect::<Vec<_>>(), &run()).unwrap();
        });
    }
}

/// Nobody can tell what is in the first block of a disk that has no list: memory alone names it, and keeps it from
/// being read.
fn is_listed_in_memory_alone(world: &mut World, disk: usize) {
    becomes_unreadable(world, disk);
    let is_lost =
        |world: &mut World| (0..BLOCK).all(|at| world.read(at, 1) == Err(RequestError::Lost));
    assert!(is_lost(world), "{world}");
    world.disks.disk(disk).unreadable.clear();
    assert!(is_lost(world), "it is not listed ({world})");
}

/// A list in memory ends with the array, and its member is believed again: what is accepted is written there first.
#[test]
fn what_memory_alone_lists_is_not_read_again_once_accepted_parity_gave_another_block() {
    for (seed, next) in (200..).zip(ANYTHING) {
        let mut world = written(shapes::RAID5, seed);
        let first = first_disk(&mut world);
        take_list(&mut world, first);
        crashes_with_another_block(&mut world, first, &run());
        is_listed_in_memory_alone(&mut world, first);
        world.command(Action::AcceptDoubt).unwrap();
        let answered = reads_the_same(&mut world, &format!("{next:?}"), |world| then(world, next));
        assert!(answered, "{next:?}: parity was accepted ({world})");
    }
}

/// The same where the row is written beside it: new parity fits what is read there after a restart too.
#[test]
fn a_write_beside_what_memory_alone_lists_leaves_no_row_that_does_not_fit() {
    for (seed, shape) in (210..).zip(with_two_parities()) {
        for next in ANYTHING {
            let mut world = written(shape, seed);
            let first = first_disk(&mut world);
            take_list(&mut world, first);
            let Geometry::Parity(map) = Geometry::new(&world.map()).unwrap() else {
                panic!("a parity level")
            };
            let q = usize::from(map.row(0).q().unwrap().0);
            crashes_with_another_block(&mut world, first, &run());
            // Without it nothing is there to compare P with.
            becomes_unreadable(&world, q);
            is_listed_in_memory_alone(&mut world, first);
            world.disks.disk(q).unreadable.clear();
            world.command(Action::AcceptDoubt).unwrap();
            let beside = u64::from(shape.chunk_sectors);
            world.write_random(beside, BLOCK);
            then(&mut world, if next == Then::Restart { Then::Resync } else { next });
            then(&mut world, Then::Restart);
            let block = world.read(0, BLOCK).unwrap();
            world.remember(0, &block);
            world.verify();
            let written = disk_of(&mut world, beside);
            world.fail(written);
            verify_or_lost(&mut world);
        }
    }
}

/// A spare is not filled where its block would come from a copy that is not the pick. A write there makes all copies
/// right, and other blocks stay in doubt: it is filled as soon as that is so.
#[test]
fn a_spare_is_filled_where_a_write_ended_the_doubt_that_kept_it_from_that() {
    let near3 = Shape::new(Level::Raid10, 0x103, 6, 16);
    for (seed, shape) in (240..).zip([Shape { disks: 6, ..shapes::RAID1 }, near3]) {
        let (here, beside) = (8 * BLOCK, 2 * BLOCK);
        let mut world = written(shape, seed);
        take_list(&mut world, 1);
        world.fail(0);
        [1, 3].into_iter().for_each(|disk| has_no_room(&world, disk));
        for sector in [here, beside] {
            let written = world.write(sector, vec![9; BLOCK as usize * SECTOR]);
            assert_eq!(written, Err(RequestError::NoSpace), "{world}");
        }
        resync_finds_no_room(&mut world);
        // Where the pick has it.
        let at = if shape.level == Level::Raid10 { here / 2 } else { here };
        let start = world.disks.data().start + at;
        world.disks.disk(1).unreadable.extend(start..start + BLOCK);
        world.add(6).unwrap();
        world.command(Action::Idle).unwrap();
        world.wait_status("all but that", |status| {
            status.sync.last_action == SyncAction::Recover
                && status.sync.last_end == Some(SyncEnd::Incomplete)
        });
        // There is room again, but not for the other blocks in doubt.
        let data = world.disks.data().start;
        (1..6).for_each(|disk| world.disks.disk(disk).errors_in = Some(data..data + 3 * BLOCK));
        world.write_random(here, BLOCK);
        world.sleep_ms(1000);
        assert_eq!(world.member_state(6), Some(MemberState::InSync), "{world}");
    }
}

/// Every sector is what was there, or an error that says so.
fn verify_or_lost(world: &mut World) {
    for sector in 0..world.sectors() {
        match world.read(sector, 1) {
            Ok(found) => world.compare(sector, &found),
            Err(error) => assert_eq!(error, RequestError::Lost, "{world}"),
        }
    }
}
