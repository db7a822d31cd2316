//! Which paths are taken for ways to one device.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use super::super::bed::*;
use super::super::owner::Health::{self, Active, Failed, Joining, Refused};
use crate::backend::{IoErrorKind, IoOp, Patience};
use crate::paths::policy::Cache;
use crate::time::Time;

/// What path 0 reads is answered, and its first flush fails. Then what path 1 reads is answered.
fn fail_the_first_before_it_joins(device: &Flushing) {
    device.wires.answer(&device.lane, |io| io.member.index == 0 && !is_flush(&io.op));
    assert!(device.end_flush(0, Err(IoErrorKind::Deadline)));
    device.wires.answer(&device.lane, |io| io.member.index == 1);
}

/// Answers what is under way, paths side by side, until nothing is.
fn settle(device: &Flushing) {
    let flush = |path| device.end_flush(path, Ok(()));
    loop {
        device.wires.answer_reads_in_order(&device.lane);
        if !(0..4).any(flush) {
            return;
        }
    }
}

/// The paths over which first flushes are under way.
fn flushed(device: &Flushing) -> Vec<u16> {
    (0..4).filter(|path| device.is_flushed(*path)).collect()
}

/// Of the states that paths may be in when all have answered: those that lead to the newest copy serve.
fn of_newest<const N: usize>(events: [u64; N]) -> Vec<Health> {
    let newest = events.into_iter().max();
    events.map(|own| if Some(own) == newest { Active } else { Refused }).to_vec()
}

#[test]
fn of_copies_that_are_read_at_once_the_newest_is_the_device() {
    for events in [[10, 11], [11, 10]] {
        let device = joining_over(events.map(|events| superblock(7, events)));
        settle(&device);
        assert_eq!(device.healths(), of_newest(events), "{events:?}");
        device.write();
        let newest = events.iter().position(|own| *own == 11).expect("one of them");
        assert!(device.find_write_over(newest as u16).is_some());
    }
}

#[test]
fn of_copies_that_are_read_one_after_the_other_the_newest_is_the_device() {
    for events in [[10, 11], [11, 10]] {
        for first in [0, 1] {
            let device = joining_over(events.map(|events| superblock(7, events)));
            device.wires.answer(&device.lane, |io| {
                matches!(io.op, IoOp::Read { .. }) && io.member.index == first
            });
            device.wires.answer_reads(&device.lane);
            while device.answer(0, Ok(())) || device.answer(1, Ok(())) {}
            assert_eq!(device.healths(), of_newest(events), "{events:?}, {first} first");
        }
    }
}

/// Two that are compared with a third one are not compared with each other by that.
#[test]
fn paths_that_were_compared_with_one_that_is_refused_since_are_compared_again() {
    for events in [[10, 11, 12], [10, 12, 11], [10, 11, 10], [10, 11, 11]] {
        let device = joining_over(events.map(|events| superblock(7, events)));
        // The first one serves when the others begin to be compared.
        device.wires.answer(&device.lane, |io| io.member.index == 0);
        assert_eq!(device.healths()[0], Active);
        settle(&device);
        for _ in 0..3 {
            device.wires.now.set(device.wires.now.get() + Duration::from_secs(1));
            settle(&device);
        }
        assert_eq!(device.healths(), of_newest(events), "{events:?}");
    }
}

/// What was written to the older one would be lost.
#[test]
fn once_something_may_have_been_written_the_device_stays_what_it_is() {
    let device = joining_over([10, 11].map(|events| superblock(7, events)));
    device.wires.answer(&device.lane, |io| io.member.index == 0);
    device.paths.fail(1, None, "it does not answer", false, Time::ZERO);
    device.lane.turn();
    device.write();
    assert!(device.find_write_over(0).is_some());
    device.end_write_over(0);
    device.wires.answer_reads(&device.lane);
    assert_eq!(device.healths(), [Active, Refused]);
}

/// A server tells an error once, and then it is for those who have written there.
#[test]
fn no_first_flush_goes_over_a_path_that_leads_to_another_device() {
    for other in [superblock(8, 10), None] {
        let device = joining_over([superblock(7, 10), other]);
        device.wires.answer_reads_in_order(&device.lane);
        let [first] = flushed(&device)[..] else { panic!("one path at a time") };
        let healths = device.healths();
        assert_eq!(healths[usize::from(1 - first)], Refused);
        assert!(device.answer(first, Ok(())));
        assert_eq!(device.healths()[usize::from(first)], Active);
        assert_eq!(device.flush(), Some(Ok(())));
    }
}

