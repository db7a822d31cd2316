//! Arrays that are told to end while members do not answer.

use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mdspace_engine::array::{Action, CommandError, Reply};
use mdspace_engine::backend::IoErrorKind;
use mdspace_engine::request::Request;

use crate::shapes::{self, Shape};
use crate::world::{Pending, SECTOR, Setup, World};

type Answer = Arc<Mutex<Option<Result<Reply, CommandError>>>>;

fn order(world: &World, action: Action) -> Answer {
    let answer = Answer::default();
    let told = answer.clone();
    world.order_with(action, move |result| *told.lock().unwrap() = Some(result));
    answer
}

fn has_come(answer: &Answer) -> bool {
    answer.lock().unwrap().is_some()
}

fn taken(answer: &Answer) -> Result<Reply, CommandError> {
    answer.lock().unwrap().take().unwrap()
}

/// A degraded array in which a small write waits for a member that it needs, and that answers no reads.
fn waits_for_a_late_member(shape: Shape, seed: u64) -> (World, Pending) {
    let mut world = World::synced(Setup::shuffled(shape, seed));
    world.write_many(2);
    world.fail(0);
    world.set("write_deadline", "0");
    let data = world.disks.data();
    (1..usize::from(shape.disks)).for_each(|disk| {
        world.disks.disk(disk).hangs_in = Some(data.clone());
    });
    let from = Rc::new(vec![7; 2 * SECTOR]);
    let write = world.start(1, Request::Write { sector: 1, from, fua: false });
    world.sleep_ms(5000);
    assert!(!write.has_ended(), "{world}");
    (world, write)
}

#[test]
fn a_stop_by_force_ends_within_seconds_and_says_who_has_not_answered() {
    for (seed, shape) in (1..).zip([shapes::RAID5, shapes::RAID1, shapes::RAID10]) {
        for first in [Some(Action::Stop), None] {
            let (mut world, _) = waits_for_a_late_member(shape, seed);
            let before = world.now_ms();
            let waits = first.map(|action| order(&world, action));
            world.sleep_ms(20_000 * u64::from(waits.is_some()));
            assert!(waits.iter().all(|answer| !has_come(answer)), "{world}");
            let forced = order(&world, Action::StopByForce);
            world.until("the end", |_| has_come(&forced));
            let took = world.now_ms() - before;
            assert!(took < 35_000, "{took} ms ({world})");
            let Ok(Reply::Stopped { unanswered }) = taken(&forced) else { panic!("{world}") };
            assert!(!unanswered.is_empty(), "{world}");
            assert!(waits.iter().all(has_come), "{world}");
            // It is found as after a crash, and everything that was answered is there.
            world.crash();
            (0..usize::from(shape.disks)).for_each(|disk| world.disks.disk(disk).hangs_in = None);
            world.assemble_with_force().unwrap();
            assert_ne!(world.disks.superblock(1).unwrap().resync_offset_sectors, u64::MAX);
            let rest = world.read(64, world.sectors() - 64).unwrap();
            world.compare(64, &rest);
        }
    }
}

/// No pass clears bits meanwhile: it would wait for a flush of the late member, and the end by force for the pass.
#[test]
fn no_bits_are_cleared_while_an_array_is_stopped() {
    for (seed, shape) in (20..).zip([shapes::RAID5, shapes::RAID1, shapes::RAID10]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.set("write_deadline", "0");
        world.write_random(0, world.sectors());
        world.sleep_ms(1000);
        let data = world.disks.data();
        world.disks.disk(1).hangs_in = Some(data);
        world.disks.disk(1).flush_hangs_on = Some(0);
        let from = Rc::new(vec![7; world.sectors() as usize * SECTOR]);
        let write = world.start(1, Request::Write { sector: 0, from, fua: false });
        world.sleep_ms(1000);
        let before = world.now_ms();
        let forced = order(&world, Action::StopByForce);
        world.until("the end", |_| has_come(&forced));
        let took = world.now_ms() - before;
        assert!((10_000..12_000).contains(&took), "{took} ms ({world})");
        drop(write);
    }
}

/// Where nothing stands against it, force changes nothing.
#[test]
fn a_stop_by_force_of_a_quiet_array_leaves_it_clean() {
    for (seed, shape) in (10..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_many(3);
        let answer = order(&world, Action::StopByForce);
        world.until("the end", |_| has_come(&answer));
        assert!(matches!(taken(&answer), Ok(Reply::Done)), "{world}");
        world.forget_array();
        assert_eq!(world.disks.superblock(1).unwrap().resync_offset_sectors, u64::MAX, "{world}");
        world.assemble_all().unwrap();
        world.verify();
    }
}

