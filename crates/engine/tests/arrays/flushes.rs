//! Flushes that fail: a device says so once, and no flush after that brings back what it lost.

use std::rc::Rc;

use mdspace_engine::backend::IoErrorKind;
use mdspace_engine::request::{Request, RequestError};
use mdspace_engine::status::{ArrayState, MemberState};

use crate::shapes::{self, Shape};
use crate::world::{Pending, SECTOR, Setup, World};

/// An array in use, on which lane 1 flushes: disk 0 has failed it, and the last disk does not answer.
fn half_failed(shape: Shape, seed: u64) -> (World, Pending) {
    let mut world = World::synced(Setup::shuffled(shape, seed));
    world.write_many(4);
    world.set("write_deadline", "0");
    let last = usize::from(shape.disks) - 1;
    world.disks.disk(0).next_flush_fails = Some(IoErrorKind::Other);
    world.disks.disk(last).flush_hangs_on = Some(1);
    let flush = world.start(1, Request::Flush);
    world.until("a failed flush", |world| world.disks.disk(0).next_flush_fails.is_none());
    (world, flush)
}

fn let_go(world: &World) {
    (0..world.disks.count()).for_each(|disk| world.disks.disk(disk).flush_hangs_on = None);
}

fn cut_all_and_look(world: &mut World) {
    world.power_cut(0..world.disks.count());
    world.assemble_with_force().unwrap();
    world.verify();
    world.wait_idle();
    assert_eq!(world.check(), 0, "{world}");
    world.verify();
}

#[test]
fn a_flush_of_another_lane_is_not_answered_past_a_failed_one() {
    for (seed, shape) in (1..).zip(shapes::redundant()) {
        for rounds in [50, 200] {
            let (mut world, first) = half_failed(shape, seed);
            let second = world.start(0, Request::Flush);
            world.rounds(rounds);
            if !second.has_ended() {
                let_go(&world);
            }
            world.end(&second).unwrap();
            let_go(&world);
            assert!(first.has_ended() || rounds < 200, "{world}");
            cut_all_and_look(&mut world);
        }
    }
}

/// A durable write may be a write and a flush. Where that flush fails the device has told of it, and the next
/// flush goes well, while the write still waits for another member.
#[test]
fn no_flush_is_answered_past_a_durable_write_whose_flush_failed() {
    for (seed, shape) in (50..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.set("write_deadline", "0");
        let half = world.sectors() / 16 * 8;
        world.write_random(half, world.sectors() - half);
        (0..world.disks.count()).for_each(|disk| world.disks.disk(disk).fua_flushes = true);
        // It goes to all members, of which the last does not answer.
        let last = usize::from(shape.disks) - 1;
        world.disks.disk(last).hangs_in = Some(world.disks.data());
        world.disks.disk(0).next_flush_fails = Some(IoErrorKind::Other);
        let from = Rc::new(world.random.bytes(half as usize * SECTOR));
        world.start(1, Request::Write { sector: 0, from, fua: true });
        world.until("a failed flush", |world| world.disks.disk(0).next_flush_fails.is_none());
        let flush = world.start(0, Request::Flush);
        world.turns(1000);
        let was_answered = flush.has_ended();
        world.disks.disk(last).hangs_in = None;
        if !was_answered {
            world.end(&flush).unwrap();
        }
        world.power_cut(0..world.disks.count());
        world.assemble_with_force().unwrap();
        let read = world.read(half, world.sectors() - half).unwrap();
        world.compare(half, &read);
    }
}

/// Nor past one that never answered: it may have met the error, and was not heard.
#[test]
fn no_flush_is_answered_past_a_durable_write_that_missed_its_deadline() {
    for (seed, shape) in (800..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.set("write_deadline", "100");
        let half = world.sectors() / 16 * 8;
        world.write_random(half, world.sectors() - half);
        world.disks.disk(0).hangs_in = Some(world.disks.data());
        let from = Rc::new(world.random.bytes(half as usize * SECTOR));
        world.start(1, Request::Write { sector: 0, from, fua: true });
        world.turns(200);
        world.disks.disk(0).flush_in_vain();
        let flush = world.start(0, Request::Flush);
        world.until("the answer", |_| flush.has_ended());
        assert_eq!(flush.result(), Some(Ok(())), "{world}");
        world.power_cut(0..world.disks.count());
        world.disks.disk(0).hangs_in = None;
        world.assemble_with_force().unwrap();
        let read = world.read(half, world.sectors() - half).unwrap();
        world.compare(half, &read);
    }
}

