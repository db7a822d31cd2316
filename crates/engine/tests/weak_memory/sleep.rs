//! A lane's driver goes to sleep while another thread wakes one of its tasks.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use mdspace_engine::backend::{Backend, MemberId, MemberIo, Submitted, Ticket};
use mdspace_engine::lane::{Lane, LaneId, Notify};
use mdspace_engine::memory::Buffer;
use mdspace_engine::time::Time;

use crate::check;

/// What wakes a driver, as an eventfd does: a ring before the sleep ends it at once.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    comes: Condvar,
}

impl Notify for Bell {
    fn notify(&self) {
        *self.rung.lock().unwrap() = true;
        self.comes.notify_one();
    }
}

impl Bell {
    fn sleep(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.comes.wait(rung).unwrap();
        }
        *rung = false;
    }
}

/// No task here does I/O.
struct NoMembers;

impl Backend for NoMembers {
    fn submit(&self, _: Ticket, _: MemberIo) -> Submitted {
        unreachable!("no I/O")
    }
    fn cancel(&self, _: Ticket) {}
    fn in_flight(&self, _: MemberId) -> usize {
        0
    }
    fn now(&self) -> Time {
        Time::ZERO
    }
    fn unix_time_s(&self) -> u64 {
        0
    }
    fn random(&self) -> u64 {
        0
    }
    fn allocate(&self, bytes: usize) -> Buffer {
        Buffer::zeroed(bytes)
    }
    fn recycle(&self, _: Buffer) {}
}

/// Something that a task waits for, and who to wake.
#[derive(Default)]
struct Event {
    waker: Mutex<Option<Waker>>,
    happened: AtomicBool,
}

impl Event {
    fn happen(&self) {
        self.happened.store(true, Ordering::Release);
        if let Some(waker) = self.waker.lock().unwrap().take() {
            waker.wake();
        }
    }

    async fn wait(&self) {
        poll_fn(|context| {
            *self.waker.lock().unwrap() = Some(context.waker().clone());
            match self.happened.load(Ordering::Acquire) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }
}

/// Drives a lane until its tasks have ended, asleep whenever it may be.
fn drive(lane: &Lane, bell: &Bell) {
    loop {
        lane.turn();
        if lane.task_count() == 0 {
            return;
        }
        if lane.remote().try_sleep() {
            bell.sleep();
            lane.remote().awake();
        }
    }
}

#[test]
fn no_wake_is_slept_through() {
    check(3, || {
        let (bell, event) = (Arc::new(Bell::default()), Arc::new(Event::default()));
        let lane = Lane::new(LaneId(0), Rc::new(NoMembers), bell.clone());
        let awaited = event.clone();
        lane.spawn(async move { awaited.wait().await });
        let waker = thread::spawn(move || event.happen());
        drive(&lane, &bell);
        waker.join().unwrap();
    });
}

#[test]
fn two_wakes_at_once_wake_both_tasks() {
    check(2, || {
        let bell = Arc::new(Bell::default());
        let events = [Arc::new(Event::default()), Arc::new(Event::default())];
        let lane = Lane::new(LaneId(0), Rc::new(NoMembers), bell.clone());
        for event in events.clone() {
            lane.spawn(async move { event.wait().await });
        }
        let wakers = events.map(|event| thread::spawn(move || event.happen()));
        drive(&lane, &bell);
        wakers.into_iter().for_each(|waker| waker.join().unwrap());
    });
}
