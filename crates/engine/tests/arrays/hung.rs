//! Members that do not answer: others answer for them, and what they do late changes nothing.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use mdspace_engine::array::Action;
use mdspace_engine::assembly::{LeftOut, Reason};
use mdspace_engine::request::{Request, RequestError};
use mdspace_engine::status::{ArrayState, MemberState, SyncAction, SyncEnd};

use crate::shapes::{self, Shape};
use crate::world::{Pending, SECTOR, Setup, World};

const SECOND_MS: u64 = 1000;

fn hang(world: &World, disk: usize) {
    world.disks.disk(disk).hangs_in = Some(0..u64::MAX);
}

/// Hangs a member that reads of the whole array need.
fn hang_one_that_is_read(world: &mut World) -> usize {
    world.disks.reset_counts();
    world.verify();
    let reads = |disk: &usize| world.disks.disk(*disk).sectors_read();
    let disk = (0..usize::from(world.shape().disks)).max_by_key(reads).unwrap();
    hang(world, disk);
    disk
}

fn go_on(world: &World, disk: usize) {
    world.disks.disk(disk).hangs_in = None;
}

/// A read of all sectors whose bytes are looked at later.
fn start_read(world: &World) -> (Pending, Rc<RefCell<Vec<u8>>>) {
    let into = Rc::new(RefCell::new(vec![0xa5; world.sectors() as usize * SECTOR]));
    let request = Request::Read { sector: 0, into: into.clone() };
    (world.start(0, request), into)
}

fn write_all(world: &mut World, byte: u8) -> Result<(), RequestError> {
    let bytes = vec![byte; world.sectors() as usize * SECTOR];
    world.remember(0, &bytes);
    world.write(0, bytes)
}

#[test]
fn others_answer_for_a_member_that_answers_no_read() {
    for (seed, shape) in (1..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape.without_bitmap(), seed));
        world.write_many(5);
        // Else the flush before the clean mark would fail it, as a bitmap that is cleared would.
        world.wait_clean();
        let hung = hang_one_that_is_read(&mut world);
        let before = world.now_ms();
        world.read(0, world.sectors()).unwrap();
        let took = world.now_ms() - before;
        assert!(took <= SECOND_MS + 1, "{took} ms ({world})");
        // From then on it is known to be late.
        world.verify();
        assert!(world.now_ms() - before <= SECOND_MS + 1, "{world}");
        assert_eq!(world.member_state(hung), Some(MemberState::InSync), "{world}");
        assert!(world.status().members[hung].late, "{world}");
        go_on(&world, hung);
        world.wait_status("an answer", |status| status.members.iter().all(|member| !member.late));
        world.write_many(5);
        world.verify();
        assert_eq!(world.check(), 0, "{world}");
    }
}

/// What the test above would show if nobody answered for the member.
#[test]
fn without_a_deadline_a_hung_member_hangs_its_reads() {
    for (seed, shape) in (100..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.set("read_deadline", "0");
        world.wait_clean();
        let disk = hang_one_that_is_read(&mut world);
        let hung: Vec<_> = (0..world.sectors() / 8).map(|at| world.start_read(at * 8, 8)).collect();
        world.rounds(10_000);
        assert!(hung.iter().any(|read| !read.has_ended()), "{world}");
        go_on(&world, disk);
        hung.iter().for_each(|read| world.end(read).unwrap());
    }
}

#[test]
fn a_member_that_takes_no_write_is_failed_and_what_it_does_late_changes_nothing() {
    for (seed, shape) in (200..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_many(5);
        hang(&world, 1);
        let before = world.now_ms();
        write_all(&mut world, 1).unwrap();
        let took = world.now_ms() - before;
        assert!(took <= 11 * SECOND_MS, "{took} ms ({world})");
        assert_eq!(world.member_state(1), Some(MemberState::Faulty), "{world}");
        write_all(&mut world, 2).unwrap();
        go_on(&world, 1);
        world.rounds(1000);
        world.verify();
        world.crash();
        let left_out = world.assemble_with_force().unwrap();
        let faulty = LeftOut { member: "disk1".to_owned(), reason: Reason::Faulty };
        assert_eq!(left_out, [faulty], "{world}");
        world.verify();
    }
}

