//! Before a member that works is given up the others are flushed: what becomes of users' flushes beside that question.

use std::time::Duration;

use mdspace_engine::array::{Action, CommandError};
use mdspace_engine::request::Request;
use mdspace_engine::status::MemberState;

use crate::given_up::fail;
use crate::shapes::{self, Shape};
use crate::world::{Setup, World};

/// All is written, and the second disk answers no flush of the controller's lane.
fn beside_a_flush_that_hangs(shape: Shape, seed: u64) -> World {
    let mut world = World::synced(Setup::shuffled(shape, seed));
    world.write_random(0, world.sectors());
    world.disks.disk(1).flush_hangs_on = Some(0);
    world
}

/// It was the question that flushed it. The next flush finds a member that answers.
#[test]
fn a_member_that_was_late_with_the_flush_that_an_order_asked_for_has_not_failed() {
    for (seed, shape) in (285..).zip(shapes::of_one_loss()) {
        let mut world = beside_a_flush_that_hangs(shape, seed);
        let late = world.disks.info(1).name;
        let refused = fail(&mut world, 0, false);
        assert_eq!(refused, Err(CommandError::NeedsLate { late }), "{world}");
        // A user's flush waits behind it, and no longer than it may.
        let flush = world.start(1, Request::Flush);
        world.sleep_ms(1000);
        assert!(!flush.has_ended(), "{world}");
        world.disks.disk(1).flush_hangs_on = None;
        assert_eq!(world.end(&flush), Ok(()), "{world}");
        assert_eq!(world.serve(1, Request::Flush), Ok(()), "{world}");
        assert_eq!(world.status().degraded(), 0, "{world}");
        world.verify();
    }
}

#[test]
fn a_flush_behind_one_that_an_order_asked_for_fails_the_member_in_its_own_time() {
    for (seed, shape) in (288..).zip(shapes::of_one_loss()) {
        let mut world = beside_a_flush_that_hangs(shape, seed);
        assert!(fail(&mut world, 0, false).is_err(), "{world}");
        let flush = world.start(1, Request::Flush);
        world.sleep_ms(11_000);
        assert_eq!(world.end(&flush), Ok(()), "{world}");
        assert_eq!(world.member_state(1), Some(MemberState::Faulty), "{world}");
        world.disks.disk(1).flush_hangs_on = None;
        world.verify();
    }
}

/// It began to wait behind a flush that had a deadline. Then the question's took the turn, which has none.
#[test]
fn a_flush_that_the_question_overtakes_fails_the_member_in_its_own_time() {
    let shapes = [shapes::RAID6, shapes::RAID6.without_bitmap(), shapes::RAID5.without_bitmap()];
    for (seed, shape) in (300..).zip(shapes) {
        let mut world = beside_a_flush_that_hangs(shape, seed);
        let first = world.start(0, Request::Flush);
        world.turns(100);
        let member = world.disks.id(0);
        world.order(Action::Fail { member, force: false });
        world.turns(200);
        let second = world.start(1, Request::Flush);
        world.turns(100);
        world.dozing = Some(1);
        world.disks.disk(1).takes = Duration::from_millis(5);
        world.disks.disk(1).flush_hangs_on = None;
        world.until("the first flush", |_| first.has_ended());
        world.disks.disk(1).flush_hangs_on = Some(0);
        world.disks.disk(1).takes = Duration::ZERO;
        world.dozing = None;
        world.sleep_ms(60_000);
        assert!(second.has_ended(), "{world}");
        assert_eq!(world.member_state(1), Some(MemberState::Faulty), "{world}");
    }
}

/// Two wait behind the question's flush. The next one is sent by one of them, and has all its time.
#[test]
fn a_member_whose_flushes_are_all_in_time_has_not_failed() {
    for seed in 310..320 {
        let mut world = beside_a_flush_that_hangs(shapes::RAID5, seed);
        let member = world.disks.id(0);
        world.order(Action::Fail { member, force: false });
        world.turns(50);
        let flushes = [1, 2].map(|lane| world.start(lane, Request::Flush));
        world.turns(50);
        world.sleep_ms(6_000);
        world.disks.disk(1).flush_hangs_on = Some(1);
        world.turns(100);
        world.sleep_ms(6_000);
        world.disks.disk(1).flush_hangs_on = None;
        flushes.iter().for_each(|flush| assert_eq!(world.end(flush), Ok(()), "{world}"));
        assert_eq!(world.member_state(1), Some(MemberState::InSync), "{world}");
    }
}

/// The process is stopped, or its machine paused, while others are asked.
#[test]
fn no_member_has_failed_that_another_flush_was_waited_for_while_all_stood_still() {
    for (seed, shape) in (325..).zip(shapes::of_one_loss()) {
        let mut world = beside_a_flush_that_hangs(shape, seed);
        assert!(fail(&mut world, 0, false).is_err(), "{world}");
        let flush = world.start(1, Request::Flush);
        world.turns(100);
        world.stand_still_ms(60_000);
        world.turns(100);
        assert!(!flush.has_ended(), "{world}");
        world.disks.disk(1).flush_hangs_on = None;
        assert_eq!(world.end(&flush), Ok(()), "{world}");
        assert_eq!(world.status().degraded(), 0, "{world}");
        world.verify();
    }
}

/// What others are asked by is stopped too.
#[test]
fn an_order_to_fail_a_member_finds_no_other_one_late_where_all_stood_still() {
    for (seed, shape) in (328..).zip(shapes::of_one_loss()) {
        let mut world = beside_a_flush_that_hangs(shape, seed);
        let member = world.disks.id(0);
        let (answer, answered) = std::sync::mpsc::channel();
        let action = Action::Fail { member, force: false };
        world.order_with(action, move |done| drop(answer.send(done.map(drop))));
        world.turns(100);
        world.stand_still_ms(60_000);
        world.turns(100);
        world.disks.disk(1).flush_hangs_on = None;
        world.wait_status("the member is out", |status| status.degraded() > 0);
        assert_eq!(answered.try_recv(), Ok(Ok(())), "{world}");
        assert_eq!(world.status().degraded(), 1, "{world}");
        world.verify();
    }
}

/// Nothing rests on it: no write and no other member is waited for.
#[test]
fn a_spare_is_failed_by_order_beside_a_member_that_hangs() {
    for (seed, shape) in (320..).zip(shapes::of_one_loss()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        let spare = usize::from(shape.disks);
        world.add(spare).unwrap();
        world.write_random(0, world.sectors());
        world.disks.disk(1).flush_hangs_on = Some(0);
        let before = world.now_ms();
        fail(&mut world, spare, false).unwrap_or_else(|error| panic!("{error} ({world})"));
        assert!(world.now_ms() - before < 1000, "{world}");
        assert_eq!(world.member_state(spare), Some(MemberState::Faulty), "{world}");
        world.disks.disk(1).flush_hangs_on = None;
    }
}