#[test]
fn of_blank_devices_one_is_flushed_and_used() {
    let device = joining_over([None, None]);
    device.wires.answer_reads_in_order(&device.lane);
    let [first] = flushed(&device)[..] else { panic!("one path at a time") };
    assert!(device.answer(first, Ok(())));
    assert_eq!(device.healths()[usize::from(first)], Active);
    assert_eq!(device.healths()[usize::from(1 - first)], Failed);
    assert_eq!(device.flush(), Some(Ok(())));
}

/// What its server had to say is about another copy.
#[test]
fn what_the_first_flush_of_a_refused_path_says_is_not_told_and_it_gets_another_one() {
    for result in [Ok(()), Err(IoErrorKind::Flush)] {
        let device = joining_over([10, 11].map(|events| superblock(7, events)));
        device.wires.answer(&device.lane, |io| io.member.index == 0 && !is_flush(&io.op));
        assert_eq!(flushed(&device), [0]);
        device.wires.answer_reads(&device.lane);
        assert_eq!(device.healths()[0], Refused);
        assert!(device.answer(0, result));
        assert!(device.answer(1, Ok(())));
        assert_eq!(device.healths(), [Refused, Active]);
        assert_eq!(device.flush(), Some(Ok(())));
        assert!(device.paths.wants_first_flush(0));
    }
}

/// One of these copies, behind paths of this host.
fn joining_over_here<const N: usize>(events: [u64; N]) -> Flushing {
    let superblocks = (0..).zip(events.map(|events| superblock(7, events))).collect();
    let wires = Wires { superblocks: RefCell::new(superblocks), ..Wires::default() };
    let names = ["a", "b", "c", "d"][..N].join(" ");
    let groups = format!("1 1 round-robin 0 {N} 0 {names}");
    joining_to(&groups, Rc::new(wires), false, Cache::OfEachPath, Reopens::default())
}

/// The older copy had joined by then.
#[test]
fn a_device_of_this_host_gets_its_own_first_flush_where_that_of_an_older_copy_has_ended() {
    for result in [Ok(()), Err(IoErrorKind::Flush)] {
        let device = joining_over_here([10, 11]);
        device.wires.answer(&device.lane, |io| io.member.index == 0 && !is_flush(&io.op));
        assert!(device.end_flush(0, result));
        assert_eq!(device.healths(), [Active, Joining]);
        device.wires.answer_reads(&device.lane);
        assert_eq!(flushed(&device), [1], "{result:?}");
        assert!(device.answer(1, Ok(())));
        assert_eq!(device.healths(), [Refused, Active]);
        assert_eq!(device.flush(), Some(Ok(())), "{result:?}");
    }
}

/// A path to the older copy was flushed, and is gone before the device is looked at.
#[test]
fn a_device_of_this_host_gets_its_own_first_flush_where_an_older_copy_has_failed_since() {
    for ends_early in [true, false] {
        let device = joining_over_here([10, 11]);
        device.wires.answer(&device.lane, |io| io.member.index == 0 && !is_flush(&io.op));
        if ends_early {
            assert!(device.end_flush(0, Ok(())));
        }
        device.paths.fail(0, None, "it is unplugged", false, Time::ZERO);
        device.wires.answer(&device.lane, |io| io.member.index == 1 && !is_flush(&io.op));
        if !ends_early {
            assert_eq!(flushed(&device), [0], "one at a time");
            assert!(device.end_flush(0, Ok(())));
        }
        assert_eq!(flushed(&device), [1], "{ends_early}");
        assert!(device.end_flush(1, Ok(())));
        assert_eq!(device.healths(), [Failed, Active]);
    }
}

/// A superblock of the process before lands late: what a path had read before it is older than what both read now.
#[test]
fn an_error_that_the_device_told_is_told_though_its_superblock_has_changed_since() {
    for has_failed in [false, true] {
        let device = joining_over_here([10, 10]);
        device.wires.answer(&device.lane, |io| io.member.index == 0 && !is_flush(&io.op));
        assert!(device.end_flush(0, Err(IoErrorKind::Flush)));
        let newer = [0, 1].map(|path| (path, superblock(7, 11)));
        device.wires.superblocks.borrow_mut().extend(newer);
        if has_failed {
            device.paths.fail(0, None, "it is unplugged", false, Time::ZERO);
        }
        device.wires.answer_reads(&device.lane);
        let _ = device.end_flush(1, Ok(()));
        assert_eq!(device.healths()[1], Active, "{has_failed}");
        assert_eq!(device.flush(), Some(Err(IoErrorKind::Flush)), "{has_failed}");
        assert_eq!(device.flush(), Some(Ok(())), "{has_failed}");
    }
}

