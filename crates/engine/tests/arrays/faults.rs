//! Members that fail I/Os: who is told, what is written down, and what users see.

use std::rc::Rc;

use mdspace_engine::array::Action;
use mdspace_engine::assembly::{LeftOut, Options, Reason};
use mdspace_engine::backend::IoErrorKind;
use mdspace_engine::request::{Request, RequestError};
use mdspace_engine::status::{ArrayState, MemberState};

use crate::shapes::{self, DATA_OFFSET, MEMBER_SECTORS, Shape};
use crate::world::{SECTOR, Setup, World};

const KINDS: [IoErrorKind; 4] =
    [IoErrorKind::Medium, IoErrorKind::Gone, IoErrorKind::Deadline, IoErrorKind::Other];

/// A write that failed on a member is acknowledged only when the survivors' superblocks say so: power
/// fails at that very moment, the member comes back, and is known to be old.
#[test]
fn a_failed_write_is_on_the_survivors_superblocks_before_its_acknowledgement() {
    for (seed, shape) in (1..).zip(shapes::redundant()) {
        for (more, kind) in (0..).zip(KINDS) {
            let mut world = World::synced(Setup::shuffled(shape, seed * 10 + more));
            world.write_many(3);
            world.disks.disk(1).write_error = Some(kind);
            world.disks.disk(1).grace = world.random.below(2) * u64::from(shape.level.has_chunks());
            let all = world.sectors();
            world.write_random(0, all);
            world.crash();
            world.disks.disk(1).plug();
            let left_out = world.assemble_with_force().unwrap();
            let faulty = LeftOut { member: "disk1".to_owned(), reason: Reason::Faulty };
            assert_eq!(left_out, [faulty], "{world}, {kind}");
            world.verify();
        }
    }
}

/// The write may find the array clean: then the superblock write is the first to fail.
#[test]
fn a_member_that_fails_the_dirty_mark_is_done_without() {
    for (seed, shape) in (300..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.wait_clean();
        world.disks.disk(0).unplug();
        world.write_many(3);
        assert_eq!(world.member_state(0), Some(MemberState::Faulty), "{world}");
        world.verify();
    }
}

#[test]
fn more_failures_at_once_than_the_level_bears_are_not_recorded() {
    for (seed, shape) in (400..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_many(5);
        let lost = shape.can_lose() + 1;
        // RAID10 may bear it, if no block had all its copies there.
        let lost = if shape.level.has_parity() { lost } else { usize::from(shape.disks) };
        (0..lost).for_each(|disk| world.disks.disk(disk).unplug());
        let before = superblocks(&world);
        let all = world.sectors();
        let from = Rc::new(vec![7; all as usize * SECTOR]);
        let ended = world.serve(0, Request::Write { sector: 0, from, fua: false });
        assert_eq!(ended, Err(RequestError::Lost), "{world}");
        assert_eq!(world.status().state, ArrayState::Broken, "{world}");
        assert_eq!(superblocks(&world), before, "{world}");
        world.crash();
        (0..lost).for_each(|disk| world.disks.disk(disk).plug());
        assert_eq!(world.assemble_with_force().unwrap(), [], "{world}");
        world.wait_idle();
        let sevens = vec![7; SECTOR];
        let found = world.read(0, all).unwrap();
        for (sector, bytes) in found.chunks(SECTOR).enumerate() {
            let old = &world.model[sector * SECTOR..][..SECTOR];
            assert!(bytes == old || bytes == sevens, "sector {sector} is neither ({world})");
        }
        assert_eq!(world.check(), 0, "{world}");
    }
}

fn superblocks(world: &World) -> Vec<Vec<u8>> {
    let count = usize::from(world.shape().disks);
    (0..count).map(|disk| world.disks.superblock_bytes(disk)).collect()
}

/// With everything gone at once not even the dirty mark can be written: an error, not silence.
#[test]
fn nothing_waits_for_an_array_that_is_lost() {
    for (seed, shape) in (500..).zip(shapes::redundant()) {
        for clean in [true, false] {
            let mut world = World::synced(Setup::shuffled(shape, seed));
            world.write_many(1);
            if clean {
                world.wait_clean();
            }
            (0..usize::from(shape.disks)).for_each(|disk| world.disks.disk(disk).unplug());
            assert_eq!(world.write(0, vec![1; 4096]), Err(RequestError::Lost), "{world}");
            assert_eq!(world.read(0, 8), Err(RequestError::Lost), "{world}");
            world.stop();
        }
    }
}

