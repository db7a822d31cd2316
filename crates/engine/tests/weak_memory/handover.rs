//! A round handed to a worker that goes to sleep at that moment: it is woken, and sees it.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use loom::future::block_on;
use loom::thread;
use mdspace_engine::array::handover::{Desk, GivenRound, Node, Results};
use mdspace_engine::lane::LaneId;
use smallvec::smallvec;

use crate::check;

const WORKER: LaneId = LaneId(1);

fn round() -> GivenRound {
    GivenRound { home: LaneId(0), slot: 7, row: 0, columns: 0..1, pieces: smallvec![] }
}

/// Takes one round as a worker does: a look without the lock, then the wish to be woken, then a look
/// under the lock. Ends it so many `times`.
fn take_one(desk: &Desk, node: &Node, times: usize) {
    block_on(poll_fn(|context| {
        let mut found = if desk.given_count() > 0 { desk.take(1) } else { Vec::new() };
        if found.is_empty() {
            node.wait(WORKER, context.waker());
            found = desk.take(1);
        }
        if found.is_empty() {
            return Poll::Pending;
        }
        node.stop_waiting(WORKER);
        desk.end(found.iter().cycle().take(times).map(|round| (round.slot, smallvec![Ok(())])));
        Poll::Ready(())
    }));
}

fn hand_over(times: usize) {
    let (desk, node) = (Arc::new(Desk::new()), Arc::new(Node::default()));
    let (theirs, group) = (desk.clone(), node.clone());
    let worker = thread::spawn(move || take_one(&theirs, &group, times));
    desk.give(vec![round()]);
    node.wake(1);
    let ends = block_on(poll_fn(|context| {
        let ends = desk.ends(context.waker());
        if ends.is_empty() { Poll::Pending } else { Poll::Ready(ends) }
    }));
    worker.join().unwrap();
    assert_eq!(ends, [(7, Results::from_elem(Ok(()), 1))], "a round ends once");
}

#[test]
fn a_worker_that_falls_asleep_hears_of_every_round() {
    check(3, || hand_over(1));
}

#[test]
#[should_panic(expected = "a round ends once")]
fn the_test_notices_a_round_that_ends_twice() {
    check(3, || hand_over(2));
}

/// A worker is asked to leave at the moment at which it goes to sleep.
#[test]
fn a_dismissal_is_never_slept_through() {
    check(3, || {
        let desk = Arc::new(Desk::new());
        let theirs = desk.clone();
        let worker = thread::spawn(move || {
            block_on(poll_fn(|context: &mut Context<'_>| {
                match theirs.is_dismissed(context.waker()) {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            }));
        });
        desk.dismiss();
        worker.join().unwrap();
    });
}
