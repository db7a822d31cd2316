//! How long the requests of a load took.

use std::cell::{Cell, RefCell};

use mdspace_engine::time::Time;

/// Reading the clock costs as much as a part of a read: one request in so many is timed, and not always one
/// that the array times itself.
const ONE_IN: u64 = 17;

/// Where requests end no faster than this, in ns a request under way, all are timed: they are few, and the
/// clock is nothing beside them.
const SLOW_NS: u64 = 10_000;

/// Requests timed in a row that must be slow before.
const SURE: u32 = 16;

/// The times of requests, by their tags: of one in so many, or where they are slow of all.
#[derive(Default)]
pub(super) struct Latencies {
    /// In ns, where a request is slow; none where that is all the same.
    slow_ns: Option<u64>,
    /// All are slow.
    times_all: Cell<bool>,
    /// How many in a row were.
    slow: Cell<u32>,
    under_way: RefCell<Vec<(u64, Time)>>,
    took_ns: RefCell<Vec<u64>>,
}

impl Latencies {
    /// Of a load with so many requests under way; all are timed where they are slow.
    pub(super) fn at_depth(depth: usize) -> Self {
        Self { slow_ns: Some(SLOW_NS * depth as u64), ..Self::default() }
    }

    #[inline]
    fn is_timed(&self, tag: u64) -> bool {
        tag.is_multiple_of(ONE_IN) || self.times_all.get()
    }

    #[inline]
    pub(super) fn begin(&self, tag: u64, clock: impl FnOnce() -> Time) {
        if self.is_timed(tag) {
            self.under_way.borrow_mut().push((tag, clock()));
        }
    }

    #[inline]
    pub(super) fn end(&self, tag: u64, clock: impl FnOnce() -> Time) {
        if self.is_timed(tag) {
            self.note(tag, clock);
        }
    }

    fn note(&self, tag: u64, clock: impl FnOnce() -> Time) {
        let mut under_way = self.under_way.borrow_mut();
        // One that began before all were timed is not among them.
        let Some(at) = under_way.iter().position(|(known, _)| *known == tag) else { return };
        let (_, began) = under_way.swap_remove(at);
        let took_ns = clock().since(began).as_nanos() as u64;
        self.took_ns.borrow_mut().push(took_ns);
        let is_slow = self.slow_ns.is_some_and(|slow_ns| took_ns > slow_ns);
        let slow = if is_slow { self.slow.get() + 1 } else { 0 };
        self.slow.set(slow);
        if slow >= SURE {
            self.times_all.set(true);
        }
    }

    /// The times of those that have ended, in ns.
    pub(super) fn take(&self) -> Vec<u64> {
        self.took_ns.take()
    }
}

#[cfg(test)]
mod tests;