/// A single sector that takes no write, on an array that cannot do without the member.
#[test]
fn a_write_error_on_the_last_needed_member_ends_in_an_error() {
    for (seed, shape) in (600..).zip([shapes::RAID5, shapes::RAID6, shapes::RAID1]) {
        for kind in KINDS {
            let mut world = World::synced(Setup::shuffled(shape, seed));
            (0..shape.can_lose()).for_each(|disk| world.fail(disk));
            let last = usize::from(shape.disks) - 1;
            world.disks.disk(last).write_error = Some(kind);
            let all = world.sectors() as usize * SECTOR;
            assert_eq!(world.write(0, vec![1; all]), Err(RequestError::Lost), "{world}, {kind}");
            world.stop();
        }
    }
}

#[test]
fn unreadable_sectors_are_computed_and_rewritten() {
    for (seed, shape) in (700..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_many(10);
        world.restart();
        let at: Vec<u64> = (0..5).map(|_| world.data_sector()).collect();
        for disk in 0..shape.can_lose() {
            world.disks.disk(disk).unreadable.extend(&at);
        }
        world.verify();
        world.verify();
        for disk in 0..usize::from(shape.disks) {
            assert_eq!(world.member_state(disk), Some(MemberState::InSync), "{world}");
        }
    }
}

#[test]
fn a_read_error_is_mended_on_the_medium() {
    for shape in [shapes::RAID1, shapes::RAID5, shapes::RAID6, shapes::RAID10] {
        let mut world = World::synced(Setup::new(shape, 3));
        let data = world.disks.data();
        world.disks.disk(0).unreadable.extend(data);
        world.verify();
        for sector in [0, 8, 40] {
            world.read(sector, 3).unwrap();
        }
        let left = world.disks.disk(0).unreadable.len() as u64;
        assert!(left < MEMBER_SECTORS - 30, "{left} are unreadable still ({world})");
        assert_eq!(world.member_state(0), Some(MemberState::InSync));
    }
}

#[test]
fn sectors_that_stay_unreadable_after_a_rewrite_are_read_from_elsewhere() {
    for shape in [shapes::RAID5, shapes::RAID6, shapes::RAID10] {
        let mut world = World::synced(Setup::shuffled(shape, 4));
        let data = world.disks.data();
        world.disks.disk(0).unreadable.extend(data);
        world.disks.disk(0).unreadable_for_good = true;
        world.verify();
        world.wait_status("bad blocks", |status| status.members[0].bad_ranges > 0);
        world.verify();
    }
}

#[test]
fn a_member_that_fails_a_read_is_done_without() {
    for (seed, shape) in (800..).zip(shapes::redundant()) {
        for kind in [IoErrorKind::Gone, IoErrorKind::Deadline, IoErrorKind::Other] {
            let mut world = World::synced(Setup::shuffled(shape, seed));
            world.disks.disk(1).read_error = Some(kind);
            world.verify();
            world.write_many(5);
            world.verify();
        }
    }
}

#[test]
fn a_failed_flush_fails_the_member() {
    for (seed, shape) in (900..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_many(2);
        world.disks.disk(0).flush_error = Some(IoErrorKind::Other);
        world.serve(1, Request::Flush).unwrap();
        assert_eq!(world.member_state(0), Some(MemberState::Faulty), "{world}");
        world.disks.disk(0).unplug();
        world.verify();
    }
}

#[test]
fn without_redundancy_an_error_is_the_requests_alone() {
    for (seed, shape) in (950..).zip(shapes::plain()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.disks.disk(1).write_error = Some(IoErrorKind::Medium);
        let all = world.sectors() as usize * SECTOR;
        assert_eq!(world.write(0, vec![0; all]), Err(RequestError::Lost));
        world.disks.disk(1).plug();
        world.write_random(0, all as u64 / 512);
        world.disks.disk(0).unreadable.extend(DATA_OFFSET..DATA_OFFSET + 8);
        assert_eq!(world.read(0, 8), Err(RequestError::Lost));
        world.disks.disk(0).unreadable.clear();
        world.verify();
    }
}