/// A process that abandons its array leaves it so. Acknowledged data is there.
#[test]
fn an_abandoned_array_ends_in_a_second_and_is_found_as_after_a_crash() {
    for (seed, shape) in (70..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_many(3);
        let (before, answer) = (world.now_ms(), order(&world, Action::Abandon));
        world.until("the end", |_| has_come(&answer));
        let took = world.now_ms() - before;
        assert!(took < 3000, "{took} ms ({world})");
        assert!(matches!(taken(&answer), Ok(Reply::Stopped { .. })), "{world}");
        world.forget_array();
        assert_ne!(world.disks.superblock(1).unwrap().resync_offset_sectors, u64::MAX, "{world}");
        world.assemble_all().unwrap();
        world.verify();
    }
}

#[test]
fn an_array_is_abandoned_though_members_do_not_answer_and_an_order_to_stop_waits() {
    for (seed, shape) in (80..).zip([shapes::RAID5, shapes::RAID1, shapes::RAID10]) {
        let (mut world, _) = waits_for_a_late_member(shape, seed);
        let waits = order(&world, Action::Stop);
        world.sleep_ms(5000);
        assert!(!has_come(&waits), "{world}");
        let (before, abandoned) = (world.now_ms(), order(&world, Action::Abandon));
        world.until("the end", |_| has_come(&abandoned) && has_come(&waits));
        let took = world.now_ms() - before;
        assert!(took < 15_000, "{took} ms ({world})");
    }
}

/// The member that a stop waits for can still be failed, with all that it takes along.
#[test]
fn a_member_is_failed_while_a_stop_waits_for_it() {
    for (seed, shape) in (30..).zip([shapes::RAID4, shapes::RAID5]) {
        let (mut world, write) = waits_for_a_late_member(shape, seed);
        let stop = order(&world, Action::Stop);
        world.sleep_ms(5000);
        assert!(!has_come(&stop), "{world}");
        let refused = world.command(Action::Check).unwrap_err();
        assert_eq!(refused, CommandError::Stopped, "{world}");
        for disk in 1..usize::from(shape.disks) {
            let member = world.disks.id(disk);
            let failed = order(&world, Action::Fail { member, force: true });
            world.until("an answer", |_| has_come(&failed));
            let failed = taken(&failed);
            assert!(matches!(failed, Ok(Reply::Done) | Err(CommandError::Stopped)), "{world}");
        }
        world.until("the end", |_| has_come(&stop));
        world.until("an error", |_| write.has_ended());
    }
}

/// Nobody judges it any more, and whoever embeds the array waits for its end.
#[test]
fn a_write_that_fails_after_a_stop_by_force_has_an_end() {
    for (seed, shape) in (50..).zip([shapes::RAID5, shapes::RAID1, shapes::RAID10]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.set("write_deadline", "0");
        let (data, disks) = (world.disks.data(), 0..usize::from(shape.disks));
        disks.clone().for_each(|disk| world.disks.disk(disk).hangs_in = Some(data.clone()));
        let from = Rc::new(vec![7; world.sectors() as usize * SECTOR]);
        let write = world.start(0, Request::Write { sector: 0, from, fua: false });
        world.sleep_ms(1000);
        let forced = order(&world, Action::StopByForce);
        world.until("the end", |_| has_come(&forced));
        assert!(!write.has_ended(), "{world}");
        for disk in disks {
            let mut disk = world.disks.disk(disk);
            (disk.hangs_in, disk.write_error) = (None, Some(IoErrorKind::Medium));
        }
        world.until("an error", |_| write.has_ended());
        assert!(write.result().is_some_and(|result| result.is_err()), "{world}");
    }
}

/// Users write all the time, and one more write is under way whenever another ends.
#[test]
fn under_load_an_order_to_refuse_writes_or_to_stop_has_an_end() {
    let orders = [Action::ReadOnly, Action::Stop];
    let shapes = [shapes::RAID1, shapes::RAID5].into_iter().zip(1..);
    for ((shape, seed), order_of) in
        shapes.flat_map(|shape| orders.clone().map(|order| (shape, order)))
    {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        (0..usize::from(shape.disks)).for_each(|disk| {
            world.disks.disk(disk).takes = Duration::from_micros(800);
        });
        let (mut pending, mut written) = (Vec::new(), 0);
        let mut load = |world: &World| {
            pending.retain(|write: &Pending| !write.has_ended());
            while pending.len() < 12 {
                let (lane, sector) = (written % 3, written as u64 * 4 % 128);
                let from = Rc::new(vec![written as u8; 4 * SECTOR]);
                pending.push(world.start(lane, Request::Write { sector, from, fua: false }));
                written += 1;
            }
        };
        (0..50).for_each(|_| {
            load(&world);
            world.rounds(1);
        });
        let (before, answer) = (world.now_ms(), order(&world, order_of));
        while !has_come(&answer) {
            load(&world);
            world.rounds(1);
            let waits = world.now_ms() - before;
            assert!(has_come(&answer) || waits < 1000, "{waits} ms, {world}");
        }
        assert!(matches!(taken(&answer), Ok(Reply::Done)), "{world}");
    }
}
