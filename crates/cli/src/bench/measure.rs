//! One load on one lane for some time, through an array or straight to members.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mdspace_engine::array::ArrayLane;
use mdspace_engine::backend::{IoDone, IoOp, MemberId, MemberIo, Patience, ReadInto, WriteFrom};
use mdspace_engine::lane::{Lane, OpOwner, Traffic};
use mdspace_engine::memory::{Sink, Source};
use mdspace_engine::request::{Queue, Request};
use mdspace_engine::time::Time;
use mdspace_io::{LaneIo, Payload};

use super::latency::Latencies;
use super::load::{Addresses, Pattern, Target};
use super::machine;

/// Requests between two looks at the clock.
const CLOCK_EVERY: u64 = 64;

/// What a load is, on one lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) pattern: Pattern,
    pub(super) block_bytes: usize,
    pub(super) depth: usize,
    pub(super) lane: u64,
    pub(super) lanes: u64,
    pub(super) until: Until,
    /// The load stays within so many bytes at the start; everywhere where there is none.
    pub(super) area_bytes: Option<u64>,
}

/// When a load ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Until {
    /// After this time.
    Elapsed(Duration),
    /// After so many requests.
    Requests(u64),
}

/// What a load gave, on one lane or summed over several.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) requests: u64,
    pub(super) errors: u64,
    /// Without the time in which others had the CPU.
    pub(super) elapsed: Duration,
    /// That time.
    pub(super) delayed: Duration,
    /// With it.
    pub(super) whole: Duration,
    pub(super) latencies_ns: Vec<u64>,
    pub(super) traffic: Traffic,
}

impl Outcome {
    /// Requests a second.
    pub(super) fn iops(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// The part of the time in which the thread had the CPU that it wanted.
    pub(super) fn cpu_share(&self) -> f64 {
        1.0 - self.delayed.as_secs_f64() / self.whole.as_secs_f64().max(1e-9)
    }

    /// Counts all of the time: the members went on while others had the CPU.
    pub(super) fn count_whole(&mut self) {
        self.elapsed = self.whole;
    }

    /// The latency below which `share` of the sampled requests lie, in microseconds;
    /// none when nothing was sampled.
    pub(super) fn percentile_us(&mut self, share: f64) -> Option<f64> {
        self.latencies_ns.sort_unstable();
        let at = (self.latencies_ns.len() as f64 * share) as usize;
        let found = self.latencies_ns.get(at).or(self.latencies_ns.last());
        found.map(|&ns| ns as f64 / 1000.0)
    }

    /// Adds what another lane gave in the same time.
    pub(super) fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.errors += other.errors;
        self.elapsed = self.elapsed.max(other.elapsed);
        self.delayed = self.delayed.max(other.delayed);
        self.whole = self.whole.max(other.whole);
        self.latencies_ns.extend(other.latencies_ns);
        self.traffic.member_ios += other.traffic.member_ios;
        self.traffic.member_bytes += other.traffic.member_bytes;
        self.traffic.copied_bytes += other.traffic.copied_bytes;
    }
}

/// What both kinds of load share: memory to move, addresses, counts and the clock.
pub(super) struct Meter {
    lane: Rc<Lane>,
    load: Load,
    /// Memory to read into, and memory to write from: the latter is never filled again.
    payloads: [Vec<Rc<Payload>>; 2],
    addresses: RefCell<Addresses>,
    started: Time,
    delayed: Duration,
    before: Traffic,
    submitted: Cell<u64>,
    ended: Cell<u64>,
    errors: Cell<u64>,
    latencies: Latencies,
}

impl Meter {
    pub(super) fn new(lane: &Rc<Lane>, io: &LaneIo, load: Load, sectors: u64) -> Self {
        let block_sectors = (load.block_bytes / 512) as u64;
        let sectors = load.area_bytes.map_or(sectors, |bytes| sectors.min(bytes / 512));
        let latencies = match load.until {
            Until::Elapsed(_) => Latencies::at_depth(load.depth),
            // Its instructions are counted, and each look at the clock would be among them.
            Until::Requests(_) => Latencies::default(),
        };
        let addresses = Addresses::new(load.pattern, block_sectors, sectors, load.lane, load.lanes);
        Self {
            lane: lane.clone(),
            load,
            payloads: payloads(io, load),
            addresses: RefCell::new(addresses),
            started: lane.backend().now(),
            delayed: machine::run_delay(),
            before: lane.traffic(),
            submitted: Cell::new(0),
            ended: Cell::new(0),
            errors: Cell::new(0),
            latencies,
        }
    }

    /// The next request's tag, what it asks for, and its memory.
    pub(super) fn begin(&self) -> (u64, Target, &Rc<Payload>) {
        let tag = self.submitted.get();
        self.submitted.set(tag + 1);
        self.latencies.begin(tag, || self.lane.backend().now());
        let target = self.addresses.borrow_mut().next();
        let payloads = &self.payloads[usize::from(target.write)];
        (tag, target, &payloads[tag as usize % payloads.len()])
    }

    pub(super) fn end(&self, tag: u64, good: bool) {
        self.ended.set(self.ended.get() + 1);
        if !good {
            self.errors.set(self.errors.get() + 1);
        }
        self.latencies.end(tag, || self.lane.backend().now());
    }

    /// Whether the request just begun is the last one.
    pub(super) fn is_over(&self) -> bool {
        match self.load.until {
            Until::Requests(most) => self.submitted.get() >= most,
            Until::Elapsed(span) => {
                self.submitted.get().is_multiple_of(CLOCK_EVERY)
                    && self.lane.backend().now().since(self.started) >= span
            }
        }
    }