/// The write may find the array clean: then the superblock write is the first to hang.
#[test]
fn superblocks_bits_and_flushes_have_the_deadline_too() {
    for (seed, shape) in (300..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.wait_clean();
        hang(&world, 0);
        let before = world.now_ms();
        write_all(&mut world, 3).unwrap();
        assert!(world.now_ms() - before <= 11 * SECOND_MS, "{world}");
        assert_eq!(world.member_state(0), Some(MemberState::Faulty), "{world}");
        go_on(&world, 0);

        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_many(1);
        hang(&world, 0);
        let before = world.now_ms();
        world.serve(1, Request::Flush).unwrap();
        assert!(world.now_ms() - before <= 11 * SECOND_MS, "{world}");
        assert_eq!(world.member_state(0), Some(MemberState::Faulty), "{world}");
        world.verify();
    }
}

/// What the controller asks has a bound of its own: else nothing is ever decided again.
#[test]
fn without_a_deadline_superblocks_bits_and_the_controllers_flushes_have_an_end() {
    for (seed, shape) in (350..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.set("write_deadline", "0");
        world.wait_clean();
        let place = world.disks.superblock(0).unwrap().place.sector;
        world.disks.disk(0).hangs_in = Some(place..place + 8);
        let before = world.now_ms();
        write_all(&mut world, 3).unwrap();
        let took = world.now_ms() - before;
        assert!((59 * SECOND_MS..=61 * SECOND_MS).contains(&took), "{took} ms ({world})");
        assert_eq!(world.member_state(0), Some(MemberState::Faulty), "{world}");
        go_on(&world, 0);
        world.verify();
    }
}

/// A lane's flush that hangs is the user's to wait for; the controller's, which comes after it, is not.
#[test]
fn the_controller_waits_for_no_flush_of_a_lane_for_ever() {
    let mut world = World::synced(Setup::shuffled(shapes::RAID1, 360));
    world.write_many(2);
    world.set("write_deadline", "0");
    world.disks.disk(1).flush_hangs_on = Some(1);
    let flush = world.start(1, Request::Flush);
    world.turns(50);
    assert!(!flush.has_ended(), "{world}");
    // Marking the array clean flushes first.
    world.wait_status("it is failed", |status| {
        status.members.iter().any(|member| member.state == MemberState::Faulty)
    });
    world.disks.disk(1).flush_hangs_on = None;
    world.end(&flush).unwrap();
    world.verify();
}

/// An error would be worse than a late answer.
#[test]
fn the_last_member_that_can_answer_is_waited_for() {
    for (seed, shape) in (400..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape.without_bitmap(), seed));
        world.write_many(5);
        let last = usize::from(shape.disks) - 1;
        let lost = if shape.level.has_parity() { shape.can_lose() } else { last };
        let may_lose = |disk: &usize| shape.level.has_parity() || *disk < shape.can_lose();
        (0..lost).filter(may_lose).for_each(|disk| world.fail(disk));
        world.wait_clean();
        (shape.can_lose()..usize::from(shape.disks)).for_each(|disk| hang(&world, disk));
        let (read, bytes) = start_read(&world);
        world.sleep_ms(4 * SECOND_MS);
        assert!(!read.has_ended(), "{world}");
        (0..usize::from(shape.disks)).for_each(|disk| go_on(&world, disk));
        world.end(&read).unwrap_or_else(|error| panic!("{error} ({world})"));
        world.compare(0, &bytes.borrow());
    }
}

