//! How fast one lane moves data from or to one member, with nothing in between.
//!
//! `raw MEMBER [read|write] [BLOCK_BYTES] [DEPTH] [SECONDS] [task|direct] [buffered]`: random
//! blocks; `task` runs one task per place in the queue, `direct` none.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on stops")]

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use mdspace_engine::backend::{IoDone, IoOp, MemberId, MemberIo, Patience, ReadInto, WriteFrom};
use mdspace_engine::lane::{Lane, OpOwner};
use mdspace_engine::time::Time;
use mdspace_io::{LaneIo, LanesConfig, LocalLane, OpenMode, Payload};

struct Work {
    member: MemberId,
    blocks: u64,
    block_bytes: usize,
    write: bool,
    until: Time,
    random: Cell<u64>,
    done: Cell<u64>,
}

impl Work {
    fn io(&self, payload: &Rc<Payload>) -> MemberIo {
        let mut random = self.random.get();
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        self.random.set(random);
        let sector = random % self.blocks * (self.block_bytes as u64 / 512);
        let range = 0..self.block_bytes;
        let op = if self.write {
            IoOp::Write { sector, from: WriteFrom::Source(payload.clone(), range), fua: false }
        } else {
            IoOp::Read { sector, into: ReadInto::Sink(payload.clone(), range) }
        };
        MemberIo { member: self.member, op, patience: Patience::of(Duration::from_secs(30)) }
    }

    fn count(&self, done: &IoDone) {
        assert!(done.result.is_ok(), "{done:?}");
        self.done.set(self.done.get() + 1);
    }
}

async fn place(lane: Rc<Lane>, work: Rc<Work>, payload: Rc<Payload>) {
    while lane.backend().now() < work.until {
        for _ in 0..64 {
            let done = lane.io(work.io(&payload)).await;
            work.count(&done);
        }
    }
}

struct Direct {
    lane: Rc<Lane>,
    work: Rc<Work>,
    payloads: Vec<Rc<Payload>>,
    left: Cell<usize>,
    this: std::rc::Weak<Self>,
}

impl Direct {
    fn start(&self, tag: u64) {
        let this: Rc<dyn OpOwner> = self.this.upgrade().unwrap();
        loop {
            if self.work.done.get().is_multiple_of(64)
                && self.lane.backend().now() >= self.work.until
            {
                return self.left.set(self.left.get() - 1);
            }
            let io = self.work.io(&self.payloads[tag as usize]);
            let Some(done) = self.lane.io_direct(io, &this, tag) else { return };
            self.work.count(&done);
        }
    }
}

impl OpOwner for Direct {
    fn done(self: Rc<Self>, tag: u64, done: IoDone) {
        self.work.count(&done);
        self.start(tag);
    }
}

/// CPU time of all threads so far, in nanoseconds: what it costs when others use the machine too.
fn cpu_nanos() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let stat = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("schedstat"));
    let nanos = |text: String| text.split(' ').next().unwrap().parse::<u64>().unwrap();
    tasks.filter_map(|task| stat(task.ok()?).ok()).map(nanos).sum()
}

/// Writes all of a member in memory once: memory that nobody has touched is not there yet.
async fn fill(lane: Rc<Lane>, io: LaneIo, member: MemberId, sectors: u64) {
    const PIECE_SECTORS: u64 = 2048;
    let payload = io.payload(PIECE_SECTORS as usize * 512);
    for sector in (0..sectors).step_by(PIECE_SECTORS as usize) {
        let range = 0..(sectors - sector).min(PIECE_SECTORS) as usize * 512;
        let from = WriteFrom::Source(payload.clone(), range);
        let op = IoOp::Write { sector, from, fua: false };
        assert!(lane.io(MemberIo { member, op, patience: Patience::FOREVER }).await.result.is_ok());
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |at: usize, default: &str| args.get(at).cloned().unwrap_or(default.into());
    let (name, write) = (arg(0, "ram:256M"), arg(1, "read") == "write");
    let block_bytes: usize = arg(2, "4096").parse().unwrap();
    let depth: usize = arg(3, "128").parse().unwrap();
    let seconds: f64 = arg(4, "3").parse().unwrap();
    let direct = arg(5, "task") == "direct";
    let in_memory = name.starts_with("ram:");
    let buffered = arg(6, "") == "buffered";
    let mode = OpenMode { read_only: !write && !in_memory, exclusive: false, buffered };

    let config = LanesConfig::default();
    let local = LocalLane::new(&config).unwrap();
    let (member, info) = config.members.open(&name, mode).unwrap();
    let (lane, io) = (local.lane().clone(), local.io().clone());
    if in_memory {
        local.block_on(fill(lane.clone(), io.clone(), member, info.sectors));
    }
    let (started, cpu_before) = (Instant::now(), cpu_nanos());
    let work = Rc::new(Work {
        member,
        blocks: info.sectors * 512 / block_bytes as u64,
        block_bytes,
        write,
        until: lane.backend().now() + Duration::from_secs_f64(seconds),
        random: Cell::new(88_172_645_463_325_252),
        done: Cell::new(0),
    });
    let payloads: Vec<_> = (0..depth).map(|_| io.payload(block_bytes)).collect();
    if direct {
        let all = Rc::new_cyclic(|this| Direct {
            lane: lane.clone(),
            work: work.clone(),
            payloads,
            left: Cell::new(depth),
            this: this.clone(),
        });
        (0..depth).for_each(|tag| all.start(tag as u64));
        local.run_until(|| all.left.get() == 0);
    } else {
        for payload in payloads {
            lane.spawn(place(lane.clone(), work.clone(), payload));
        }
        local.run_until(|| lane.task_count() == 0);
    }
    let (total, seconds) = (work.done.get() as f64, started.elapsed().as_secs_f64());
    let gib = total * block_bytes as f64 / seconds / (1u64 << 30) as f64;
    let cpu = (cpu_nanos() - cpu_before) as f64 / total;
    println!("{:.0} k/s, {gib:.2} GiB/s; {cpu:.0} ns of CPU each", total / seconds / 1e3);
}