    pub(super) fn outcome(&self) -> Outcome {
        let after = self.lane.traffic();
        let delayed = machine::run_delay().saturating_sub(self.delayed);
        let elapsed = self.lane.backend().now().since(self.started);
        Outcome {
            requests: self.ended.get(),
            errors: self.errors.get(),
            elapsed: elapsed.saturating_sub(delayed),
            delayed,
            whole: elapsed,
            latencies_ns: self.latencies.take(),
            traffic: Traffic {
                member_ios: after.member_ios - self.before.member_ios,
                member_bytes: after.member_bytes - self.before.member_bytes,
                copied_bytes: after.copied_bytes - self.before.copied_bytes,
            },
        }
    }
}

fn payloads(io: &LaneIo, load: Load) -> [Vec<Rc<Payload>>; 2] {
    let (reads, writes) = (load.pattern.reads_percent > 0, load.pattern.reads_percent < 100);
    [reads, writes].map(|used| {
        let depth = if used { load.depth } else { 0 };
        (0..depth).map(|index| payload(io, load, index)).collect()
    })
}

/// Memory of one request. Never zeroes: a member could cheat on those.
fn payload(io: &LaneIo, load: Load, index: usize) -> Rc<Payload> {
    let payload = io.payload(load.block_bytes);
    let fill: Vec<u8> = (0..load.block_bytes).map(|at| (at ^ at >> 8 ^ index) as u8 | 1).collect();
    Sink::put(&*payload, 0, &fill);
    payload
}

/// Runs a load through an array.
pub(super) async fn array_load(
    port: Rc<ArrayLane>,
    lane: Rc<Lane>,
    io: LaneIo,
    load: Load,
) -> Outcome {
    let meter = Meter::new(&lane, &io, load, port.sectors());
    let queue = Queue::new();
    let mut over = false;
    while !over || queue.in_flight() > 0 {
        while !over && queue.in_flight() < load.depth {
            let (tag, target, payload) = meter.begin();
            port.submit(&queue, tag, request(target, payload));
            over = meter.is_over();
        }
        let completion = queue.next().await;
        meter.end(completion.tag, completion.result.is_ok());
        while let Some(completion) = queue.pop() {
            meter.end(completion.tag, completion.result.is_ok());
        }
        lane.pause().await;
    }
    meter.outcome()
}

fn request(Target { sector, write }: Target, payload: &Rc<Payload>) -> Request {
    match write {
        false => {
            let into: Rc<dyn Sink> = payload.clone();
            Request::Read { sector, into }
        }
        true => {
            let from: Rc<dyn Source> = payload.clone();
            Request::Write { sector, from, fua: false }
        }
    }
}

/// A range of a member that raw loads use: its data, as the array has them.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawMember {
    pub(super) id: MemberId,
    pub(super) first_sector: u64,
    pub(super) sectors: u64,
}

/// Runs a load straight to members in turn, by the path that the array uses: no engine, no task a
/// request, no allocation.
pub(super) async fn raw_load(
    members: Vec<RawMember>,
    lane: Rc<Lane>,
    io: LaneIo,
    load: Load,
) -> Outcome {
    raw_load_behind(None, members, lane, io, load).await
}

/// As [`raw_load`], with a lock that every request takes while it is handed over.
pub(super) async fn raw_load_behind(
    lock: Option<Arc<Mutex<()>>>,
    members: Vec<RawMember>,
    lane: Rc<Lane>,
    io: LaneIo,
    load: Load,
) -> Outcome {
    let sectors = members.iter().map(|member| member.sectors).min().unwrap_or(0);
    let meter = Rc::new(Meter::new(&lane, &io, load, sectors));
    let raw = Rc::new(Raw { meter: meter.clone(), waiting: Cell::new(None) });
    let owner: Rc<dyn OpOwner> = raw.clone();
    let mut over = false;
    let mut turn = 0;
    while !over || meter.ended.get() < meter.submitted.get() {
        while !over && meter.submitted.get() - meter.ended.get() < load.depth as u64 {
            let (tag, target, payload) = meter.begin();
            let member = members[turn];
            turn = if turn + 1 == members.len() { 0 } else { turn + 1 };
            let op = raw_op(target.write, member.first_sector + target.sector, payload);
            let io = MemberIo { member: member.id, op, patience: Patience::FOREVER };
            let held =
                lock.as_ref().map(|lock| lock.lock().unwrap_or_else(PoisonError::into_inner));
            let done = lane.io_direct(io, &owner, tag);
            drop(held);
            if let Some(done) = done {
                meter.end(tag, done.result.is_ok());
            }
            over = meter.is_over();
        }
        if meter.ended.get() < meter.submitted.get() {
            raw.next().await;
        }
    }
    meter.outcome()
}

fn raw_op(write: bool, sector: u64, payload: &Rc<Payload>) -> IoOp {
    let whole = 0..payload.len();
    match write {
        false => IoOp::Read { sector, into: ReadInto::Sink(payload.clone(), whole) },
        true => IoOp::Write { sector, from: WriteFrom::Source(payload.clone(), whole), fua: false },
    }
}

struct Raw {
    meter: Rc<Meter>,
    waiting: Cell<Option<std::task::Waker>>,
}

impl Raw {
    /// Waits until one more request has ended.
    async fn next(&self) {
        let known = self.meter.ended.get();
        std::future::poll_fn(|context| {
            if self.meter.ended.get() > known {
                return std::task::Poll::Ready(());
            }
            self.waiting.set(Some(context.waker().clone()));
            std::task::Poll::Pending
        })
        .await;
    }
}

impl OpOwner for Raw {
    fn done(self: Rc<Self>, tag: u64, done: IoDone) {
        self.meter.end(tag, done.result.is_ok());
        if let Some(waker) = self.waiting.take() {
            waker.wake();
        }
    }
}
