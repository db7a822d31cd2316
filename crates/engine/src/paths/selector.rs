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
const STALE: Duration = Duration::from_secs(1);

/// What one lane has done over each path. The lane writes it, anyone may read.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct LaneCounters {
    pub(super) paths: Box<[PathCounters]>,
}

/// What one lane has done over one path.
#[derive(Debug, Default)]
pub(super) struct PathCounters {
    pub(super) ios: Count,
    pub(super) bytes: Count,
    pub(super) in_flight: Count,
    pub(super) in_flight_bytes: Count,
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
    fn add(&self, more: u64) {
        self.set(self.get() + more);
    }

    #[inline]
    fn sub(&self, less: u64) {
        self.set(self.get() - less);
    }
}

impl LaneCounters {
    pub(super) fn new(paths: usize) -> Self {
        Self { paths: (0..paths).map(|_| PathCounters::default()).collect() }
    }
}

/// One lane's choices.
pub(super) struct Chooser {
    lane: LaneId,
    /// Where the next search begins, so that equal paths take turns.
    turn: Cell<usize>,
    gauges: Gauges,
}

/// An I/O under way over a path, as the chooser counts it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    path: usize,
    bytes: u64,
    /// Only where the selector asks for times.
    began: Option<Time>,
    gauge: Option<Started>,
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
        let in_turn = (first..usable.len()).chain(0..first);
        let of = |at: usize| &counters.paths[usable[at].path];
        let chosen = match selector {
            _ if usable.len() == 1 => Some(0),
            Selector::RoundRobin => Some(first),
            Selector::QueueLength => in_turn.min_by_key(|&at| of(at).in_flight.get()),
            Selector::ServiceTime => in_turn.min_by(|&one, &other| {
                let cost = |at: usize| ahead(of(at), usable[at].relative_throughput, bytes);
                cost(one).total_cmp(&cost(other))
            }),
            Selector::HistoricalServiceTime { threshold_multiplier, .. } => {
                let now = clock();
                in_turn.reduce(|best, other| {
                    let beats = is_better(of(other), of(best), threshold_multiplier, now);
                    if beats { other } else { best }
                })
            }
            Selector::IoAffinity => {
                let bit = 1u128 << (self.lane.0 % 128);
                let mut own = in_turn.clone().filter(|&at| usable[at].lanes & bit != 0);
                own.next().or(Some(first))
            }
            Selector::Expected => {
                let work = |at: usize| (usable[at].path, Work::of(bytes));
                let place = self.gauges().first_to_end(in_turn.map(work), clock);
                place.and_then(|place| usable.iter().position(|usable| usable.path == place))
            }
        };
        let chosen = chosen.unwrap_or(first);
        self.turn.set(chosen + 1);
        chosen
    }

    /// Counts an I/O that begins.
    #[inline]
    pub(super) fn begin(
        &self,
        selector: Selector,
        path: usize,
        bytes: u64,
        counters: &LaneCounters,
        clock: impl Fn() -> Time,
    ) -> Counted {
        let counter = &counters.paths[path];
        counter.ios.add(1);
        counter.bytes.add(bytes);
        counter.in_flight.add(1);
        counter.in_flight_bytes.add(bytes);
        let mut counted = Counted { path, bytes, began: None, gauge: None };
        match selector {
            Selector::HistoricalServiceTime { .. } => counted.began = Some(clock()),
            Selector::Expected => {
                let started = self.gauges().begin(path, path as u64, Work::of(bytes), bytes, clock);
                counted.gauge = Some(started);
            }
            _ => {}
        }
        counted
    }

    /// Counts its end.
    #[inline]
    pub(super) fn end(
        &self,
        selector: Selector,
        counted: Counted,
        good: bool,
        counters: &LaneCounters,
        clock: impl Fn() -> Time,
    ) {
        let Counted { path, bytes, began, gauge } = counted;
        let counter = &counters.paths[path];
        counter.in_flight.sub(1);
        counter.in_flight_bytes.sub(bytes);
        if let Some(gauge) = gauge {
            self.gauges().end(path, gauge, good, &clock);
        }
        if let (Some(began), Selector::HistoricalServiceTime { base_weight, .. }) =
            (began, selector)
        {
            let now = clock();
            let span = now.since(began).as_nanos() as u64;
            let before = match counter.service_nanos.get() {
                0 => span,
                before => before,
            };
            let weight = u64::from(base_weight);
            counter.service_nanos.set((before * weight + span * (1024 - weight)) / 1024);
            counter.measured_nanos.set(now.as_nanos());
        }
    }
}

/// Bytes ahead of the end of an I/O, measured by what the path can do.
fn ahead(path: &PathCounters, relative_throughput: u32, bytes: u64) -> f64 {
    match relative_throughput {
        0 => f64::INFINITY,
        share => (path.in_flight_bytes.get() + bytes) as f64 / f64::from(share),
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