#[test]
fn who_waits_for_a_member_that_is_failed_meanwhile_hears_of_it() {
    for (seed, shape) in (500..).zip([shapes::RAID5, shapes::RAID6]) {
        let mut world = World::synced(Setup::shuffled(shape.without_bitmap(), seed));
        (0..shape.can_lose()).for_each(|disk| world.fail(disk));
        world.wait_clean();
        hang(&world, shape.can_lose());
        let (read, _) = start_read(&world);
        world.sleep_ms(5 * SECOND_MS);
        assert!(!read.has_ended(), "{world}");
        let write = world.start(1, Request::Flush);
        assert_eq!(world.end(&write), Err(RequestError::Lost), "{world}");
        assert_eq!(world.end(&read), Err(RequestError::Lost), "{world}");
        assert_eq!(world.status().state, ArrayState::Broken, "{world}");
    }
}

/// Mirrors may differ before their first resync: an answer from another one could be taken back.
#[test]
fn where_mirrors_may_differ_nobody_answers_for_the_one_that_is_read() {
    for (seed, shape) in (600..).zip([shapes::RAID1, shapes::RAID10]) {
        let mut world = World::created(Setup::shuffled(shape, seed));
        world.command(Action::Freeze).unwrap();
        assert_ne!(world.status().sync.last_end, Some(SyncEnd::Complete), "{world}");
        world.learn();
        let all: Vec<usize> = (0..usize::from(shape.disks)).collect();
        all.iter().for_each(|&disk| hang(&world, disk));
        let (read, bytes) = start_read(&world);
        world.sleep_ms(5 * SECOND_MS);
        assert!(!read.has_ended(), "{world}");
        all.iter().skip(1).step_by(2).for_each(|&disk| go_on(&world, disk));
        world.sleep_ms(5 * SECOND_MS);
        assert!(!read.has_ended(), "{world}");
        all.iter().for_each(|&disk| go_on(&world, disk));
        world.end(&read).unwrap();
        world.compare(0, &bytes.borrow());
    }
}

#[test]
fn a_check_waits_for_a_late_member_and_ends_when_told_to() {
    for (seed, shape) in (700..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape.without_bitmap(), seed));
        world.write_many(5);
        world.wait_clean();
        hang(&world, 1);
        world.command(Action::Check).unwrap();
        world.sleep_ms(3 * SECOND_MS);
        assert_eq!(world.status().sync.action, SyncAction::Check, "{world}");
        world.command(Action::Idle).unwrap();
        let before = world.now_ms();
        world.wait_idle();
        assert!(world.now_ms() - before <= 2 * SECOND_MS, "{world}");
        world.command(Action::Check).unwrap();
        world.sleep_ms(3 * SECOND_MS);
        go_on(&world, 1);
        world.wait_idle();
        let status = world.status();
        assert_eq!(status.mismatch_sectors, 0, "{world}");
        assert_eq!(status.sync.skipped.sectors, 0, "{world}");
        assert_eq!(status.degraded(), 0, "{world}");
    }
}

#[test]
fn a_level_without_redundancy_waits() {
    for (seed, shape) in (800..).zip(shapes::plain()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        hang(&world, 0);
        let (read, bytes) = start_read(&world);
        let from = Rc::new(vec![9; SECTOR * world.sectors() as usize]);
        let flush = world.start(0, Request::Flush);
        world.sleep_ms(100 * SECOND_MS);
        assert!(!read.has_ended() && !flush.has_ended(), "{world}");
        go_on(&world, 0);
        world.end(&read).unwrap();
        world.end(&flush).unwrap();
        world.compare(0, &bytes.borrow());
        world.write(0, from.to_vec()).unwrap();
    }
}