/// A flush waits for a durable write that hangs on a member, which is lost with all others, and removed. The flush
/// ends when the write does, though the array knows that member no more.
#[test]
fn a_flush_ends_that_waits_for_a_durable_write_of_a_removed_member() {
    let mut world = World::synced(Setup::shuffled(Shape { disks: 2, ..shapes::RAID1 }, 900));
    world.write_random(0, 8);
    world.set("write_deadline", "0");
    world.disks.disk(0).hangs_in = Some(world.disks.data());
    let from = Rc::new(world.random.bytes(8 * SECTOR));
    let write = world.start(1, Request::Write { sector: 64, from, fua: true });
    world.turns(200);
    let flush = world.start(2, Request::Flush);
    world.turns(200);
    [0, 1].into_iter().for_each(|disk| world.disks.disk(disk).unplug());
    world.start(0, Request::Write { sector: 128, from: Rc::new(vec![1; SECTOR]), fua: false });
    world.wait_status("a broken array", |status| status.state == ArrayState::Broken);
    assert!(!flush.has_ended() && !write.has_ended(), "{world}");
    world.remove(0);
    world.turns(200);
    world.disks.disk(0).hangs_in = None;
    assert_eq!(world.end(&write), Err(RequestError::Lost), "{world}");
    assert_eq!(world.end(&flush), Err(RequestError::Lost), "{world}");
    world.stop();
}

/// The controller flushes before it clears bits: what failed before is not believed then either.
#[test]
fn no_bit_is_cleared_past_a_failed_flush() {
    for (seed, shape) in (100..).zip([shapes::RAID1, shapes::RAID5, shapes::RAID6, shapes::RAID10])
    {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.set("write_deadline", "0");
        // What hangs keeps the array from being marked clean.
        let place = world.disks.data().start;
        world.disks.disk(1).hangs_in = Some(place..place + 8);
        let from = Rc::new(vec![9; 8 * SECTOR]);
        for sector in [0, 16] {
            world.start(0, Request::Write { sector, from: from.clone(), fua: false });
        }
        world.rounds(20);
        let (sector, sectors) = (world.sectors() - 64, 64);
        world.write_random(sector, sectors);
        let begun = world.status().bitmap.unwrap().dirty_bits;
        let last = usize::from(shape.disks) - 1;
        world.disks.disk(0).next_flush_fails = Some(IoErrorKind::Other);
        world.disks.disk(last).flush_hangs_on = Some(1);
        world.start(1, Request::Flush);
        for _ in 0..20 {
            world.sleep_ms(1000);
            if world.status().bitmap.unwrap().dirty_bits < begun {
                break;
            }
        }
        world.disks.disk(1).hangs_in = None;
        let_go(&world);
        world.power_cut(0..world.disks.count());
        world.assemble_with_force().unwrap();
        world.wait_idle();
        assert_eq!(world.check(), 0, "{world}");
    }
}

/// A flush fails on the very member that is being filled: what was copied there may be gone.
#[test]
fn no_member_is_called_in_sync_past_a_failed_flush() {
    for (seed, shape) in (200..).zip([shapes::RAID1, shapes::RAID5, shapes::RAID6, shapes::RAID10])
    {
        for rounds in (20..200).step_by(15) {
            let shape = Shape { member_sectors: 2048, ..shape };
            let mut world = World::synced(Setup::shuffled(shape, 100 * seed + rounds));
            let new = usize::from(shape.disks);
            world.fail(0);
            world.remove(0);
            world.add(new).unwrap();
            world.rounds(rounds as usize);
            world.disks.disk(new).next_flush_fails = Some(IoErrorKind::Other);
            let last = usize::from(shape.disks) - 1;
            world.disks.disk(last).flush_hangs_on = Some(1);
            world.start(1, Request::Flush);
            world.rounds(400);
            let_go(&world);
            world.power_cut(0..world.disks.count());
            world.assemble_with_force().unwrap();
            world.wait_idle();
            assert_eq!(world.check(), 0, "{world}, {rounds} rounds");
            world.verify();
        }
    }
}

#[test]
fn a_flush_that_finds_no_space_fails_the_member_and_is_answered_by_the_others() {
    for (seed, shape) in (300..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_many(4);
        world.disks.disk(0).next_flush_fails = Some(IoErrorKind::NoSpace);
        world.serve(1, Request::Flush).unwrap();
        assert_eq!(world.member_state(0), Some(MemberState::Faulty), "{world}");
        cut_all_and_look(&mut world);
    }
}

/// Lack of space on one member and a failure of another in the same flush: both are failed.
#[test]
fn no_space_hides_no_other_failure_in_the_same_flush() {
    for (seed, shape) in (400..).zip([shapes::RAID6, shapes::RAID1]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_many(4);
        world.disks.disk(0).next_flush_fails = Some(IoErrorKind::NoSpace);
        world.disks.disk(1).next_flush_fails = Some(IoErrorKind::Other);
        world.serve(1, Request::Flush).unwrap();
        for disk in [0, 1] {
            assert_eq!(world.member_state(disk), Some(MemberState::Faulty), "{world}");
        }
        cut_all_and_look(&mut world);
    }
}

