//! `mdspace bench limits`: the bare loops that each kind of work cannot do without: member I/Os on
//! RAM members and parity, nothing else. No claim, no plan, no request, no allocation.

use std::rc::Rc;
use std::time::Duration;

use mdspace_engine::backend::{IoOp, MemberId, MemberIo, ReadInto, WriteFrom};
use mdspace_engine::lane::{Lane, LaneId, OpOwner};
use mdspace_engine::memory::Buffer;
use mdspace_io::{Lanes, LanesConfig, MemberTable, OpenMode};
use mdspace_parity::{Change, kernels};
use serde::Serialize;

use crate::args::BenchLimitsArgs;
use crate::failure::Failure;
use crate::output;

use super::figures::{Figures, figures};
use super::load::{Addresses, Pattern};
use super::measure::Outcome;
use super::run::failed;
use super::table;

const MEMBERS: usize = 6;
const MEMBER: &str = "ram:256M";
const MEMBER_SECTORS: u64 = (256 << 20) / 512;
const SMALL: usize = 4096;
const CHUNK: usize = 512 << 10;

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    limits: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    #[serde(flatten)]
    figures: Figures,
}

/// A loop: its name, the bytes that one turn of it stands for, and the turn.
type Loop = (&'static str, usize, fn(&Bench));

const LOOPS: [Loop; 7] = [
    ("raw 4 KiB random read", SMALL, |bench| bench.read(0, SMALL, 0)),
    ("raw 4 KiB random write", SMALL, |bench| bench.write(0, SMALL, 0)),
    ("RAID6 4+2 4 KiB random write", SMALL, Bench::read_modify_write),
    ("RAID6 4+2 full row, 512 KiB", 4 * CHUNK, Bench::full_row),
    ("RAID6 degraded 4 KiB read", SMALL, Bench::rebuild_block),
    ("RAID1 4 KiB random write", SMALL, Bench::mirror_write),
    ("RAID6 check, a row of 4 KiB", MEMBERS * SMALL, Bench::check_row),
];

/// Measures every loop and prints what it gave.
pub(crate) fn limits(args: &BenchLimitsArgs) -> Result<(), Failure> {
    let runtime = if args.quick { args.runtime / 10.0 } else { args.runtime };
    let span = Duration::from_secs_f64(runtime / 5.0);
    let members = MemberTable::new();
    let open = |_| members.open(MEMBER, OpenMode::RUN).map(|(id, _)| id);
    let ids: Result<Vec<MemberId>, _> = (0..MEMBERS).map(open).collect();
    let ids = ids.map_err(|error| failed("open RAM members", error))?;
    let config = LanesConfig { members, cpus: vec![0], ..LanesConfig::default() };
    let lanes = Lanes::start(config).map_err(|error| failed("start a lane", error))?;
    let rows = lanes.call(LaneId(0), async move |lane, _| {
        let bench = Bench::new(lane, ids);
        bench.touch();
        LOOPS.map(|(name, bytes, turn)| (name, figures(bench.repeat(span, turn), bytes)))
    });
    lanes.stop(Duration::from_secs(10)).map_err(|error| failed("stop the lane", error))?;
    if args.json {
        let limits = rows.map(|(name, figures)| Row { name, figures }).into();
        return output::print_json(&Report { schema: 1, limits });
    }
    output::print(&table::limits(&rows))
}

/// Members and one buffer for each of them, on a lane.
struct Bench {
    lane: Rc<Lane>,
    members: Vec<MemberId>,
    buffers: std::cell::RefCell<Vec<Option<Buffer>>>,
    addresses: std::cell::RefCell<Addresses>,
    owner: Rc<dyn OpOwner>,
}

impl Bench {
    fn new(lane: Rc<Lane>, members: Vec<MemberId>) -> Self {
        let buffer = |at: usize| {
            let mut buffer = Buffer::zeroed(CHUNK);
            buffer.fill(at as u8 + 1);
            Some(buffer)
        };
        let random = Pattern::write(true);
        let addresses = Addresses::new(random, 8, MEMBER_SECTORS - CHUNK as u64 / 512, 0, 1);
        Self {
            lane,
            members,
            buffers: (0..=MEMBERS).map(buffer).collect::<Vec<_>>().into(),
            addresses: addresses.into(),
            owner: Rc::new(Immediate),
        }
    }

    /// Writes all members once: memory that was never touched is faster to read than any other.
    fn touch(&self) {
        for member in 0..MEMBERS {
            for sector in (0..MEMBER_SECTORS).step_by(CHUNK / 512) {
                self.write(member, CHUNK, sector);
            }
        }
    }

    fn repeat(&self, span: Duration, turn: fn(&Self)) -> Vec<Outcome> {
        (0..5).map(|_| self.run(span, turn)).collect()
    }

    fn run(&self, span: Duration, turn: fn(&Self)) -> Outcome {
        let started = self.lane.backend().now();
        let mut outcome = Outcome::default();
        while outcome.elapsed < span {
            for _ in 0..64 {
                turn(self);
            }
            outcome.requests += 64;
            outcome.elapsed = self.lane.backend().now().since(started);
        }
        outcome
    }

    fn address(&self) -> u64 {
        self.addresses.borrow_mut().next().sector
    }

    fn io(&self, member: usize, buffer: usize, op: impl FnOnce(Buffer) -> IoOp) {
        let taken = self.buffers.borrow_mut()[buffer].take().expect("one I/O a buffer");
        let io = MemberIo { member: self.members[member], op: op(taken), deadline: None };
        let done = self.lane.io_direct(io, &self.owner, 0).expect("RAM answers at once");
        self.buffers.borrow_mut()[buffer] = done.buffer;
    }

    /// Reads into the member's buffer; at a random place when `sector` is 0.
    fn read(&self, member: usize, bytes: usize, sector: u64) {
        let sector = if sector == 0 { self.address() } else { sector };
        self.io(member, member, |buffer| IoOp::Read {
            sector,
            into: ReadInto::Buffer(buffer, 0..bytes),
        });
    }

    fn write(&self, member: usize, bytes: usize, sector: u64) {
        let sector = if sector == 0 { self.address() } else { sector };
        self.io(member, member, |buffer| IoOp::Write {
            sector,
            from: WriteFrom::Buffer(buffer, 0..bytes),
            fua: false,
        });
    }

    /// Three blocks in, the change into P and Q, three blocks out.
    fn read_modify_write(&self) {
        let sector = self.address() | 8;
        (0..3).for_each(|member| self.read(member, SMALL, sector));
        self.with_buffers(|buffers| {
            let [old, p, q, new, ..] = buffers else { unreachable!("seven buffers") };
            let change = Change { exponent: 2, old: &old[..SMALL], new: &new[..SMALL] };
            kernels().update(&[change], Some(&mut p[..SMALL]), Some(&mut q[..SMALL]));
        });
        (0..3).for_each(|member| self.write(member, SMALL, sector));
    }

    /// P and Q of four chunks, six chunks out.
    fn full_row(&self) {
        let sector = self.address() | 8;
        self.with_buffers(|buffers| {
            let [a, b, c, d, p, q, ..] = buffers else { unreachable!("seven buffers") };
            kernels().pq(&[a, b, c, d], p, q);
        });
        (0..MEMBERS).for_each(|member| self.write(member, CHUNK, sector));
    }

    /// Four blocks in, one computed.
    fn rebuild_block(&self) {
        let sector = self.address() | 8;
        (0..4).for_each(|member| self.read(member, SMALL, sector));
        self.with_buffers(|buffers| {
            let [a, b, c, d, lost, ..] = buffers else { unreachable!("seven buffers") };
            let sources: [&[u8]; 4] = [a, b, c, d].map(|block| &block[..SMALL]);
            kernels().xor(&sources, &mut lost[..SMALL]);
        });
    }

    fn mirror_write(&self) {
        let sector = self.address() | 8;
        (0..2).for_each(|member| self.write(member, SMALL, sector));
    }

    /// Six blocks in, parity computed and compared.
    fn check_row(&self) {
        let sector = self.address() | 8;
        (0..MEMBERS).for_each(|member| self.read(member, SMALL, sector));
        self.with_buffers(|buffers| {
            let [a, b, c, d, p, q, spare] = buffers else { unreachable!("seven buffers") };
            let data: [&[u8]; 4] = [a, b, c, d].map(|block| &block[..SMALL]);
            let (new_p, new_q) = spare[..2 * SMALL].split_at_mut(SMALL);
            kernels().pq(&data, new_p, new_q);
            std::hint::black_box(new_p == &p[..SMALL] && new_q == &q[..SMALL]);
        });
    }

    fn with_buffers(&self, work: impl FnOnce(&mut [Buffer])) {
        let mut buffers = self.buffers.borrow_mut();
        let mut taken: Vec<Buffer> = buffers.iter_mut().map_while(Option::take).collect();
        work(&mut taken);
        for (place, buffer) in buffers.iter_mut().zip(taken) {
            *place = Some(buffer);
        }
    }
}

/// RAM members answer at once: nothing ever arrives here.
struct Immediate;

impl OpOwner for Immediate {
    fn done(self: Rc<Self>, _: u64, _: mdspace_engine::backend::IoDone) {
        unreachable!("RAM answers at once")
    }
}