/// Hanging and going on at any moment, between reads and writes of several lanes: nothing is lost.
#[test]
fn members_that_hang_now_and_then_harm_nothing() {
    for (seed, shape) in (900..).zip(shapes::redundant().into_iter().cycle().take(60)) {
        let mut world =
            World::synced(Setup::shuffled(Shape { bitmap: seed % 2 == 0, ..shape }, seed));
        for _ in 0..6 {
            let disk = world.random.below(shape.disks.into()) as usize;
            hang(&world, disk);
            let read = start_read(&world);
            let hung_ms = world.random.below(3 * SECOND_MS);
            world.sleep_ms(hung_ms);
            go_on(&world, disk);
            world.end(&read.0).unwrap();
            world.compare(0, &read.1.borrow());
            world.write_many(2);
            world.verify();
        }
        assert_eq!(world.status().degraded(), 0, "{world}");
        assert_eq!(world.check(), 0, "{world}");
    }
}

/// A durable write hangs on one member, for ever as far as users are told. The controller's flushes of the others
/// wait for what those were given, and not for it.
#[test]
fn a_durable_write_that_hangs_on_one_member_fails_no_other() {
    for (seed, shape) in (700..).zip([shapes::RAID1, shapes::RAID6, shapes::RAID10]) {
        for hung in 0..usize::from(shape.disks) {
            let mut world = World::synced(Setup::shuffled(shape, seed));
            ["read_deadline", "write_deadline"].iter().for_each(|key| world.set(key, "0"));
            world.write_random(0, world.sectors());
            let data = world.disks.data();
            world.disks.disk(hung).hangs_in = Some(data.clone());
            let from = Rc::new(world.random.bytes(world.sectors() as usize / 2 * SECTOR));
            world.remember(0, &from);
            let write = world.start(0, Request::Write { sector: 0, from, fua: true });
            // Bits that are idle are cleared after a flush.
            world.sleep_ms(200 * SECOND_MS);
            for disk in (0..usize::from(shape.disks)).filter(|disk| *disk != hung) {
                let state = world.member_state(disk);
                assert_eq!(state, Some(MemberState::InSync), "disk {disk}, {hung} hangs ({world})");
            }
            go_on(&world, hung);
            world.end(&write).unwrap();
            world.verify();
        }
    }
}

/// Members that gave a block are flushed before it is written again, and no others: one that does not answer would keep
/// its reader waiting.
#[test]
fn a_block_is_mended_beside_a_member_that_answers_no_flush_and_gave_nothing() {
    for seed in 400..402 {
        let shape = shapes::RAID6;
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.set("write_deadline", "0");
        let hung = hang_one_that_is_read(&mut world);
        let data = world.disks.data();
        world.disks.disk(hung).hangs_in = Some(data.clone());
        world.verify();
        world.disks.disk(hung).flush_hangs_on = Some(1);
        let other = (hung + 1) % usize::from(shape.disks);
        world.disks.disk(other).unreadable.extend(data.start..data.start + 8);
        for sector in 0..world.sectors() {
            let into = Rc::new(RefCell::new(vec![0; SECTOR]));
            world.serve(1, Request::Read { sector, into: into.clone() }).unwrap();
            world.compare(sector, &into.take());
        }
        assert!(world.disks.disk(other).unreadable.is_empty(), "it is not mended ({world})");
        world.disks.disk(hung).flush_hangs_on = None;
        go_on(&world, hung);
        world.verify();
    }
}

