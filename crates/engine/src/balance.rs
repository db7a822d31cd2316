//! When would an I/O end, if it were given to this place or to that one?
//!
//! A *place* is whatever can do the same I/O as others: a mirror's member, a path to a device. A lane
//! keeps a [`Gauge`] for each, which it alone writes: the work that it has under way there, and moving
//! averages of how long such work took. From them comes the expected completion time:
//!
//! ```text
//! expected(work) = (work under way + work) × (mean time of an I/O / mean work ahead of an I/O)
//! ```
//!
//! The quotient is the *pace*: what a unit of work costs at the load that the place has now. A place
//! that serves many I/Os side by side shows a small pace under load, one that serves them one after
//! the other the same pace always; what other lanes or other users have under way there shows in it
//! as well. So no lane asks another one, and none writes a cache line that another one reads.
//!
//! Nothing here has a clock: whoever uses it says what time it is, when it is asked.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::time::Time;

#[cfg(test)]
mod tests;

/// Work of an I/O besides its bytes, in bytes that move in the same time. Drives of 70 000 to
/// 800 000 I/Os a second take as long over an empty one as over 4 to 7 KB.
const FIXED_BYTES: u64 = 8 << 10;

/// A shorter mean than this is measured only now and then: the clock would cost more than it tells.
const QUICK: Duration = Duration::from_micros(20);
const QUICK_EVERY: u64 = 16;

/// Weight of a new measurement, and of one after a long while, in which anything may have happened.
const WEIGHT: f64 = 1.0 / 16.0;
const WEIGHT_AFTER_PAUSE: f64 = 1.0 / 2.0;
const PAUSE: Duration = Duration::from_millis(200);

/// Measurements that make what is usual.
const USUAL: f64 = 256.0;

/// A place that is not chosen is tried again after so long, and so many I/Os elsewhere; with it at
/// most one I/O in [`RETRY_IOS`], and one part in [`RETRY_SPANS`] of the time, is spent on trying.
const RETRY: Duration = Duration::from_millis(250);
const RETRY_SPANS: u32 = 32;
const RETRY_IOS: u64 = 32;

/// How much slower than usual, and than the best of the others, makes a place limp. Below
/// [`LIMP_LEAST`] it is noise.
const LIMP: f64 = 4.0;
const LIMP_LEAST: Duration = Duration::from_micros(250);
const LIMP_MEASUREMENTS: u64 = 32;

/// What an I/O asks of a place, in bytes that could move instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Work(u64);

impl Work {
    /// An I/O of so many bytes.
    #[inline]
    pub fn of(bytes: u64) -> Self {
        Self(FIXED_BYTES + bytes)
    }

    /// The same, and what comes on top: a seek, as bytes that pass meanwhile.
    #[inline]
    #[must_use]
    pub fn and(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

/// The gauges of every place, for every lane.
#[derive(Debug)]
pub struct Gauges(Box<[LaneGauges]>);

/// The gauges of one lane. That lane writes them, anyone may read.
#[derive(Debug)]
#[repr(align(128))]
pub struct LaneGauges {
    /// Choices made, ever.
    turn: Count,
    gauges: Box<[Gauge]>,
}

/// What one lane knows of one place.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Gauge {
    /// Who is measured: a place may get another device.
    device: Count,
    in_flight: Count,
    /// Of those in flight.
    work: Count,
    reads: Count,
    read_bytes: Count,
    errors: Count,
    writes: Count,
    writes_in_flight: Count,
    /// Mean time of an I/O, in ns, and mean work under way when one began, itself included.
    span: Mean,
    ahead: Mean,
    /// `span / ahead`: ns for a unit of work.
    pace: Mean,
    usual_span: Mean,
    usual_pace: Mean,
    measurements: Count,
    /// When the last measurement ended, and the lane's turn then.
    measured: Count,
    measured_turn: Count,
    /// Behind the last sector that was asked for, and how many were asked for in a row.
    head: Count,
    streak: Count,
}

/// An I/O under way. To be given back to the gauge that gave it.
#[derive(Clone, Copy, Debug)]
pub struct Started {
    device: u64,
    work: Work,
    ahead: u64,
    /// None where it is not measured.
    began: Option<Time>,
}

/// What a place has done and how it does, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Reads begun, ever.
    pub reads: u64,
    /// Bytes of these.
    pub read_bytes: u64,
    /// Writes begun, ever.
    pub writes: u64,
    /// Reads and writes under way.
    pub pending: u64,
    /// Reads that failed.
    pub errors: u64,
    /// Mean time of a read, the wait at the device included, as the lane that measured last has it.
    pub service: Duration,
    /// Reads take much longer than they used to, and than elsewhere.
    pub limps: bool,
}

impl Gauges {
    /// For `lanes` lanes and `places` places each.
    pub fn new(lanes: usize, places: usize) -> Self {
        let gauges = || (0..places).map(|_| Gauge::default()).collect();
        let lane = || LaneGauges { turn: Count::default(), gauges: gauges() };
        Self((0..lanes).map(|_| lane()).collect())
    }

