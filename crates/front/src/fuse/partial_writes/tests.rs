use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::*;

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Future::poll(Pin::new(future), &mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_part_waits_for_whole_writes_of_every_lane_and_they_wait_for_it() {
    let writes = PartialWrites::default();
    let lanes = [writes.beside(), writes.clone().beside()];
    let under_way = lanes.each_ref().map(|lane| lane.begin().expect("no part is written"));
    let mut partial = Box::pin(writes.begin());
    assert!(poll(&mut partial).is_pending());
    assert!(lanes[0].begin().is_none(), "none passes a part that waits");
    let mut whole = Box::pin(lanes[0].turn());
    assert!(poll(&mut whole).is_pending());
    for write in under_way {
        assert!(poll(&mut partial).is_pending());
        drop(write);
    }
    let Poll::Ready(alone) = poll(&mut partial) else { panic!("nothing is under way") };
    assert!(lanes[1].begin().is_none() && poll(&mut whole).is_pending());
    drop(alone);
    let Poll::Ready(turn) = poll(&mut whole) else { panic!("the part is written") };
    assert!(lanes[1].begin().is_some(), "whole writes run beside each other");
    let mut partial = Box::pin(writes.begin());
    assert!(poll(&mut partial).is_pending(), "a whole write has the turn");
    drop(turn);
    assert!(poll(&mut partial).is_ready());
}

#[test]
fn a_mount_that_has_ended_keeps_no_part_waiting() {
    let writes = PartialWrites::default();
    let (lane, other) = (writes.beside(), writes.beside());
    let under_way = lane.begin().expect("no part is written");
    let mut partial = Box::pin(writes.begin());
    assert!(poll(&mut partial).is_pending());
    drop((lane, under_way));
    assert!(poll(&mut partial).is_ready());
    drop(partial);
    assert!(other.begin().is_some(), "and one that is given up leaves nothing behind");
}