/// A server's error is about the older copy, and no flush of the device tells it.
#[test]
fn an_error_that_an_older_copy_told_fails_no_flush_of_the_device() {
    let device = joining_over([10, 11].map(|events| superblock(7, events)));
    device.wires.answer(&device.lane, |io| io.member.index == 0 && !is_flush(&io.op));
    assert!(device.end_flush(0, Err(IoErrorKind::Flush)));
    assert_eq!(device.healths(), [Active, Joining]);
    device.wires.answer_reads(&device.lane);
    assert!(device.answer(1, Ok(())));
    assert_eq!(device.healths(), [Refused, Active]);
    assert_eq!(device.flush(), Some(Ok(())));
    assert_eq!(device.paths.status().loss, None);
}

fn is_flush(op: &IoOp) -> bool {
    matches!(op, IoOp::Flush)
}

/// Nothing is waited for where nothing is wrong.
#[test]
fn paths_that_read_the_same_are_read_once_and_flushed_together() {
    let reads_of_one = {
        let device = joining_over([superblock(7, 10)]);
        device.wires.answer_reads_in_order(&device.lane);
        device.wires.read.borrow().len()
    };
    let device = joining_over([(); 4].map(|()| superblock(7, 10)));
    device.wires.answer_reads_in_order(&device.lane);
    assert_eq!(flushed(&device), [0, 1, 2, 3]);
    assert_eq!(device.wires.read.borrow().len(), 4 * reads_of_one);
    settle(&device);
    assert_eq!(device.healths(), [Active; 4]);
    assert_eq!(device.wires.read.borrow().len(), 4 * reads_of_one);
}

#[test]
fn a_path_that_hangs_in_its_first_flush_keeps_no_other_one_from_the_start() {
    let device = joining_over([(); 2].map(|()| superblock(7, 10)));
    device.wires.answer_reads_in_order(&device.lane);
    assert!(device.end_flush(1, Ok(())));
    assert_eq!(device.healths(), [Joining, Active]);
}

/// Else a path that answers once would keep the others out for as long as its flush may take.
#[test]
fn a_path_that_does_not_answer_when_others_are_compared_with_it_has_failed() {
    let device = joining_over([10, 11].map(|events| superblock(7, events)));
    device.wires.answer(&device.lane, |io| io.member.index == 0 && !is_flush(&io.op));
    device.wires.answer(&device.lane, |io| io.member.index == 1);
    device.wires.fail_reads(&device.lane, 0, IoErrorKind::Deadline);
    device.wires.answer(&device.lane, |io| io.member.index == 1);
    assert_eq!(device.healths(), [Failed, Active]);
}

/// It was read before anything was written.
#[test]
fn a_copy_is_refused_that_is_older_than_what_a_path_has_read_that_failed_then() {
    let device = joining_over([11, 10].map(|events| superblock(7, events)));
    fail_the_first_before_it_joins(&device);
    assert_eq!(device.healths(), [Failed, Refused]);
}

/// The other one is not proved as long as that is asked.
#[test]
fn a_blank_device_of_this_host_whose_path_hangs_in_its_first_flush_is_used_over_another_one() {
    let wires =
        Wires { superblocks: RefCell::new([(0, None), (1, None)].into()), ..Wires::default() };
    let groups = "1 1 round-robin 0 2 0 a b";
    let device = joining_to(groups, Rc::new(wires), false, Cache::OfEachPath, Reopens::default());
    device.wires.answer_reads_in_order(&device.lane);
    let [first] = flushed(&device)[..] else { panic!("one path at a time") };
    for _ in 0..20 {
        device.wires.now.set(device.wires.now.get() + Duration::from_secs(1));
        device.wires.answer_reads(&device.lane);
        let _ = device.end_flush(1 - first, Ok(()));
    }
    let [one, other] = [first, 1 - first].map(|path| device.healths()[usize::from(path)]);
    assert_eq!((one, other), (Failed, Active));
}

/// Nothing tells the other one from another blank device: what was written over the first would be missing there.
#[test]
fn when_the_path_to_a_blank_device_is_lost_no_other_one_takes_its_place() {
    let device = joining_over([None, None]);
    settle(&device);
    let used = device.healths().iter().position(|health| *health == Active).expect("one is used");
    assert_eq!(device.healths()[1 - used], Failed);
    device.paths.fail(used, None, "it does not answer", true, device.wires.now.get());
    for _ in 0..3 {
        device.wires.now.set(device.wires.now.get() + Duration::from_secs(1));
        settle(&device);
    }
    assert_eq!(device.healths(), [Failed, Failed]);
}