    /// Those of a lane, to be written on that lane only.
    #[inline]
    pub fn of_lane(&self, lane: usize) -> &LaneGauges {
        &self.0[lane]
    }

    /// What all lanes together have done with `device` in `place`.
    pub fn load(&self, place: usize, device: u64) -> Load {
        let mut load = Load::default();
        let mut measured = 0;
        for lane in &self.0 {
            let gauge = &lane.gauges[place];
            if gauge.device.get() != device {
                continue;
            }
            load.reads += gauge.reads.get();
            load.read_bytes += gauge.read_bytes.get();
            load.writes += gauge.writes.get();
            load.pending += gauge.in_flight.get() + gauge.writes_in_flight.get();
            load.errors += gauge.errors.get();
            load.limps |= lane.limps(place);
            if gauge.measured.get() > measured {
                measured = gauge.measured.get();
                load.service = Duration::from_nanos(gauge.span.get() as u64);
            }
        }
        load
    }
}

impl LaneGauges {
    /// The gauge of a place.
    #[inline]
    pub fn of(&self, place: usize) -> &Gauge {
        &self.gauges[place]
    }

    /// The place of `candidates` where the I/O would end first; the work may differ from place to
    /// place. Where it is the same within an eighth, the one with less under way; then the first one, so
    /// that who wants ties to spread lets another one be the first each time.
    /// Now and then one that would not be chosen is tried, for it may have become better.
    #[inline]
    pub fn first_to_end(
        &self,
        candidates: impl Iterator<Item = (usize, Work)> + Clone,
        clock: impl FnOnce() -> Time,
    ) -> Option<usize> {
        let turn = self.turn.get() + 1;
        self.turn.set(turn);
        let mut best: Option<(usize, Outlook)> = None;
        for (place, work) in candidates.clone() {
            let outlook = self.gauges[place].outlook(work);
            if best.as_ref().is_none_or(|(_, known)| outlook.beats(known)) {
                best = Some((place, outlook));
            }
        }
        let (place, outlook) = best?;
        if outlook.nanos < QUICK.as_nanos() as f64 && !turn.is_multiple_of(QUICK_EVERY) {
            return Some(place);
        }
        let now = clock();
        let forgotten = candidates.map(|(place, _)| place);
        Some({ forgotten }.find(|&other| self.is_to_be_tried(other, turn, now)).unwrap_or(place))
    }

    /// Whether nothing was heard of a place for so long that it is worth an I/O to ask.
    fn is_to_be_tried(&self, place: usize, turn: u64, now: Time) -> bool {
        let gauge = &self.gauges[place];
        let unheard = now.since(Time::from_nanos(gauge.measured.get()));
        let span = Duration::from_nanos(gauge.span.get() as u64);
        gauge.in_flight.get() == 0
            && turn.saturating_sub(gauge.measured_turn.get()) >= RETRY_IOS
            && unheard >= RETRY.max(span * RETRY_SPANS)
            && gauge.measurements.get() > 0
    }

    /// Starts an I/O of `device` in `place`. `clock` is asked only if the I/O is to be measured.
    #[inline]
    pub fn begin(
        &self,
        place: usize,
        device: u64,
        work: Work,
        bytes: u64,
        clock: impl FnOnce() -> Time,
    ) -> Started {
        self.gauges[place].begin(device, work, bytes, clock)
    }

    /// Ends an I/O that [`begin`](Self::begin) started in `place`.
    #[inline]
    pub fn end(&self, place: usize, started: Started, good: bool, clock: impl FnOnce() -> Time) {
        self.gauges[place].end(started, good, self.turn.get(), clock);
    }

    /// Whether I/Os in `place` take much longer than they used to, and than in the best place that
    /// this lane uses. Both the time of an I/O and the pace must have grown: the first grows with the
    /// load, the second when a load ends.
    pub fn limps(&self, place: usize) -> bool {
        let gauge = &self.gauges[place];
        let span = gauge.span.get();
        let others = self.gauges.iter().enumerate().filter(|(other, _)| *other != place);
        let best = others.filter(|(_, other)| other.measurements.get() > 0);
        let best = best.map(|(_, other)| other.span.get()).fold(f64::INFINITY, f64::min);
        gauge.measurements.get() >= LIMP_MEASUREMENTS
            && gauge.is_unusual()
            && (best == f64::INFINITY || span >= LIMP * best)
    }
}

impl Gauge {
    #[inline]
    fn begin(&self, device: u64, work: Work, bytes: u64, clock: impl FnOnce() -> Time) -> Started {
        self.take_for(device);
        let ios = self.reads.add(1);
        self.read_bytes.add(bytes);
        self.in_flight.add(1);
        let ahead = self.work.add(work.0);
        let measured = self.span.get() >= QUICK.as_nanos() as f64
            || ios <= LIMP_MEASUREMENTS
            || ios.is_multiple_of(QUICK_EVERY);
        Started { device, work, ahead, began: measured.then(clock) }
    }

