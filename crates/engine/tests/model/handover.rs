//! Rounds handed from a lane to a worker, while the worker comes and goes.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize as Counter, Ordering as Order};

use mdspace_engine::array::handover::{Desk, GivenRound, Node};
use mdspace_engine::array::{Array, ArrayLane};
use mdspace_engine::lane::LaneId;
use mdspace_engine::memory::Source;
use mdspace_engine::request::{Queue, Request};
use mdspace_format::Level;
use shuttle::{future, thread};
use smallvec::smallvec;

use crate::machine::Machine;
use crate::whole_array::{LANES, new_array, read, run_lanes_of};

fn given(slot: u32) -> GivenRound {
    GivenRound { home: LaneId(0), slot, row: 0, columns: 0..1, pieces: smallvec![] }
}

/// A worker takes rounds one by one, and sleeps as workers do.
fn take_all(desk: &Desk, node: &Node, count: usize, register: bool) {
    let mut taken = 0;
    while taken < count {
        future::block_on(std::future::poll_fn(|context| {
            let mut found = if desk.given_count() > 0 { desk.take(1) } else { Vec::new() };
            if found.is_empty() {
                if register {
                    node.wait(LaneId(1), context.waker());
                }
                found = desk.take(1);
            }
            if found.is_empty() {
                return std::task::Poll::Pending;
            }
            node.stop_waiting(LaneId(1));
            taken += found.len();
            desk.end(found.into_iter().map(|round| (round.slot, smallvec![Ok(())])));
            std::task::Poll::Ready(())
        }));
    }
}

/// Gives rounds, and waits until all have ended.
fn give_and_wait(desk: &Desk, node: &Node, count: u32) {
    for slot in 0..count {
        desk.give(vec![given(slot)]);
        node.wake(1);
    }
    let mut ended = Vec::new();
    while ended.len() < count as usize {
        future::block_on(std::future::poll_fn(|context| {
            let ends = desk.ends(context.waker());
            if ends.is_empty() {
                return std::task::Poll::Pending;
            }
            ended.extend(ends.into_iter().map(|(slot, _)| slot));
            std::task::Poll::Ready(())
        }));
    }
    ended.sort_unstable();
    assert_eq!(ended, (0..count).collect::<Vec<_>>(), "each round ends once");
}

fn desk_between_two_threads(register: bool) {
    let (desk, node) = (Arc::new(Desk::new()), Arc::new(Node::default()));
    let (theirs, group) = (desk.clone(), node.clone());
    let worker = thread::spawn(move || take_all(&theirs, &group, 3, register));
    give_and_wait(&desk, &node, 3);
    worker.join().unwrap();
}

#[test]
fn no_round_on_a_desk_is_slept_through() {
    shuttle::check_random(|| desk_between_two_threads(true), 3000);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_test_notices_a_worker_that_does_not_say_that_it_sleeps() {
    shuttle::check_random(|| desk_between_two_threads(false), 3000);
}

/// Lane 0 writes at once while lane 1, a worker, is dismissed; then it reads what it wrote.
async fn write_at_once(port: &Rc<ArrayLane>, array: &Array) {
    let queue = Queue::new();
    for write in 0..WRITES {
        let from: Rc<dyn Source> = Rc::new(vec![write as u8 + 1; 512]);
        port.submit(&queue, write, Request::Write { sector: write * APART, from, fua: false });
    }
    for answered in 0..WRITES {
        if answered == WRITES / 2 {
            array.dismiss(LaneId(1));
        }
        assert_eq!(queue.next().await.result, Ok(()));
    }
    for write in 0..WRITES {
        assert_eq!(read(port, write * APART).await, write as u8 + 1);
    }
}

/// Enough rounds to be worth a worker's waking; two of them of two pieces.
const WRITES: u64 = 10;

/// Sectors from write to write: a little less than a row of two chunks of eight.
const APART: u64 = 13;

#[test]
fn every_write_is_answered_and_right_however_a_worker_leaves() {
    static SERVED: Counter = Counter::new(0);
    shuttle::check_random(
        || {
            let machine = Machine::new(3, 4096, LANES);
            let start = new_array(&machine, Level::Raid5, 2);
            let array = Array::new(&start, LANES);
            let shared = array.clone();
            run_lanes_of(
                &array,
                &machine,
                start,
                async move |port: Rc<ArrayLane>, lane| match lane {
                    0 => write_at_once(&port, &shared).await,
                    _ => port.work().await,
                },
            );
            SERVED.fetch_add(machine.ios(1), Order::Relaxed);
        },
        1000,
    );
    assert!(SERVED.load(Order::Relaxed) > 0, "a worker serves something in some schedule");
}