/// No request has gone over the path that fails.
#[test]
fn a_blank_device_whose_path_fails_before_it_joins_is_used_over_another_one() {
    let device = joining_over([None, None]);
    fail_the_first_before_it_joins(&device);
    assert_eq!(device.healths(), [Failed, Active]);
}

/// An array that was assembled from the older copy's superblock would go on over the newer one.
#[test]
fn no_request_goes_over_a_path_while_another_one_may_have_a_newer_copy() {
    let device = joining_over([10, 11].map(|events| superblock(7, events)));
    device.wires.answer(&device.lane, |io| io.member.index == 0);
    assert_eq!(device.healths(), [Active, Joining]);
    let read = device.read_superblock();
    let flushed = device.start(Patience::FOREVER);
    assert!(read.borrow().is_none() && flushed.get().is_none());
    settle(&device);
    assert_eq!(device.healths(), [Refused, Active]);
    let newest = &device.wires.superblocks.borrow()[&1];
    assert!(read.take() == *newest, "the older copy was read");
    assert_eq!(flushed.take(), Some(Ok(())));
}

/// All paths of a device are lost, and one is back over another connection, which reads this superblock.
fn come_back_with(device: &Flushing, superblock: Option<Vec<u8>>) -> Health {
    device.wires.superblocks.borrow_mut().insert(5, superblock);
    come_back(device)
}

fn come_back(device: &Flushing) -> Health {
    device.paths.fail(0, None, "it does not answer", true, device.wires.now.get());
    assert!(device.paths.opened(0, Ok(connection(&device.paths, 5))));
    for _ in 0..3 {
        device.wires.now.set(device.wires.now.get() + Duration::from_secs(1));
        settle(device);
    }
    device.healths()[0]
}

/// A superblock of these events that was written at another time.
fn written_again(device: u8, events: u64) -> Option<Vec<u8>> {
    use mdspace_format::superblock::Superblock;
    let place = mdspace_format::MetadataVersion::V1_2.place(2048).expect("it fits");
    let mut superblock = Superblock::parse(&superblock(device, events)?, place, 2048).ok()?;
    superblock.corrected_reads += 1;
    Some(superblock.encode())
}

/// The kernel's md has started the array when the cable was back, and a user has written to it.
#[test]
fn a_device_that_another_program_has_written_to_while_no_path_led_there_is_refused() {
    for other in [superblock(7, 12), written_again(7, 10), superblock(7, 9)] {
        let device = joining_over([superblock(7, 10)]);
        settle(&device);
        assert_eq!(device.healths(), [Active]);
        assert_eq!(come_back_with(&device, other), Refused);
    }
}

#[test]
fn a_device_is_back_with_the_superblock_that_it_had_or_with_one_that_was_sent_since() {
    for (back, is_answered) in [(10, false), (11, false), (11, true)] {
        let device = joining_over([superblock(7, 10)]);
        settle(&device);
        device.write_superblock(&superblock(7, 11).expect("one"));
        let end = if is_answered { Ok(()) } else { Err(IoErrorKind::Gone) };
        device.end_write_over_as(0, end);
        assert_eq!(come_back_with(&device, superblock(7, back)), Active, "{back}");
    }
    // It was durable.
    let device = joining_over([superblock(7, 10)]);
    settle(&device);
    device.write_superblock(&superblock(7, 11).expect("one"));
    device.end_write_over(0);
    assert_eq!(come_back_with(&device, superblock(7, 10)), Refused);
}

/// Another disk was put in its place, as large and without a superblock too: what waits would be written to it.
#[test]
fn a_device_without_a_superblock_is_back_with_the_first_block_that_it_had() {
    for is_other in [false, true] {
        let device = joining_by("1 1 round-robin 0 1 0 a", Default::default());
        settle(&device);
        assert_eq!(device.healths(), [Active]);
        device.write();
        device.end_write_over(0);
        let back = match is_other {
            // All zeroes, as a new one.
            true => come_back_with(&device, None),
            false => come_back(&device),
        };
        assert_eq!(back, if is_other { Refused } else { Active });
    }
}

/// Nothing is written before it has answered.
#[test]
fn two_paths_that_agree_are_refused_where_a_third_one_has_a_newer_copy() {
    let device = joining_over([10, 10, 11].map(|events| superblock(7, events)));
    device.wires.answer(&device.lane, |io| io.member.index < 2);
    assert_eq!(device.healths(), [Active, Active, Joining]);
    device.write();
    assert!((0..3).all(|path| device.find_write_over(path).is_none()), "it waits");
    device.wires.answer_reads(&device.lane);
    assert!(device.answer(2, Ok(())));
    assert_eq!(device.healths(), [Refused, Refused, Active]);
    assert!(device.find_write_over(2).is_some());
}