    #[inline]
    fn end(&self, started: Started, good: bool, turn: u64, clock: impl FnOnce() -> Time) {
        if started.device != self.device.get() {
            return;
        }
        self.in_flight.set(self.in_flight.get().saturating_sub(1));
        self.work.set(self.work.get().saturating_sub(started.work.0));
        if !good {
            self.errors.add(1);
        } else if let Some(began) = started.began {
            self.measure(began, clock(), started.ahead, turn);
        }
    }

    /// Takes one measurement: so long took an I/O that had so much work ahead of it, its own included.
    fn measure(&self, began: Time, now: Time, ahead: u64, turn: u64) {
        let (span, ahead) = (now.since(began).as_nanos() as f64, ahead as f64);
        let count = self.measurements.add(1);
        let paused = now.since(Time::from_nanos(self.measured.get())) >= PAUSE;
        let weight = if paused { WEIGHT_AFTER_PAUSE } else { WEIGHT }.max(1.0 / count as f64);
        self.span.learn(span, weight);
        self.ahead.learn(ahead, weight);
        self.pace.set(self.span.get() / self.ahead.get().max(1.0));
        if count < LIMP_MEASUREMENTS || !self.is_unusual() {
            let weight = 1.0 / USUAL.min(count as f64);
            self.usual_span.learn(self.span.get(), weight);
            self.usual_pace.learn(self.pace.get(), weight);
        }
        self.measured.set(now.as_nanos());
        self.measured_turn.set(turn);
    }

    fn is_unusual(&self) -> bool {
        let span = self.span.get();
        span >= (LIMP * self.usual_span.get()).max(LIMP_LEAST.as_nanos() as f64)
            && self.pace.get() >= LIMP * self.usual_pace.get()
    }

    /// What is to be expected of an I/O that is given to this place now.
    #[inline]
    pub fn outlook(&self, work: Work) -> Outlook {
        let under_way = self.work.get();
        Outlook { nanos: (under_way + work.0) as f64 * self.pace.get(), under_way }
    }

    /// Counts a write that begins. It tells nothing of the place: all copies are written.
    #[inline]
    pub fn write_begins(&self, device: u64) {
        self.take_for(device);
        self.writes.add(1);
        self.writes_in_flight.add(1);
    }

    /// A write that was counted ended.
    #[inline]
    pub fn write_ends(&self) {
        self.writes_in_flight.set(self.writes_in_flight.get().saturating_sub(1));
    }

    /// I/Os under way.
    #[inline]
    pub fn in_flight(&self) -> u64 {
        self.in_flight.get()
    }

    /// Behind the last sector that was asked for here.
    #[inline]
    pub fn head(&self) -> u64 {
        self.head.get()
    }

    /// Sectors that were asked for in a row, up to [`head`](Self::head).
    #[inline]
    pub fn streak(&self) -> u64 {
        self.streak.get()
    }

    /// Notes which sectors are asked for.
    #[inline]
    pub fn move_head(&self, sector: u64, sectors: u64) {
        let goes_on = sector == self.head.get();
        self.streak.set(if goes_on { self.streak.get() + sectors } else { sectors });
        self.head.set(sector + sectors);
    }

    /// A place that has got another device begins anew.
    #[inline]
    fn take_for(&self, device: u64) {
        if self.device.get() != device {
            self.forget();
            self.device.set(device);
        }
    }

    fn forget(&self) {
        let counts = [
            &self.in_flight,
            &self.work,
            &self.reads,
            &self.read_bytes,
            &self.errors,
            &self.writes,
            &self.writes_in_flight,
            &self.measurements,
            &self.measured,
            &self.measured_turn,
            &self.head,
            &self.streak,
        ];
        counts.into_iter().for_each(|count| count.set(0));
        let means = [&self.span, &self.ahead, &self.pace, &self.usual_span, &self.usual_pace];
        means.into_iter().for_each(|mean| mean.set(0.0));
    }
}

/// What is to be expected of an I/O in one place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outlook {
    /// Until it ends. 0 where nothing is known: such a place is tried.
    pub nanos: f64,
    /// Work that is there already.
    pub under_way: u64,
}

impl Outlook {
    /// Whether to choose this one. Equal places would drift apart on the noise of their
    /// measurements, if the work under way did not decide between them.
    #[inline]
    pub fn beats(&self, other: &Self) -> bool {
        let close = (self.nanos - other.nanos).abs() * 8.0 <= self.nanos.min(other.nanos);
        if close { self.under_way < other.under_way } else { self.nanos < other.nanos }
    }
}

/// A number with one writer and any readers. No model of memory need know it: nothing follows from
/// one but statistics and preferences.
#[derive(Debug, Default)]
struct Count(AtomicU64);

impl Count {
    #[inline]
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Gives the sum.
    #[inline]
    fn add(&self, more: u64) -> u64 {
        let sum = self.get() + more;
        self.set(sum);
        sum
    }
}

/// As [`Count`], a moving average.
#[derive(Debug, Default)]
struct Mean(AtomicU64);

impl Mean {
    #[inline]
    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    #[inline]
    fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }

    fn learn(&self, value: f64, weight: f64) {
        self.set(self.get() + (value - self.get()) * weight);
    }
}
