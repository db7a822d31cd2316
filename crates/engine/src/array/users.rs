//! How long users wait for their answers: what a sync task heeds.
//!
//! Each lane counts what is asked of it, and times one request in so many. Both stand in memory that
//! this lane alone writes; whoever wants to know sums them up. While no sync task runs a lane also notes,
//! second by second, how long one request in a hundred took at least.

mod sketch;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::request::{Queue, Request};
use crate::time::Time;

use super::array_lane::ArrayLane;

pub(super) use sketch::Histogram;
use sketch::Sketch;

#[cfg(test)]
mod tests;

/// One request in so many is timed, and while a sync task runs; a power of two.
const TIMED: u64 = 64;
const TIMED_WATCHED: u64 = 8;

/// Where a request is timed less often than this, all are: that costs little then, and who waits is seen.
const SELDOM: Duration = Duration::from_millis(1);

/// Least time, and requests timed, of which a lane notes how long they took.
const SECOND: Duration = Duration::from_secs(1);
const ENOUGH: u64 = 16;

/// Such notes that are kept.
const NOTES: usize = 60;

/// What is slow: one request in a hundred.
pub(super) const SLOW: f64 = 0.99;

/// The users of an array, on all lanes.
pub(crate) struct Users {
    seats: Box<[Seat]>,
    /// A sync task runs.
    watched: AtomicBool,
}

/// What one lane says about its users. Written by that lane alone.
#[repr(align(128))]
#[derive(Default)]
struct Seat {
    requests: AtomicU64,
    /// Those under way that are timed.
    waiting: AtomicU64,
    sketch: Sketch,
    notes: Notes,
}

/// When, and how long one request in a hundred took in the second before: the last so many.
struct Notes([(AtomicU64, AtomicU64); NOTES]);

impl Default for Notes {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Default::default()))
    }
}

impl Users {
    /// Nobody has asked anything, on so many lanes.
    pub(crate) fn new(lanes: usize) -> Self {
        let seats = (0..lanes).map(|_| Seat::default()).collect();
        Self { seats, watched: AtomicBool::new(false) }
    }

    /// Requests that have begun, ever.
    pub(super) fn requests(&self) -> u64 {
        self.seats.iter().map(|seat| seat.requests.load(Ordering::Relaxed)).sum()
    }

    /// Requests under way, of those that are timed.
    pub(super) fn waiting(&self) -> u64 {
        self.seats.iter().map(|seat| seat.waiting.load(Ordering::Relaxed)).sum()
    }

    /// How long those took that were timed, ever.
    pub(super) fn times(&self) -> Histogram {
        let mut sum = Histogram::default();
        self.seats.iter().for_each(|seat| sum.add(&seat.sketch));
        sum
    }

    /// As if so many requests had taken so long.
    #[cfg(test)]
    pub(super) fn pretend(&self, requests: u64, took: Duration) {
        let seat = &self.seats[0];
        seat.requests.fetch_add(requests, Ordering::Relaxed);
        (0..requests).for_each(|_| seat.sketch.note(took));
    }

    /// As if slow requests had taken so long in a second without a sync task.
    #[cfg(test)]
    pub(super) fn pretend_undisturbed(&self, took: Duration) {
        let (when, noted) = &self.seats[0].notes.0[0];
        noted.store(took.as_nanos() as u64, Ordering::Relaxed);
        when.store(1, Ordering::Relaxed);
    }

    /// Says whether a sync task runs: more requests are timed then, and none of them counts as undisturbed.
    pub(super) fn watch(&self, watched: bool) {
        self.watched.store(watched, Ordering::Relaxed);
    }

    fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed)
    }

    /// How long slow requests take without a sync task: the median of the last minute before the last of
    /// them. None where nobody asked enough.
    pub(super) fn undisturbed(&self) -> Option<Duration> {
        let load = |(when, took): &(AtomicU64, AtomicU64)| {
            (when.load(Ordering::Relaxed), took.load(Ordering::Relaxed))
        };
        let notes = self.seats.iter().flat_map(|seat| seat.notes.0.iter().map(load));
        let notes: Vec<_> = notes.filter(|(when, _)| *when > 0).collect();
        let last = notes.iter().map(|(when, _)| *when).max()?;
        let minute = SECOND.as_nanos() as u64 * NOTES as u64;
        let recent = notes.iter().filter(|(when, _)| when + minute > last).map(|(_, took)| *took);
        let mut recent: Vec<u64> = recent.collect();
        recent.sort_unstable();
        Some(Duration::from_nanos(recent[recent.len() / 2]))
    }
}

/// What one lane knows of its users.
pub(super) struct LaneUsers {
    /// One request in so many is timed: this, less one.
    mask: Cell<u64>,
    timed: Cell<Time>,
    second: RefCell<UndisturbedSecond>,
}

/// What a lane has timed since it last noted how long requests take.
#[derive(Default)]
struct UndisturbedSecond {
    began: Option<Time>,
    before: Histogram,
    noted: usize,
}

impl Default for LaneUsers {
    fn default() -> Self {
        Self {
            mask: Cell::new(TIMED - 1),
            timed: Cell::new(Time::ZERO),
            second: RefCell::default(),
        }
    }
}

impl ArrayLane {
    /// Counts a request. Whether it is to be timed.
    #[inline]
    pub(super) fn counts_and_times(&self) -> bool {
        let requests = &self.seat().requests;
        // One writer: a plain add, visible to whoever sums.
        let count = requests.load(Ordering::Relaxed) + 1;
        requests.store(count, Ordering::Relaxed);
        count & self.users.mask.get() == 0
    }

    /// Starts a request, and times it.
    #[cold]
    pub(super) fn submit_timed(self: &Rc<Self>, queue: &Rc<Queue>, tag: u64, request: Request) {
        let began = self.lane.backend().now();
        let seldom = began.since(self.users.timed.replace(began)) >= SELDOM;
        self.users.mask.set(match self.array.users.is_watched() {
            false => TIMED - 1,
            true if seldom => 0,
            true => TIMED_WATCHED - 1,
        });
        self.seat().count_waiting(1);
        // The answer goes its way in the same turn as others: a stream must not fall apart by being timed.
        let (this, asks) = (self.clone(), queue.clone());
        let timed = Queue::heard_by(move |result| {
            this.note_time(began);
            asks.end(tag, result);
        });
        self.begin(&timed, 0, request);
    }

    fn note_time(&self, began: Time) {
        let (seat, watched) = (self.seat(), self.array.users.is_watched());
        let now = self.lane.backend().now();
        seat.count_waiting(-1);
        seat.sketch.note(now.since(began));
        self.users.second.borrow_mut().look(now, seat, watched);
    }

    fn seat(&self) -> &Seat {
        &self.array.users.seats[usize::from(self.lane.id().0)]
    }
}

impl Seat {
    fn count_waiting(&self, more: i64) {
        // One writer: a plain add.
        let waiting = self.waiting.load(Ordering::Relaxed).wrapping_add_signed(more);
        self.waiting.store(waiting, Ordering::Relaxed);
    }
}

impl UndisturbedSecond {
    /// Notes how long requests took, when a second is over in which no sync task ran.
    fn look(&mut self, now: Time, seat: &Seat, watched: bool) {
        let Some(began) = self.began.filter(|_| !watched) else {
            self.began = (!watched).then_some(now);
            self.before = Histogram::of(&seat.sketch);
            return;
        };
        if now.since(began) < SECOND {
            return;
        }
        let since = Histogram::of(&seat.sketch).less(&self.before);
        if since.count() < ENOUGH {
            return;
        }
        let (when, took) = &seat.notes.0[self.noted % NOTES];
        took.store(since.quantile(SLOW).as_nanos() as u64, Ordering::Relaxed);
        when.store(now.as_nanos(), Ordering::Relaxed);
        self.noted += 1;
        (self.began, self.before) = (Some(now), Histogram::of(&seat.sketch));
    }
}
