//! Devices that are taken in: those that do not answer, and those that still owe an answer.

use std::rc::Rc;
use std::sync::{Arc, Mutex};

use mdspace_engine::array::{Action, CommandError, Reply};
use mdspace_engine::assembly::Options;
use mdspace_engine::backend::IoErrorKind;
use mdspace_engine::geometry::Level;
use mdspace_engine::request::Request;
use mdspace_engine::status::MemberState;

use crate::listed::{list_and_spoil, with_a_list};
use crate::shapes::{self, Shape};
use crate::world::{SECTOR, Setup, World};

type Answer = Arc<Mutex<Option<Result<Reply, CommandError>>>>;

/// Orders that a disk is added, and does not wait.
fn begin_to_add(world: &World, disk: usize) -> Answer {
    world.disks.reopen(disk);
    let answer = Answer::default();
    let told = answer.clone();
    let (member, info) = (world.disks.id(disk), world.disks.info(disk));
    world.order_with(Action::Add { member, info, only_back: false }, move |result| {
        *told.lock().unwrap() = Some(result);
    });
    answer
}

/// It hangs at its first read, or once it is written to: the bitmap, the superblock.
#[test]
fn a_device_that_hangs_while_it_is_added_holds_up_nobody_else() {
    for (seed, shape) in (1..).zip([shapes::RAID1, shapes::RAID5, shapes::RAID6, shapes::RAID10]) {
        for (hangs_in, is_written) in [(0..u64::MAX, false), (16..24, true)] {
            let mut world = World::synced(Setup::shuffled(shape, seed));
            world.write_many(2);
            let spare = usize::from(shape.disks);
            world.disks.disk(spare).hangs_in = Some(hangs_in);
            let answer = begin_to_add(&world, spare);
            let before = world.now_ms();
            world.write_many(2);
            world.status();
            world.fail(0);
            world.write_many(2);
            world.verify();
            assert_eq!(world.member_state(0), Some(MemberState::Faulty), "{world}");
            let took = world.now_ms() - before;
            assert!(took < 2000, "{took} ms ({world})");
            world.until("an answer", |_| answer.lock().unwrap().is_some());
            let refused = answer.lock().unwrap().take().unwrap().unwrap_err();
            let is_right = match is_written {
                false => matches!(refused, CommandError::Metadata(_)),
                true => matches!(refused, CommandError::MayLand(_)),
            };
            assert!(is_right, "{refused} ({world})");
            assert!(world.now_ms() - before <= 25_000, "{world}");
            world.disks.disk(spare).hangs_in = None;
            world.rounds(50);
            world.add(spare).unwrap();
            world.wait_idle();
            assert_eq!(world.status().degraded(), 0, "{world}");
            assert_eq!(world.check(), 0, "{world}");
        }
    }
}

/// It is stopped meanwhile: whoever adds a device hears of that.
#[test]
fn an_array_is_stopped_while_a_device_hangs_that_is_added() {
    let mut world = World::synced(Setup::shuffled(shapes::RAID5, 20));
    world.disks.disk(4).hangs_in = Some(0..u64::MAX);
    let answer = begin_to_add(&world, 4);
    world.stop();
    world.sleep_ms(30_000);
    let refused = answer.lock().unwrap().take().unwrap().unwrap_err();
    assert_eq!(refused, CommandError::Stopped, "{world}");
}

/// What was written to the device would land over what its owner writes there next: a stop waits for that, and if it
/// waits in vain, whoever adds the device hears of it.
#[test]
fn a_stop_waits_until_nothing_lands_on_a_device_that_is_added_or_it_is_said() {
    for (seed, shape) in (25..).zip([shapes::RAID1, shapes::RAID5]) {
        for (stop, answers) in [
            (Action::Stop, true),
            (Action::Stop, false),
            (Action::StopByForce, true),
            (Action::StopByForce, false),
        ] {
            let mut world = World::synced(Setup::shuffled(shape, seed));
            let spare = usize::from(shape.disks);
            world.disks.disk(spare).hangs_in = Some(16..24);
            let added = begin_to_add(&world, spare);
            world.sleep_ms(100);
            let stopped = Answer::default();
            let told = stopped.clone();
            world.order_with(stop, move |result| *told.lock().unwrap() = Some(result));
            world.sleep_ms(5000);
            let has_come = |answer: &Answer| answer.lock().unwrap().is_some();
            assert!(!has_come(&added) && !has_come(&stopped), "what is written may land ({world})");
            if answers {
                world.disks.disk(spare).hangs_in = None;
            }
            world.until("an answer", |_| has_come(&stopped));
            assert!(matches!(stopped.lock().unwrap().take(), Some(Ok(_))), "{world}");
            let refused =
                added.lock().unwrap().take().expect("the stop comes after it").unwrap_err();
            let is_said = matches!(refused, CommandError::MayLand(_));
            assert_eq!(is_said, !answers, "{refused} ({world})");
            assert!(answers == (refused == CommandError::Stopped), "{refused} ({world})");
        }
    }
}

