use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::*;

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Future::poll(Pin::new(future), &mut Context::from_waker(Waker::noop()))
}

/// A lane of a front, and the task with which it watches.
struct Watched {
    writes: Rc<LaneWrites>,
    watching: RefCell<Pin<Box<dyn Future<Output = ()>>>>,
}

impl Watched {
    fn new(all: &PartialWrites) -> Self {
        let writes = all.beside();
        Self { watching: RefCell::new(Box::pin(writes.watch())), writes }
    }

    /// Has the lane turn.
    fn turn(&self) {
        let watched = poll(&mut *self.watching.borrow_mut());
        assert!(watched.is_pending(), "it watches as long as there are writes");
    }
}

#[test]
fn a_part_waits_for_writes_of_its_blocks_on_every_lane_and_they_wait_for_it() {
    let all = PartialWrites::default();
    let lanes = [Watched::new(&all), Watched::new(&all.clone())];
    let under_way =
        lanes.each_ref().map(|lane| lane.writes.begin(&(0..1024)).expect("no part is written"));
    let mut partial = Box::pin(all.begin(512..1024));
    assert!(poll(&mut partial).is_pending());
    assert!(lanes[0].writes.begin(&(1000..2000)).is_none(), "none passes a part that waits");
    let mut whole = Box::pin(lanes[0].writes.begin_in_turn(512..1024));
    assert!(poll(&mut whole).is_pending());
    lanes.iter().for_each(Watched::turn);
    for write in under_way {
        assert!(poll(&mut partial).is_pending());
        drop(write);
    }
    let Poll::Ready(alone) = poll(&mut partial) else { panic!("nothing is under way") };
    assert!(lanes[1].writes.begin(&(0..4096)).is_none() && poll(&mut whole).is_pending());
    drop(alone);
    let mut next = Box::pin(all.begin(512..1024));
    assert!(poll(&mut next).is_pending(), "the whole write has waited for longer");
    let Poll::Ready(write) = poll(&mut whole) else { panic!("the part is written") };
    assert!(poll(&mut next).is_pending());
    lanes.iter().for_each(Watched::turn);
    assert!(poll(&mut next).is_pending(), "the whole write is under way");
    drop(write);
    assert!(poll(&mut next).is_ready());
}

/// One that takes long, or hangs, must not keep the whole volume waiting.
#[test]
fn a_part_and_writes_of_other_blocks_do_not_wait_for_each_other() {
    let all = PartialWrites::default();
    let lane = Watched::new(&all);
    let hangs = lane.writes.begin(&(0..512)).expect("no part is written");
    let mut partial = Box::pin(all.begin(512..1024));
    assert!(poll(&mut partial).is_pending(), "the lane has not answered");
    lane.turn();
    let Poll::Ready(alone) = poll(&mut partial) else { panic!("another block is written") };
    assert!(lane.writes.begin(&(1024..4096)).is_some() && lane.writes.begin(&(0..512)).is_some());
    drop((alone, hangs));
}

#[test]
fn a_lane_that_has_ended_keeps_no_part_waiting() {
    let all = PartialWrites::default();
    let (lane, other) = (Watched::new(&all), Watched::new(&all));
    let under_way = lane.writes.begin(&(0..512)).expect("no part is written");
    let elsewhere = other.writes.begin(&(512..1024));
    let mut partial = Box::pin(all.begin(0..512));
    assert!(poll(&mut partial).is_pending());
    lane.turn();
    let Watched { writes, watching } = lane;
    drop((writes, under_way));
    assert!(poll(&mut *watching.borrow_mut()).is_ready(), "its task ends");
    assert!(poll(&mut partial).is_pending(), "the other one has not answered");
    other.turn();
    assert!(poll(&mut partial).is_ready());
    drop((partial, elsewhere));
    assert!(other.writes.begin(&(0..512)).is_some());
}

#[test]
fn a_part_that_is_given_up_leaves_no_question_behind() {
    let all = PartialWrites::default();
    let lane = Watched::new(&all);
    let under_way = lane.writes.begin(&(0..512)).expect("no part is written");
    let mut given_up = Box::pin(all.begin(0..512));
    assert!(poll(&mut given_up).is_pending());
    lane.turn();
    drop(given_up);
    let mut partial = Box::pin(all.begin(0..512));
    assert!(poll(&mut partial).is_pending());
    lane.turn();
    assert!(poll(&mut partial).is_pending(), "the write is under way still");
    drop(under_way);
    assert!(poll(&mut partial).is_ready());
}

#[test]
fn a_lane_with_nothing_under_way_is_not_asked() {
    let all = PartialWrites::default();
    let lane = Watched::new(&all);
    drop(lane.writes.begin(&(0..512)));
    let mut partial = Box::pin(all.begin(0..512));
    let Poll::Ready(alone) = poll(&mut partial) else { panic!("nothing is under way") };
    assert!(lane.writes.begin(&(0..512)).is_none());
    drop(alone);
    assert!(lane.writes.begin(&(0..512)).is_some());
}
