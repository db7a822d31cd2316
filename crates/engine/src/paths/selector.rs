//! Choosing one of the usable paths: from what this lane has under way, without asking another lane.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::balance::{Gauges, LaneGauges, Started, Work};
use crate::lane::LaneId;
use crate::time::Time;

use super::table::Selector;
use super::view::Usable;

/// A path that `historical-service-time` has not heard of for so long is tried again.
pub(super) const STALE: Duration = Duration::from_secs(1);

/// What one lane has done over each path. The lane writes it, anyone may read.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct LaneCounters {
    pub(super) paths: Box<[PathCounters]>,
    /// Writes that wait for the proof that an earlier one is over, and since when the first of them does.
    pub(super) held: Count,
    pub(super) held_since_nanos: Count,
}

/// What one lane has done over one path.
#[derive(Debug, Default)]
pub(super) struct PathCounters {
    pub(super) ios: Count,
    pub(super) bytes: Count,
    pub(super) in_flight: Count,
    pub(super) in_flight_bytes: Count,
    /// Writes that were answered and are not durable by themselves.
    pub(super) written: Count,
    /// Of `historical-service-time`: mean time of an I/O in ns, and when it was last measured.
    pub(super) service_nanos: Count,
    pub(super) measured_nanos: Count,
}

/// A number with one writer.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    #[inline]
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn add(&self, more: u64) {
        self.set(self.get() + more);
    }

    #[inline]
    fn sub(&self, less: u64) {
        // Who sees it sees what was counted before it.
        self.0.store(self.get() - less, Ordering::Release);
    }
}

impl LaneCounters {
    pub(super) fn new(paths: usize) -> Self {
        Self {
            paths: (0..paths).map(|_| PathCounters::default()).collect(),
            held: Count::default(),
            held_since_nanos: Count::default(),
        }
    }
}

/// One lane's choices.
pub(super) struct Chooser {
    lane: LaneId,
    /// Where the next search begins, so that equal paths take turns.
    turn: Cell<usize>,
    gauges: Gauges,
}

/// When an I/O under way began, for selectors that choose by times.
#[derive(Clone, Copy, Debug)]
pub(super) enum Began {
    Historical { at: Time, base_weight: u32 },
    Expected(Started),
}

impl Chooser {
    pub(super) fn new(lane: LaneId, paths: usize) -> Self {
        Self { lane, turn: Cell::new(0), gauges: Gauges::new(1, paths) }
    }

    fn gauges(&self) -> &LaneGauges {
        self.gauges.of_lane(0)
    }

    /// Which of `usable`, of which there is at least one, takes an I/O of `bytes`. The index is into
    /// `usable`.
    #[inline]
    pub(super) fn choose(
        &self,
        selector: Selector,
        usable: &[Usable],
        counters: &LaneCounters,
        bytes: u64,
        clock: impl Fn() -> Time,
    ) -> usize {
        let first = self.turn.get();
        let first = if first < usable.len() { first } else { 0 };
        let of = |at: usize| &counters.paths[usable[at].path];
        let chosen = match selector {
            _ if usable.len() == 1 => 0,
            Selector::RoundRobin => first,
            Selector::QueueLength => {
                let queue = |at: usize| of(at).in_flight.get();
                best(first, usable.len(), |one, other| queue(one) < queue(other))
            }
            Selector::ServiceTime => {
                let load = |at: usize| {
                    let ahead = of(at).in_flight_bytes.get() + bytes;
                    (ahead, usable[at].relative_throughput)
                };
                best(first, usable.len(), |one, other| ends_sooner(load(one), load(other)))
            }
            Selector::HistoricalServiceTime { threshold_multiplier, .. } => {
                let now = clock();
                best(first, usable.len(), |one, other| {
                    is_better(of(one), of(other), threshold_multiplier, now)
                })
            }
            Selector::IoAffinity => {
                let bit = 1u128 << (self.lane.0 % 128);
                let is_own = |at: usize| usable[at].lanes & bit != 0;
                best(first, usable.len(), |one, other| is_own(one) && !is_own(other))
            }
            Selector::Expected => {
                let in_turn = (first..usable.len()).chain(0..first);
                let work = |at: usize| (usable[at].path, Work::of(bytes));
                let place = self.gauges().first_to_end(in_turn.map(work), clock);
                usable.iter().position(|usable| Some(usable.path) == place).unwrap_or(first)
            }
        };
        self.turn.set(chosen + 1);
        chosen
    }

