//! `mdspace bench limits`: the bare loops that each kind of work cannot do without.
//!
//! In memory: copies and parity, by plain slices, without requests, claims, plans or allocation.
//! On files and models of drives: the member I/Os, handed to the ring as lanes hand them.

mod loops;
mod memory;
mod rings;
mod rounds;
mod text;

use std::time::Duration;

use serde::Serialize;

use crate::args::{BenchLimitsArgs, BenchRunArgs};
use crate::failure::Failure;
use crate::output;

use super::figures::{Figures, Ratio, figures, ratio};
use super::measure::Outcome;
use super::{REPETITIONS, failed, machine};

use loops::{LOOPS, Loop};
use memory::{MEMBER_BYTES, Members};
use rings::Rings;

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    machine: String,
    simd: &'static str,
    limits: Vec<Row>,
}

/// One loop on one thread, and on two at once.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) figures: Figures,
    pub(super) two_threads: Option<Figures>,
    /// Two threads over one, of the same repetition.
    pub(super) gain: Option<Ratio>,
}

/// Measures every loop and prints what it gave.
pub(crate) fn limits(args: &BenchLimitsArgs) -> Result<(), Failure> {
    let runtime = if args.quick { args.runtime / 5.0 } else { args.runtime };
    let span = Duration::from_secs_f64(runtime / REPETITIONS as f64);
    let mut limits = in_memory(span)?;
    limits.extend(on_rings(args, span)?);
    let simd = mdspace_parity::kernels().isa().name();
    let report = Report { schema: 1, machine: machine::describe(), simd, limits };
    match args.json {
        true => output::print_json(&report),
        false => output::print(&text::report(&report.machine, &report.limits)),
    }
}

fn in_memory(span: Duration) -> Result<Vec<Row>, Failure> {
    let mut members =
        Members::new(MEMBER_BYTES).map_err(|error| failed("get memory for members", error))?;
    let rows = LOOPS.iter().map(|work: &Loop| {
        let measure = |threads| work.run(&mut members, threads, span);
        row(work.name.to_owned(), work.block_bytes, measure)
    });
    Ok(rows.collect())
}

fn on_rings(args: &BenchLimitsArgs, span: Duration) -> Result<Vec<Row>, Failure> {
    let rings = Rings::new(args.directory.as_deref())?;
    let rows = rings::LOADS.iter().map(|load| {
        let measure = |threads| rings.run(load, threads, span);
        row(rings.name(load), rings::BLOCK_BYTES, measure)
    });
    Ok(rows.collect())
}

/// GiB/s of a bare loop, by the beginning of its name; none where there is no memory for it.
pub(super) fn bare_gib_s(name: &str, span: Duration, repetitions: usize) -> Option<f64> {
    let work = LOOPS.iter().find(|work| work.name.starts_with(name))?;
    let mut members = Members::new(MEMBER_BYTES).ok()?;
    let outcomes = (0..repetitions).map(|_| work.run(&mut members, 1, span));
    Some(figures(outcomes.collect(), work.block_bytes).mib_s / 1024.0)
}

/// The bare copies that raw members in memory cannot do without, to judge a raw figure by.
pub(super) struct Bare {
    members: Members,
    work: Loop,
    threads: usize,
}

impl Bare {
    /// None where members are not in memory, or there is no memory for these.
    pub(super) fn of(args: &BenchRunArgs) -> Option<Self> {
        let in_memory = args.member.iter().all(|member| member.starts_with("ram:"));
        let work = Loop::raw(args.pattern(), args.bs.bytes(), args.iodepth.into())?;
        let members = in_memory.then(|| Members::new(MEMBER_BYTES / 4).ok()).flatten()?;
        Some(Self { members, work, threads: args.lanes.into() })
    }

    /// The copies and the parity that the RAID5 writes of `args` cannot do without, on so many threads;
    /// none for other arrays.
    pub(super) fn raid5_write(args: &BenchRunArgs, threads: usize) -> Option<Self> {
        let (disks, random) = (args.raid_devices, args.pattern().random);
        let work = Loop::raid5_write(disks, random, args.bs.bytes(), args.iodepth.into())?;
        let members = Members::new(MEMBER_BYTES / 4).ok()?;
        Some(Self { members, work, threads })
    }

    pub(super) fn run(&mut self, span: Duration) -> Outcome {
        self.work.run(&mut self.members, self.threads, span)
    }
}

/// Repetitions of one loop, one thread and two in turns.
fn row(name: String, block_bytes: usize, mut measure: impl FnMut(usize) -> Outcome) -> Row {
    let (mut one, mut two) = (Vec::new(), Vec::new());
    let pairs = machine::cpus().len() >= 2;
    for _ in 0..REPETITIONS {
        one.push(measure(1));
        two.extend(pairs.then(|| measure(2)));
    }
    let gain = pairs.then(|| ratio(&two, &one));
    let two_threads = pairs.then(|| figures(two, block_bytes));
    Row { name, figures: figures(one, block_bytes), two_threads, gain }
}