/// A disk hangs in the middle of a write, is failed for it, and is to come back under another handle.
#[test]
fn a_device_that_owes_the_answer_to_a_write_is_not_taken_back() {
    for (seed, shape) in (40..).zip([shapes::RAID1, shapes::RAID5, shapes::RAID6, shapes::RAID10]) {
        for removed in [false, true] {
            let mut world = World::synced(Setup::shuffled(shape, seed));
            world.write_many(2);
            let data = world.disks.data();
            world.disks.disk(1).hangs_in = Some(data);
            let all = world.sectors();
            let old = Rc::new(vec![7; all as usize * SECTOR]);
            world.serve(1, Request::Write { sector: 0, from: old, fua: false }).unwrap();
            assert_eq!(world.member_state(1), Some(MemberState::Faulty), "{world}");
            if removed {
                world.remove(1);
            }
            for only_back in [false, true] {
                let refused = world.add_as(1, only_back).unwrap_err();
                assert_eq!(refused, CommandError::Unanswered, "{world}");
            }
            world.write_random(0, all);
            world.disks.disk(1).hangs_in = None;
            world.rounds(100);
            world.add(1).unwrap();
            world.wait_idle();
            assert_eq!(world.status().degraded(), 0, "{world}");
            assert_eq!(world.check(), 0, "{world}");
            world.verify();
        }
    }
}

/// It hung when its bitmap was written, and was refused for that. The old bytes may still land.
#[test]
fn a_device_that_was_refused_with_a_write_under_way_is_not_taken_under_another_handle() {
    for seed in 50..53 {
        let mut world = World::synced(Setup::shuffled(shapes::RAID1, seed));
        world.write_many(2);
        world.disks.disk(3).hangs_in = Some(16..24);
        let refused = world.add(3).unwrap_err();
        assert!(matches!(refused, CommandError::MayLand(_)), "{refused} ({world})");
        for only_back in [false, true] {
            let refused = world.add_as(3, only_back).unwrap_err();
            assert_eq!(refused, CommandError::Unanswered, "{world}");
        }
        world.disks.disk(3).hangs_in = None;
        world.rounds(50);
        world.add(3).unwrap();
        world.wait_idle();
        world.fail(0);
        world.wait_idle();
        assert_eq!(world.member_state(3), Some(MemberState::InSync), "{world}");
        world.verify();
    }
}

/// The number of a device that left goes to no other while it may still write what it was asked.
#[test]
fn the_number_of_a_device_that_owes_an_answer_is_not_given_away() {
    let mut world = World::synced(Setup::shuffled(shapes::RAID1, 60));
    let number = |world: &World, disk: usize| world.disks.superblock(disk).unwrap().dev_number;
    world.add(3).unwrap();
    let first = number(&world, 3);
    world.remove(3);
    world.add(3).unwrap();
    assert_eq!(number(&world, 3), first, "one that owes nothing leaves its number ({world})");
    world.fail(0);
    world.wait_idle();
    let data = world.disks.data();
    world.disks.disk(3).hangs_in = Some(data);
    let from = Rc::new(vec![7; 8 * SECTOR]);
    world.serve(1, Request::Write { sector: 0, from, fua: false }).unwrap();
    world.remove(3);
    world.add(4).unwrap();
    assert_ne!(number(&world, 4), first, "{world}");
}

/// Wherever it hangs, at its superblock or at what that leads to: it is named and left out in the end,
/// and the others wait for several no longer than for one.
#[test]
fn members_that_hang_while_an_array_is_assembled_are_left_out() {
    for (seed, hangs_in) in (40..).zip([0..u64::MAX, 8..16, 16..24]) {
        let mut world = World::synced(Setup::shuffled(shapes::RAID6, seed));
        world.stop();
        for disk in [1, 3] {
            world.disks.reopen(disk);
            world.disks.disk(disk).hangs_in = Some(hangs_in.clone());
        }
        let before = world.now_ms();
        let left_out = world.assemble_all().unwrap();
        let took = world.now_ms() - before;
        assert!(took <= 31_000, "{took} ms ({world})");
        let named: Vec<_> = left_out.iter().map(|device| device.reason.to_string()).collect();
        assert!(named.len() == 2 && named.iter().all(|why| why.contains("deadline")), "{named:?}");
        world.write_many(2);
        world.verify();
    }
}

#[test]
fn a_member_that_hangs_while_an_array_is_created_ends_that_with_its_name() {
    for hangs_in in [0..u64::MAX, 8..16] {
        let mut world = World::new(Setup::shuffled(shapes::RAID5, 50));
        world.disks.disk(2).hangs_in = Some(hangs_in);
        let before = world.now_ms();
        let error = world.try_to_create().unwrap_err();
        assert!(world.now_ms() - before <= 31_000, "{world}");
        let name = world.disks.info(2).name;
        assert!(error.to_string().contains(&name), "{error} ({world})");
    }
}

