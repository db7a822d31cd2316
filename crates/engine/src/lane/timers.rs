//! Timers of one lane.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::time::Time;

use super::Lane;
use super::tasks::TaskSlot;

#[derive(Default)]
pub(super) struct Timers {
    /// By time, then by order of arrival.
    waiting: BTreeMap<(Time, u64), TaskSlot>,
    arrivals: u64,
}

impl Timers {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn next(&self) -> Option<Time> {
        self.waiting.keys().next().map(|&(when, _)| when)
    }

    pub(super) fn pop_expired(&mut self, now: Time) -> Option<TaskSlot> {
        let entry = self.waiting.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }

    fn add(&mut self, when: Time, task: TaskSlot) -> (Time, u64) {
        self.arrivals += 1;
        self.waiting.insert((when, self.arrivals), task);
        (when, self.arrivals)
    }
}

/// A future that ends at a time.
pub struct Sleep<'a> {
    lane: &'a Lane,
    when: Time,
    key: Option<(Time, u64)>,
}

impl<'a> Sleep<'a> {
    pub(super) fn new(lane: &'a Lane, when: Time) -> Self {
        Self { lane, when, key: None }
    }
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.lane.backend.now() >= self.when {
            return Poll::Ready(());
        }
        let mut timers = self.lane.timers.borrow_mut();
        if let Some(key) = self.key.take() {
            timers.waiting.remove(&key);
        }
        self.key = Some(timers.add(self.when, self.lane.current.get()));
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.lane.timers.borrow_mut().waiting.remove(&key);
        }
    }
}