    /// Counts an I/O that was done on the spot. It was never in flight when another one was to be
    /// chosen for.
    #[inline]
    pub(super) fn count_done(&self, path: usize, bytes: u64, counters: &LaneCounters) {
        let counter = &counters.paths[path];
        counter.ios.add(1);
        counter.bytes.add(bytes);
    }

    /// Counts an I/O that begins.
    #[inline]
    pub(super) fn begin(&self, path: usize, bytes: u64, counters: &LaneCounters) {
        self.count_done(path, bytes, counters);
        let counter = &counters.paths[path];
        counter.in_flight.add(1);
        counter.in_flight_bytes.add(bytes);
    }

    /// Takes the time of one that begins.
    pub(super) fn begin_timed(
        &self,
        selector: Selector,
        path: usize,
        bytes: u64,
        clock: impl Fn() -> Time,
    ) -> Option<Began> {
        match selector {
            Selector::HistoricalServiceTime { base_weight, .. } => {
                Some(Began::Historical { at: clock(), base_weight })
            }
            Selector::Expected => {
                let work = Work::of(bytes);
                let started = self.gauges().begin(path, path as u64, work, bytes, clock);
                Some(Began::Expected(started))
            }
            _ => None,
        }
    }

    /// Counts an I/O that ends.
    #[inline]
    pub(super) fn end(&self, path: usize, bytes: u64, counters: &LaneCounters) {
        let counter = &counters.paths[path];
        counter.in_flight.sub(1);
        counter.in_flight_bytes.sub(bytes);
    }

    /// Takes the time of one that ends.
    pub(super) fn end_timed(
        &self,
        path: usize,
        began: Began,
        good: bool,
        counters: &LaneCounters,
        clock: impl Fn() -> Time,
    ) {
        let (at, base_weight) = match began {
            Began::Expected(started) => return self.gauges().end(path, started, good, &clock),
            Began::Historical { at, base_weight } => (at, base_weight),
        };
        let (now, counter) = (clock(), &counters.paths[path]);
        let span = now.since(at).as_nanos() as u64;
        let before = match counter.service_nanos.get() {
            0 => span,
            before => before,
        };
        let weight = u64::from(base_weight);
        counter.service_nanos.set((before * weight + span * (1024 - weight)) / 1024);
        counter.measured_nanos.set(now.as_nanos());
    }
}

/// The best of `count` places, searched from `first` on: of equals the first one met.
#[inline]
fn best(first: usize, count: usize, beats: impl Fn(usize, usize) -> bool) -> usize {
    let (mut best, mut at) = (first, first);
    for _ in 1..count {
        at = if at + 1 == count { 0 } else { at + 1 };
        if beats(at, best) {
            best = at;
        }
    }
    best
}

/// Whether one path is done with the bytes ahead of it before another one, each as fast as its share
/// says. A share of 0 is for when there is no other.
#[inline]
fn ends_sooner((one, its_share): (u64, u32), (other, others_share): (u64, u32)) -> bool {
    match (its_share, others_share) {
        (0, _) => false,
        (_, 0) => true,
        // Shares are at most 100.
        _ => one * u64::from(others_share) < other * u64::from(its_share),
    }
}

/// Whether `one` promises an earlier end than `other`.
fn is_better(one: &PathCounters, other: &PathCounters, threshold: u32, now: Time) -> bool {
    let is_stale = |path: &PathCounters| {
        let measured = Time::from_nanos(path.measured_nanos.get());
        path.in_flight.get() == 0 && now.since(measured) >= STALE
    };
    // One that was not heard of for long may have become better.
    if is_stale(one) != is_stale(other) {
        return is_stale(one);
    }
    let (mine, theirs) = (one.service_nanos.get(), other.service_nanos.get());
    let (queue, other_queue) = (one.in_flight.get(), other.in_flight.get());
    let alike = mine.max(theirs) <= mine.min(theirs).saturating_mul(u64::from(threshold));
    if threshold > 1 && alike {
        return queue < other_queue;
    }
    mine.saturating_mul(queue + 1) < theirs.saturating_mul(other_queue + 1)
}

#[cfg(test)]
mod tests;