/// Two members hang. One of them answers again: it may do for what waits for the other one, however long that took.
#[test]
fn what_waits_for_a_late_member_is_done_by_another_one_that_answers_again() {
    for hangs_for_ms in [5 * SECOND_MS, 30 * SECOND_MS] {
        let shapes = [shapes::RAID1, shapes::RAID5, shapes::RAID6, shapes::RAID10];
        let cases = (410..).zip(shapes).flat_map(|case| [false, true].map(|writes| (case, writes)));
        for ((seed, shape), writes) in cases {
            for stays in 0..2 {
                let what = format!("writes: {writes}, {stays} stays, after {hangs_for_ms} ms");
                let mut world = World::synced(Setup::shuffled(shape.without_bitmap(), seed));
                world.write_random(0, world.sectors());
                let data = world.disks.data();
                let hung: Vec<usize> = (0..=shape.can_lose()).collect();
                for disk in &hung {
                    world.disks.disk(*disk).hangs_in = Some(data.clone());
                }
                let (read, into) = start_read(&world);
                let write = writes && shape.has_parity();
                let bytes = vec![7; SECTOR];
                let written = write.then(|| {
                    world.start(
                        1,
                        Request::Write { sector: 0, from: Rc::new(bytes.clone()), fua: false },
                    )
                });
                world.sleep_ms(hangs_for_ms);
                for disk in hung.iter().filter(|disk| **disk != stays) {
                    go_on(&world, *disk);
                }
                world.sleep_ms(60 * SECOND_MS);
                assert!(read.has_ended(), "{what}: the read waits ({world})");
                assert!(
                    written.is_none_or(|write| write.has_ended()),
                    "{what}: the write waits ({world})"
                );
                drop(into);
                go_on(&world, stays);
            }
        }
    }
}

/// Each read is answered, but later than a write may be.
#[test]
fn a_member_slower_than_the_write_deadline_keeps_no_sync_task_from_its_end() {
    let shapes = [shapes::RAID1, shapes::RAID5, shapes::RAID6, shapes::RAID10];
    for (seed, shape) in (450..).zip(shapes) {
        let mut world = World::synced(Setup::shuffled(shape.without_bitmap(), seed));
        world.write_random(0, world.sectors());
        world.wait_clean();
        world.disks.disk(0).reads_take = Duration::from_secs(15);
        world.command(Action::Check).unwrap();
        world.sleep_ms(4000 * SECOND_MS);
        assert_eq!(world.status().sync.action, SyncAction::Idle, "the check has no end ({world})");
        assert_eq!(world.status().mismatch_sectors, 0, "{world}");
    }
}

/// A check that has waited longer than at first for reads of disk 0, and that has more to read.
fn with_a_patient_check(shape: Shape, seed: u64) -> World {
    let mut world = World::synced(Setup::shuffled(shape.without_bitmap(), seed));
    world.write_random(0, world.sectors());
    world.wait_clean();
    world.set("sync_max", "128");
    world.disks.disk(0).reads_take = Duration::from_secs(15);
    world.command(Action::Check).unwrap();
    world.wait_status("half of it", |status| status.sync.completed_sectors == 128);
    world.disks.disk(0).reads_take = Duration::ZERO;
    world.wait_status("an answer", |status| status.members.iter().all(|member| !member.late));
    world
}

/// What is in flight when the task is told to end has the time that each read has.
#[test]
fn a_check_that_is_told_to_end_in_a_long_wait_ends_soon_and_calls_none_late_that_answers() {
    let shapes = [shapes::RAID1, shapes::RAID5, shapes::RAID6, shapes::RAID10];
    for (seed, shape) in (460..).zip(shapes) {
        for hangs in [false, true] {
            let mut world = with_a_patient_check(shape, seed);
            for disk in 0..usize::from(shape.disks) {
                world.disks.disk(disk).reads_take = Duration::from_millis(800);
            }
            if hangs {
                hang(&world, 0);
            }
            world.set("sync_max", "max");
            world.sleep_ms(600);
            assert_eq!(world.status().sync.action, SyncAction::Check, "{world}");
            world.command(Action::Idle).unwrap();
            for _ in 0..20 {
                world.sleep_ms(SECOND_MS / 10);
                let late = world.status().members.iter().skip(1).any(|member| member.late);
                assert!(!late, "a member that answers is called late ({world})");
            }
            assert_eq!(world.status().sync.action, SyncAction::Idle, "it does not end ({world})");
        }
    }
}