/// A full file system behind a member is the user's trouble: nothing is failed for it, and what was
/// half written is made to agree again.
#[test]
fn no_space_behind_a_member_fails_the_write_and_nothing_else() {
    for (seed, shape) in (1000..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_many(2);
        world.disks.disk(1).write_error = Some(IoErrorKind::NoSpace);
        let data = world.disks.data();
        world.disks.disk(1).errors_in = Some(data);
        let all = world.sectors();
        let new = world.random.bytes(all as usize * SECTOR);
        assert_eq!(world.write(0, new.clone()), Err(RequestError::NoSpace), "{world}");
        world.disks.disk(1).plug();
        world.rounds(100);
        world.wait_idle();
        assert_eq!(world.member_state(1), Some(MemberState::InSync), "{world}");
        let found = world.read(0, all).unwrap();
        for (sector, bytes) in found.chunks(SECTOR).enumerate() {
            let range = sector * SECTOR..(sector + 1) * SECTOR;
            let either = *bytes == world.model[range.clone()] || *bytes == new[range];
            assert!(either, "sector {sector} is neither ({world})");
        }
        world.model = found;
        assert_eq!(world.check(), 0, "{world}");
        world.fail(0);
        world.verify();
    }
}

/// Redundancy that cannot be made right must not keep the array busy for ever.
#[test]
fn a_resync_that_cannot_go_on_is_not_begun_again_and_again() {
    let shape = Shape { bitmap: true, ..shapes::RAID5 };
    let mut world = World::synced(Setup::new(shape, 12));
    world.write_many(20);
    world.crash();
    let data = world.disks.data();
    world.disks.disk(0).unreadable.extend(data);
    world.disks.disk(0).unreadable_for_good = true;
    world.assemble_all().unwrap();
    world.rounds(1000);
    world.disks.reset_counts();
    world.rounds(1000);
    let read = world.disks.disk(1).sectors_read();
    assert!(read < 10 * MEMBER_SECTORS, "{read} sectors were read for nothing");
}

#[test]
fn a_read_only_array_writes_nothing_even_when_a_member_fails() {
    for (seed, shape) in (1100..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_many(4);
        world.stop();
        world.disks.reset_counts();
        for disk in 0..usize::from(shape.disks) {
            world.disks.disk(disk).write_error = Some(IoErrorKind::Other);
        }
        let all: Vec<usize> = (0..usize::from(shape.disks)).collect();
        let options = Options { read_only: true, ..Options::default() };
        world.assemble(&all, &options).unwrap();
        world.verify();
        // Parity may lie on members that nobody reads.
        let reads = |disk: &usize| world.disks.disk(*disk).sectors_read();
        let used = all.iter().copied().max_by_key(reads).unwrap();
        world.disks.disk(used).read_error = Some(IoErrorKind::Gone);
        world.verify();
        world.verify();
        assert_eq!(world.member_state(used), Some(MemberState::Faulty), "{world}");
        assert_eq!(world.status().state, ArrayState::Readonly, "{world}");
        assert_eq!(world.write(0, vec![0; 4096]), Err(RequestError::ReadOnly));
        world.stop();
        for disk in all {
            assert!(world.disks.disk(disk).writes.is_empty(), "{world}, disk {disk}");
        }
    }
}

#[test]
fn a_read_only_order_holds_until_it_is_taken_back() {
    for shape in [shapes::RAID1, shapes::RAID5, Shape::new(shapes::RAID5.level, 2, 3, 8)] {
        let mut world = World::synced(Setup::shuffled(shape, 5));
        world.write_many(3);
        world.command(Action::ReadOnly).unwrap();
        world.disks.reset_counts();
        assert_eq!(world.write(0, vec![0; 512]), Err(RequestError::ReadOnly));
        world.verify();
        assert!(world.disks.disk(0).writes.is_empty());
        world.command(Action::ReadWrite).unwrap();
        world.write_many(3);
        world.restart();
        world.verify();
    }
}

/// It is failed at the first I/O behind its end, nothing wrong is read, and it is not taken back as it is.
#[test]
fn a_member_that_gets_shorter_is_failed_and_not_taken_back() {
    for (seed, shape) in (1200..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_many(3);
        let data = world.disks.data();
        let middle = (data.start + (data.end - data.start) / 2) / 8 * 8;
        world.disks.disk(1).ends_at = Some(middle);
        world.verify();
        world.write_random(0, world.sectors());
        assert_eq!(world.member_state(1), Some(MemberState::Faulty), "{world}");
        world.remove(1);
        assert!(world.add(1).is_err(), "{world}");
        world.stop();
        let _ = world.assemble_with_force().unwrap();
        assert_ne!(world.member_state(1), Some(MemberState::InSync), "{world}");
        world.verify();
    }
}