/// The others cannot say that it is out, for the array breaks over it: after a restart it is one of them, and
/// its list counts.
#[test]
fn a_list_of_bad_blocks_is_not_cleared_when_the_others_could_not_say_that_its_member_is_out() {
    let shape = Shape::new(Level::Raid1, 0, 2, 0).without_bitmap();
    let mut world = World::synced(Setup::new(shape, 90));
    world.write_random(0, 64);
    world.stop();
    list_and_spoil(&mut world, 1, true);
    world.assemble(&[0], &Options { run: true, ..Options::default() }).unwrap();
    let place = world.disks.superblock(0).unwrap().place.sector;
    world.disks.disk(0).write_error = Some(IoErrorKind::Other);
    world.disks.disk(0).errors_in = Some(place..place + 8);
    let refused = world.add(1).unwrap_err();
    assert!(matches!(refused, CommandError::Broken { .. }), "{refused} ({world})");
    world.crash();
    world.disks.disk(0).plug();
    assert_eq!(world.assemble_all().unwrap(), []);
    assert_eq!(world.status().members[1].bad_ranges, 3, "{world}");
}

/// It could not be read when the array started without it, nor when it was added. Power fails when its list of bad
/// blocks is cleared: it can be read again then, and lists nothing.
#[test]
fn a_member_that_could_not_be_read_is_out_before_its_list_is_cleared() {
    for (seed, shape) in (80..).zip([shapes::RAID1, shapes::RAID5, shapes::RAID10]) {
        let mut world = with_a_list(shape, seed);
        world.stop();
        let superblock = world.disks.superblock(0).unwrap();
        let list = superblock.bad_block_log_range().expect("every member has a log");
        {
            let mut disk = world.disks.disk(0);
            disk.unreadable.insert(superblock.place.sector);
            disk.unreadable_for_good = true;
            disk.hangs_in = superblock.bitmap_room();
        }
        assert_eq!(world.assemble_all().unwrap().len(), 1, "{world}");
        world.disks.reset_counts();
        begin_to_add(&world, 0);
        world.until("a clear list", |world| world.disks.disk(0).sectors_written(list.clone()) > 0);
        world.power_cut(0..world.disks.count());
        {
            let mut disk = world.disks.disk(0);
            (disk.unreadable_for_good, disk.hangs_in) = (false, None);
            disk.unreadable.clear();
        }
        let left_out = world.assemble_all().unwrap();
        let named: Vec<_> = left_out.iter().map(|out| out.member.as_str()).collect();
        assert_eq!(named, ["disk0"], "{world}");
        world.verify();
    }
}

#[test]
fn a_device_that_fails_in_its_first_update_was_not_added() {
    for (seed, shape) in (90..).zip([shapes::RAID1, shapes::RAID5]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        let spare = usize::from(shape.disks);
        let place = world.disks.superblock(0).unwrap().place.sector;
        world.disks.disk(spare).write_error = Some(IoErrorKind::Medium);
        world.disks.disk(spare).errors_in = Some(place..place + 8);
        let refused = world.add(spare).unwrap_err();
        assert!(matches!(refused, CommandError::Metadata(_)), "{refused} ({world})");
        assert_eq!(world.member_state(spare), None, "{world}");
        world.write_many(2);
        world.disks.disk(spare).plug();
        world.add(spare).unwrap();
    }
}

#[test]
fn nothing_was_added_to_an_array_that_broke_over_it() {
    for seed in 95..100 {
        let mut world = World::synced(Setup::shuffled(shapes::RAID5, seed));
        let room = world.disks.superblock(0).unwrap().bitmap_room().expect("a bitmap");
        let answer = begin_to_add(&world, 4);
        world.until("a bitmap", |world| world.disks.disk(4).sectors_written(room.clone()) > 0);
        [0, 1].into_iter().for_each(|disk| world.disks.disk(disk).unplug());
        world.until("an answer", |_| answer.lock().unwrap().is_some());
        let refused = answer.lock().unwrap().take().unwrap().unwrap_err();
        assert!(matches!(refused, CommandError::Broken { .. }), "{refused}: {world}");
        assert_eq!(world.member_state(4), None, "{world}");
    }
}

/// It was on its way back by the bitmap when it failed, and what it bears is gone when it is added again under the
/// same handle.
#[test]
fn a_device_that_comes_in_as_new_under_a_handle_that_was_on_its_way_back_gets_everything() {
    for (seed, shape) in (100..).zip([shapes::RAID1, shapes::RAID6]) {
        let mut world = crate::back::without_a_write(shape, seed);
        world.command(Action::Freeze).unwrap();
        let added = world.add(1).unwrap();
        assert!(matches!(added, Reply::Added { by_bitmap: true }), "{world}");
        world.fail(1);
        world.remove(1);
        world.disks.disk(1).bytes.fill(0);
        let (member, info) = (world.disks.id(1), world.disks.info(1));
        let added = world.command(Action::Add { member, info, only_back: false }).unwrap();
        assert!(matches!(added, Reply::Added { by_bitmap: false }), "{world}");
        world.command(Action::Idle).unwrap();
        world.wait_idle();
        assert_eq!(world.member_state(1), Some(MemberState::InSync), "{world}");
        assert_eq!(world.check(), 0, "{world}");
    }
}