/// Nobody else has what was lost, so no later flush may say that all is well.
#[test]
fn without_redundancy_no_flush_goes_well_after_one_that_failed() {
    for (seed, shape) in (500..).zip(shapes::plain()) {
        for (kind, told) in [
            (IoErrorKind::Other, RequestError::Lost),
            (IoErrorKind::NoSpace, RequestError::NoSpace),
        ] {
            let mut world = World::synced(Setup::shuffled(shape, seed));
            world.write_many(4);
            world.disks.disk(1).next_flush_fails = Some(kind);
            for lane in [1, 0, 2, 1] {
                assert_eq!(world.serve(lane, Request::Flush), Err(told), "{world}");
            }
            world.write_many(1);
            assert_eq!(world.serve(1, Request::Flush), Err(told), "{world}");
        }
    }
}

/// The last copy of a degraded mirror: it is not failed, and the array is broken.
#[test]
fn a_failed_flush_of_the_last_copy_is_not_followed_by_a_good_one() {
    let mut world = World::synced(Setup::shuffled(shapes::RAID1, 600));
    (1..usize::from(shapes::RAID1.disks)).for_each(|disk| world.fail(disk));
    world.write_many(2);
    world.disks.disk(0).next_flush_fails = Some(IoErrorKind::Other);
    for lane in [1, 0, 2] {
        assert_eq!(world.serve(lane, Request::Flush), Err(RequestError::Lost), "{world}");
    }
}

/// Of flushes that come while one is under way one is sent, and covers them all.
#[test]
fn flushes_that_wait_share_the_next_one() {
    let mut world = World::synced(Setup::shuffled(shapes::RAID1, 700));
    world.write_many(2);
    world.set("write_deadline", "0");
    world.disks.disk(1).flush_hangs_on = Some(1);
    let first = world.start(1, Request::Flush);
    world.turns(50);
    let before = world.disks.disk(1).flushes;
    let others: Vec<_> = (0..6).map(|lane| world.start(lane % 3, Request::Flush)).collect();
    world.turns(50);
    assert_eq!(world.disks.disk(1).flushes, before, "{world}");
    assert!(others.iter().all(|flush| !flush.has_ended()), "{world}");
    world.disks.disk(1).flush_hangs_on = None;
    world.end(&first).unwrap();
    others.iter().for_each(|flush| world.end(flush).unwrap());
    assert_eq!(world.disks.disk(1).flushes, before + 2, "{world}");
}

/// The controller's flush hangs, and a user's waits for it. The member fails meanwhile, so that the controller goes
/// on without it: so does the user's flush.
#[test]
fn a_flush_ends_that_waits_for_one_that_the_controller_gives_up() {
    for (seed, shape) in (1000..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_many(2);
        world.set("write_deadline", "0");
        // Marking the array clean flushes first.
        world.disks.disk(0).flush_hangs_on = Some(0);
        world.sleep_ms(1000);
        let flush = world.start(1, Request::Flush);
        world.turns(50);
        assert!(!flush.has_ended(), "{world}");
        world.disks.disk(0).read_error = Some(IoErrorKind::Gone);
        world.read(0, world.sectors()).unwrap();
        world.until("the end of the flush", |_| flush.has_ended());
        assert_eq!(flush.result(), Some(Ok(())), "{world}");
        assert_eq!(world.member_state(0), Some(MemberState::Faulty), "{world}");
    }
}

/// One member has refused a block that another one took, and that one goes before it is durable there. The block is
/// lost, and a flush says so: also one that begins when that member is out already. The next one is as any other.
#[test]
fn no_flush_goes_well_where_a_written_block_is_lost_with_its_last_member() {
    let shapes = [Shape { disks: 2, ..shapes::RAID1 }, shapes::RAID5, shapes::RAID10];
    for (seed, shape) in (1100..).zip(shapes) {
        for is_out_before in [false, true] {
            let mut world = World::synced(Setup::shuffled(shape, seed));
            let start = world.disks.data().start;
            world.disks.disk(0).write_error = Some(IoErrorKind::Medium);
            world.disks.disk(0).errors_in = Some(start + 4..start + 8);
            world.write_random(0, world.sectors());
            assert_ne!(world.status().members[0].bad_ranges, 0, "{world}");
            let other = 1;
            world.disks.disk(other).unplug();
            if is_out_before {
                let far = world.sectors() - 128;
                world.write(far, vec![3; 128 * SECTOR]).unwrap();
                assert_eq!(world.member_state(other), Some(MemberState::Faulty), "{world}");
            }
            assert_eq!(world.serve(0, Request::Flush), Err(RequestError::Lost), "{world}");
            assert_ne!(world.status().state, ArrayState::Broken, "{world}");
            assert_eq!(world.serve(1, Request::Flush), Ok(()), "{world}");
        }
    }
}
