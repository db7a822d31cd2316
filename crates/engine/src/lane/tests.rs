//! The executor against a backend that answers when it is told to.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::*;
use crate::backend::{IoDone, IoOp, MemberId, MemberIo, Patience, ReadInto};
use crate::memory::Buffer;

/// Keeps every I/O until the test answers it.
#[derive(Default)]
struct Held {
    now: Cell<u64>,
    ios: RefCell<Vec<(Ticket, MemberIo)>>,
    recycled: Cell<usize>,
}

impl Backend for Held {
    fn submit(&self, ticket: Ticket, io: MemberIo) -> Submitted {
        self.ios.borrow_mut().push((ticket, io));
        Submitted::Pending
    }
    fn cancel(&self, _: Ticket) {}
    fn in_flight(&self, _: MemberId) -> usize {
        self.ios.borrow().len()
    }
    fn now(&self) -> Time {
        Time::from_nanos(self.now.get())
    }
    fn unix_time_s(&self) -> u64 {
        0
    }
    fn random(&self) -> u64 {
        4
    }
    fn allocate(&self, bytes: usize) -> Buffer {
        Buffer::zeroed(bytes)
    }
    fn recycle(&self, _: Buffer) {
        self.recycled.set(self.recycled.get() + 1);
    }
}

struct NoDriver;

impl Notify for NoDriver {
    fn notify(&self) {}
}

fn lane() -> (Rc<Lane>, Rc<Held>) {
    let held = Rc::new(Held::default());
    (Lane::new(LaneId(0), held.clone(), Arc::new(NoDriver)), held)
}

fn read() -> MemberIo {
    let member = MemberId { index: 0, generation: 0 };
    let into = ReadInto::Buffer(Buffer::zeroed(512), 0..512);
    MemberIo { member, op: IoOp::Read { sector: 0, into }, patience: Patience::FOREVER }
}

fn answer(lane: &Lane, held: &Held) {
    let (ticket, io) = held.ios.borrow_mut().remove(0);
    let IoOp::Read { into: ReadInto::Buffer(buffer, _), .. } = io.op else { panic!("a read") };
    lane.complete(ticket, IoDone { result: Ok(()), buffer: Some(buffer) });
}

#[test]
fn a_task_goes_on_when_its_io_ends() {
    let (lane, held) = lane();
    let ended = Rc::new(Cell::new(false));
    let (task_lane, task_ended) = (lane.clone(), ended.clone());
    lane.spawn(async move {
        assert!(task_lane.io(read()).await.result.is_ok());
        task_ended.set(true);
    });
    assert_eq!(lane.turn(), Turn::Idle(None));
    assert!(!ended.get());
    answer(&lane, &held);
    lane.turn();
    assert!(ended.get());
    assert_eq!(lane.task_count(), 0);
}

#[test]
fn an_abandoned_io_returns_its_buffer_when_it_ends() {
    let (lane, held) = lane();
    drop(lane.io(read()));
    assert_eq!(held.recycled.get(), 0, "the device still holds the buffer");
    answer(&lane, &held);
    assert_eq!(held.recycled.get(), 1);
}

#[test]
fn a_sleeper_wakes_at_its_time_and_not_before() {
    let (lane, held) = lane();
    let woken = Rc::new(Cell::new(false));
    let (task_lane, task_woken) = (lane.clone(), woken.clone());
    lane.spawn(async move {
        task_lane.sleep_until(Time::ZERO + Duration::from_nanos(10)).await;
        task_woken.set(true);
    });
    assert_eq!(lane.turn(), Turn::Idle(Some(Time::from_nanos(10))));
    held.now.set(9);
    lane.turn();
    assert!(!woken.get());
    held.now.set(10);
    lane.turn();
    assert!(woken.get());
}

#[test]
fn a_wake_from_another_thread_is_never_slept_through() {
    let (lane, _held) = lane();
    let waker = Rc::new(RefCell::new(None));
    let (seen, task_waker) = (Rc::new(Cell::new(0)), waker.clone());
    let task_seen = seen.clone();
    lane.spawn(poll_fn(move |context| {
        task_seen.set(task_seen.get() + 1);
        *task_waker.borrow_mut() = Some(context.waker().clone());
        Poll::Pending
    }));
    lane.turn();
    let waker = waker.borrow_mut().take().unwrap();
    std::thread::spawn(move || waker.wake()).join().unwrap();
    assert!(!lane.remote().try_sleep());
    lane.turn();
    assert_eq!(seen.get(), 2);
    assert!(lane.remote().try_sleep(), "nothing is left to do");
}

#[test]
#[should_panic(expected = "a ticket")]
fn a_second_completion_of_one_ticket_is_a_broken_backend() {
    let (lane, held) = lane();
    drop(lane.io(read()));
    let ticket = held.ios.borrow()[0].0;
    answer(&lane, &held);
    lane.complete(ticket, IoDone { result: Ok(()), buffer: None });
}

/// An owner of direct I/Os that does nothing.
struct Idle;

impl OpOwner for Idle {
    fn done(self: Rc<Self>, _: u64, _: IoDone) {}
}

#[test]
fn a_lane_that_ends_lets_go_of_what_its_tasks_and_ios_hold() {
    let (lane, held) = lane();
    let owner = Rc::new(Idle);
    let task_lane = lane.clone();
    lane.spawn(async move { drop(task_lane.io(read()).await) });
    let direct: Rc<dyn OpOwner> = owner.clone();
    assert!(lane.io_direct(read(), &direct, 0).is_none());
    drop(direct);
    assert_eq!(lane.turn(), Turn::Idle(None));
    assert_eq!((Rc::strong_count(&lane), Rc::strong_count(&owner)), (2, 2));

    lane.end();

    assert_eq!((Rc::strong_count(&lane), Rc::strong_count(&owner)), (1, 1));
    for (ticket, _) in held.ios.take() {
        lane.complete(ticket, IoDone { result: Ok(()), buffer: None });
    }
    assert_eq!(lane.task_count(), 0);
}