/// Users wait for the claim of a window. Only what was slow of late makes that longer.
#[test]
fn a_check_waits_no_longer_than_at_first_where_no_read_was_slow_of_late() {
    let shapes = [shapes::RAID1, shapes::RAID5, shapes::RAID6, shapes::RAID10];
    for (seed, shape) in (470..).zip(shapes) {
        let mut world = with_a_patient_check(shape, seed);
        world.sleep_ms(200 * SECOND_MS);
        hang(&world, 0);
        world.set("sync_max", "max");
        world.sleep_ms(SECOND_MS / 2);
        let data = world.disks.data();
        let sector = 128 * world.sectors() / (data.end - data.start);
        let from = Rc::new(vec![7; SECTOR]);
        let write = world.start(0, Request::Write { sector, from, fua: false });
        world.sleep_ms(14 * SECOND_MS);
        assert!(write.has_ended(), "the write waits ({world})");
    }
}

/// A sector for which the drive tries for long before it gives it up, and that no other member gives.
#[test]
fn a_read_of_what_only_a_slow_member_could_give_ends_when_that_says_no() {
    for (seed, shape, lost) in [(440, shapes::RAID1, &[1, 2][..]), (441, shapes::RAID10, &[1])] {
        let mut world = World::synced(Setup::shuffled(shape.without_bitmap(), seed));
        world.write_random(0, world.sectors());
        world.wait_clean();
        lost.iter().for_each(|disk| world.fail(*disk));
        let data = world.disks.data();
        world.disks.disk(0).unreadable.insert(data.start + 3);
        world.disks.disk(0).reads_take = Duration::from_secs(3);
        let into = Rc::new(RefCell::new(vec![0xa5; 8 * SECTOR]));
        let read = world.start(0, Request::Read { sector: 0, into });
        world.sleep_ms(2 * SECOND_MS);
        let from = Rc::new(vec![7; SECTOR]);
        let write = world.start(0, Request::Write { sector: 3, from, fua: false });
        world.sleep_ms(100 * SECOND_MS);
        assert!(read.has_ended(), "the read waits ({world})");
        assert_eq!(world.end(&read), Err(RequestError::Lost), "({world})");
        assert!(write.has_ended(), "the write waits behind it ({world})");
    }
}

/// One member hangs. Of two others each lacks another block of a row: as a whole it cannot be computed, block by block
/// it can.
#[test]
fn a_wide_read_waits_for_no_late_member_that_its_blocks_can_do_without() {
    for seed in 420..424 {
        let mut world = World::synced(Setup::shuffled(shapes::RAID6.without_bitmap(), seed));
        world.write_random(0, world.sectors());
        let data = world.disks.data();
        let rows = data.clone().step_by(16);
        world.disks.disk(0).hangs_in = Some(data);
        world.disks.disk(1).unreadable.extend(rows.clone());
        world.disks.disk(2).unreadable.extend(rows.map(|row| row + 8));
        let (read, into) = start_read(&world);
        world.sleep_ms(60 * SECOND_MS);
        assert!(read.has_ended(), "the read waits ({world})");
        world.end(&read).unwrap();
        world.compare(0, &into.take());
        go_on(&world, 0);
        world.verify();
    }
}

/// Each is late with every read, and answers in the end.
#[test]
fn members_that_are_late_with_every_read_keep_none_from_its_end() {
    let shapes = [shapes::RAID1, shapes::RAID5, shapes::RAID6, shapes::RAID10];
    for (seed, shape) in (420..).zip(shapes) {
        let mut world = World::synced(Setup::shuffled(shape.without_bitmap(), seed));
        world.write_random(0, world.sectors());
        world.wait_clean();
        world.set("write_deadline", "0");
        for disk in 0..usize::from(shape.disks) {
            world.disks.disk(disk).reads_take = Duration::from_secs(20);
        }
        let into = Rc::new(RefCell::new(vec![0xa5; 8 * SECTOR]));
        let read = world.start(0, Request::Read { sector: 0, into: into.clone() });
        world.sleep_ms(400 * SECOND_MS);
        assert!(read.has_ended(), "the read waits ({world})");
        world.end(&read).unwrap();
        world.compare(0, &into.borrow());
    }
}
