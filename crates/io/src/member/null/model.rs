//! A drive as a queue: when does an I/O end that arrives now?
//!
//! No clock and no I/O: whoever drives the model says when things arrive. An I/O waits until the
//! drive takes it (`queue_depth`), until one of its servers is free (`queues`), and until the
//! direction's bandwidth and rate let it pass; then it takes what its bytes, the arm and the drawn
//! time of service cost. First come, first served: a disk that would choose the nearest is only
//! made faster by as much ([`Arm`]).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use mdspace_engine::time::Time;

use super::arm::Arm;
use super::drive::{Direction, Drive, Spread};
use super::faults::Faults;
use super::random::Random;

/// The normal distribution's 99 %.
const NORMAL_P99: f64 = 2.326_347_874;

/// An I/O that comes to the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) at: Time,
    pub(crate) kind: Kind,
    pub(crate) sector: u64,
    pub(crate) bytes: u64,
}

/// What an I/O asks of the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    /// Makes writes durable, or gives sectors up: no bytes move.
    Other,
}

/// How an I/O ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) at: Time,
    /// With a medium error.
    pub(crate) fails: bool,
}

#[derive(Debug)]
pub(super) struct Model {
    read: Passage,
    write: Passage,
    flush_latency: Duration,
    spread: Spread,
    /// Of the logarithms, where the spread is lognormal.
    sigma: f64,
    depth: Places,
    servers: Places,
    arm: Option<Arm>,
    faults: Faults,
    random: Random,
    /// Lanes may swap their arrivals on the way to the model's lock: it has one order.
    latest: Time,
}

impl Model {
    /// A drive of `sectors` sectors with its own share of the seed's numbers.
    pub(super) fn new(drive: Drive, sectors: u64, ordinal: u64) -> Self {
        let rate = drive.read.bytes_per_second.unwrap_or(u64::MAX);
        let arm = drive.rotation.as_ref().map(|rotation| Arm::new(rotation, rate, sectors));
        // Mean 1 and this p99: p99 = exp(z σ − σ²/2).
        let sigma = NORMAL_P99 - (NORMAL_P99.powi(2) - 2.0 * drive.p99.ln()).max(0.0).sqrt();
        Self {
            read: Passage::new(drive.read),
            write: Passage::new(drive.write),
            flush_latency: drive.flush_latency,
            spread: drive.spread,
            sigma,
            depth: Places::new(drive.queue_depth),
            servers: Places::new(if arm.is_some() { 1 } else { drive.queues }),
            arm,
            faults: Faults::new(drive.faults),
            random: Random::new(drive.seed ^ ordinal.wrapping_mul(0xd134_2543_de82_ef95)),
            latest: Time::ZERO,
        }
    }

    /// Takes an I/O and says how it will end.
    pub(super) fn answer(&mut self, arrival: Arrival) -> Answer {
        self.latest = self.latest.max(arrival.at);
        let taken = self.depth.claim(self.latest);
        let queued = self.depth.taken() + 1;
        let start = self.servers.claim(taken);
        let fate = self.faults.draw(start, &mut self.random);
        let (passes, moving, latency) = self.pass(start, arrival);
        let mut work = latency.mul_f64(self.spread_factor());
        if let (Some(arm), Kind::Read | Kind::Write) = (&mut self.arm, arrival.kind) {
            work += arm.reach(passes, arrival.sector, arrival.bytes / 512, queued);
        }
        let at = passes + moving + work.mul_f64(fate.factor) + fate.hangs;
        self.servers.hold(at);
        self.depth.hold(at);
        Answer { at, fails: fate.fails && arrival.kind != Kind::Other }
    }

    /// When the bytes begin to move, how long they do, and the mean time of service.
    fn pass(&mut self, start: Time, arrival: Arrival) -> (Time, Duration, Duration) {
        let passage = match arrival.kind {
            Kind::Read => &mut self.read,
            Kind::Write => &mut self.write,
            Kind::Other => return (start, Duration::ZERO, self.flush_latency),
        };
        let (passes, moving) = passage.pass(start, arrival.bytes);
        (passes, moving, passage.direction.latency)
    }

    /// A time of service over its mean.
    fn spread_factor(&mut self) -> f64 {
        match self.spread {
            Spread::Constant => 1.0,
            Spread::Exponential => -self.random.unit().ln(),
            Spread::Lognormal => (self.sigma * (self.random.normal() - self.sigma / 2.0)).exp(),
        }
    }
}

/// The way of reads or of writes: one after the other, no faster than its bandwidth and its rate.
#[derive(Debug)]
struct Passage {
    direction: Direction,
    free: Time,
}

impl Passage {
    fn new(direction: Direction) -> Self {
        Self { direction, free: Time::ZERO }
    }

    /// When bytes that are there at `start` begin to move, and how long they do.
    fn pass(&mut self, start: Time, bytes: u64) -> (Time, Duration) {
        let moving =
            self.direction.bytes_per_second.map_or(Duration::ZERO, |rate| span(bytes, rate));
        let apart = self.direction.per_second.map_or(Duration::ZERO, |rate| span(1, rate));
        let passes = start.max(self.free);
        self.free = passes + moving.max(apart);
        (passes, moving)
    }
}

/// How long `count` things take at `rate` a second, rounded up.
fn span(count: u64, rate: u64) -> Duration {
    let nanos = (u128::from(count) * 1_000_000_000).div_ceil(rate.into());
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Places that are taken until a time each.
#[derive(Debug)]
struct Places {
    most: usize,
    ends: BinaryHeap<Reverse<Time>>,
}

impl Places {
    fn new(most: usize) -> Self {
        Self { most, ends: BinaryHeap::new() }
    }

    /// When who comes at `at` gets a place, to [`hold`](Self::hold).
    fn claim(&mut self, at: Time) -> Time {
        while self.ends.peek().is_some_and(|&Reverse(end)| end <= at) {
            self.ends.pop();
        }
        if self.ends.len() < self.most {
            return at;
        }
        self.ends.pop().map_or(at, |Reverse(free)| free)
    }

    fn hold(&mut self, until: Time) {
        self.ends.push(Reverse(until));
    }

    fn taken(&self) -> usize {
        self.ends.len()
    }
}

#[cfg(test)]
mod tests;
