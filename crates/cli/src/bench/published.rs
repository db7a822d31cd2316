//! `mdspace bench published`: the tables of published work on md, and what the same change gives here.
//!
//! A row compares a baseline with a treatment, as its authors did; both are arrays of ours. A change
//! counts only when all repetitions agree on its sign, whichever of the two was made and came first.

mod balance;
mod dbench;
mod multipath;
mod stress;
mod tables;
mod text;

use std::time::Duration;

use serde::Serialize;

use crate::args::{BenchPublishedArgs, BenchRunArgs};
use crate::failure::Failure;
use crate::output;

use super::bed::Bed;
use super::figures::{Figures, Ratio, cpu_share, figures, ratio};
use super::limits::Bare;
use super::measure::{Outcome, Until};
use super::workload::{Side, Subject, parse};
use super::{REPETITIONS, machine};

use balance::MeasuredBalance;
use dbench::Dbench;
use multipath::MeasuredMultipath;
use stress::Stress;
use tables::{Head, Row, TABLES, Table};

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    machine: String,
    tables: Vec<MeasuredTable>,
    /// Which member a mirror reads.
    balance: Option<MeasuredBalance>,
    /// Which path a request takes.
    multipath: Option<MeasuredMultipath>,
}

#[derive(Debug, Serialize)]
struct MeasuredTable {
    #[serde(flatten)]
    head: Head,
    rows: Vec<MeasuredRow>,
    stress: Option<Stress>,
    dbench: Option<Dbench>,
}

#[derive(Debug, Serialize)]
struct MeasuredRow {
    name: String,
    published: &'static str,
    bound: &'static str,
    baseline_command: String,
    treatment_command: String,
    baseline: Figures,
    treatment: Figures,
    /// Treatment over baseline.
    change: Ratio,
    /// Treatment over the copies and parity that it cannot do without, on as many threads as it has
    /// CPUs for.
    #[serde(skip_serializing_if = "Option::is_none")]
    of_limit: Option<Ratio>,
    verdict: Verdict,
    /// Threads of the treatment that would like a CPU of their own.
    threads: usize,
    errors: u64,
    /// Sectors that a check found different afterwards, on both arrays.
    mismatch_sectors: u64,
}

/// What a row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    Faster,
    Slower,
    /// Some repetitions went the other way.
    NoDifference,
    /// More threads than CPUs: only that all is right counts.
    Oversubscribed,
    /// Others had the CPUs meanwhile: nothing is said.
    Busy,
}

/// Threads that had less of the CPU than this say nothing about an array.
const QUIET_CPU_SHARE: f64 = 0.9;

impl Verdict {
    fn new(change: &Ratio, threads: usize, cpus: usize, cpu_share: f64) -> Self {
        match change.spread {
            _ if threads > cpus => Self::Oversubscribed,
            _ if cpu_share < QUIET_CPU_SHARE => Self::Busy,
            [least, _] if least > 1.0 => Self::Faster,
            [_, most] if most < 1.0 => Self::Slower,
            _ => Self::NoDifference,
        }
    }
}

/// Measures every table and prints them.
pub(crate) fn published(args: &BenchPublishedArgs) -> Result<(), Failure> {
    let runtime = if args.quick { args.runtime / 5.0 } else { args.runtime };
    let span = Duration::from_secs_f64(runtime / REPETITIONS as f64);
    let tables =
        TABLES.iter().filter(|table| args.table.is_none_or(|year| year == table.head.year));
    let tables = tables.map(|table| measure_table(table, span)).collect::<Result<_, _>>()?;
    let wanted = |table| args.table.is_none_or(|year| year == table);
    let balance = wanted(balance::HEAD.year).then(|| balance::measure(span)).transpose()?;
    let multipath = wanted(multipath::HEAD.year).then(|| multipath::measure(span)).transpose()?;
    let report = Report { schema: 1, machine: machine::describe(), tables, balance, multipath };
    match args.json {
        true => output::print_json(&report),
        false => output::print(&text::text(&report)),
    }
}

fn measure_table(table: &Table, span: Duration) -> Result<MeasuredTable, Failure> {
    let rows = (table.rows)();
    let of_limit = table.of_limit;
    let rows = rows.into_iter().map(|row| measure_row(row, of_limit, span));
    let rows = rows.collect::<Result<_, _>>()?;
    let stress = table.stress.map(|words| Stress::run(words, span)).transpose()?;
    let dbench = table.dbench.then(|| dbench::measure(span)).transpose()?;
    Ok(MeasuredTable { head: table.head, rows, stress, dbench })
}

fn measure_row(row: Row, of_limit: bool, span: Duration) -> Result<MeasuredRow, Failure> {
    let words = [&row.baseline, &row.treatment].map(|sets| format!("{} {sets}", row.words()));
    let sides = words.each_ref().map(|words| parse(words));
    let [baseline, treatment] = &sides;
    let (threads, cpus) = (usize::from(treatment.lanes) + row.workers, machine::cpus().len());
    let mut bare = of_limit.then(|| Bare::raid5_write(treatment, threads.min(cpus))).flatten();
    let taken = Taken::new(&sides, &mut bare, span)?;
    let cpu_share = taken.cpu_share(threads.min(cpus));
    let Taken { outcomes: [before, after], limit, mismatch_sectors, .. } = taken;
    let errors = before.iter().chain(&after).map(|outcome| outcome.errors).sum();
    let change = ratio(&after, &before);
    let of_limit = (!limit.is_empty()).then(|| ratio(&after, &limit));
    let [baseline_command, treatment_command] =
        words.map(|words| format!("mdspace bench run {}", words.trim()));
    let block_bytes = baseline.bs.bytes();
    Ok(MeasuredRow {
        verdict: Verdict::new(&change, threads, cpus, cpu_share),
        name: row.name,
        published: row.published,
        bound: row.bound,
        baseline_command,
        treatment_command,
        baseline: figures(before, block_bytes),
        treatment: figures(after, block_bytes),
        change,
        of_limit,
        threads,
        errors,
        mismatch_sectors,
    })
}

/// The place of the treatment among the sides.
const TREATMENT: usize = 1;

/// What the repetitions of a row have given.
#[derive(Default)]
struct Taken {
    /// Of the baseline, and of the treatment.
    outcomes: [Vec<Outcome>; 2],
    limit: Vec<Outcome>,
    mismatch_sectors: u64,
    /// What the host took from all CPUs during the treatment: a worker without one is no worker.
    stolen: Duration,
}

impl Taken {
    /// Five pairs of neighbours, and five more where those leave a doubt.
    fn new(
        sides: &[BenchRunArgs; 2],
        bare: &mut Option<Bare>,
        span: Duration,
    ) -> Result<Self, Failure> {
        let (most, fewest) = (REPETITIONS.div_ceil(2), REPETITIONS / 2);
        let mut taken = Self::default();
        taken.sit(sides, [0, 1], most, bare, span)?;
        taken.sit(sides, [1, 0], fewest, bare, span)?;
        let [before, after] = &taken.outcomes;
        if is_doubtful(before, after) {
            taken.sit(sides, [1, 0], most, bare, span)?;
            taken.sit(sides, [0, 1], fewest, bare, span)?;
        }
        Ok(taken)
    }

    /// The part that the lanes had of their CPUs, or all threads of the treatment of so many, whichever is less.
    fn cpu_share(&self, cpus: usize) -> f64 {
        let whole: Duration = self.outcomes[TREATMENT].iter().map(|outcome| outcome.whole).sum();
        let stolen = self.stolen.as_secs_f64() / (whole * cpus as u32).as_secs_f64();
        cpu_share(self.outcomes.iter().flatten()).min(1.0 - stolen)
    }

    /// Makes both arrays and loads them in turns, each time in this order: which one comes first, and where
    /// it lies in memory, is not to be taken for the change.
    fn sit(
        &mut self,
        sides: &[BenchRunArgs; 2],
        order: [usize; 2],
        repetitions: usize,
        bare: &mut Option<Bare>,
        span: Duration,
    ) -> Result<(), Failure> {
        let beds = [Bed::ready(&sides[order[0]])?, Bed::ready(&sides[order[1]])?];
        let each = || beds.iter().zip(order);
        for (bed, side) in each() {
            bed.warm(&sides[side])?;
        }
        for _ in 0..repetitions {
            self.limit.extend(bare.as_mut().map(|bare| bare.run(span)));
            for (bed, side) in each() {
                let stolen = machine::stolen(&machine::cpus());
                let outcome = bed.load(&sides[side], Until::Elapsed(span), Side::Array);
                self.outcomes[side].push(outcome);
                if side == TREATMENT {
                    self.stolen += machine::stolen(&machine::cpus()).saturating_sub(stolen);
                }
            }
        }
        for bed in beds {
            self.mismatch_sectors += bed.check()?;
            bed.stop()?;
        }
        Ok(())
    }
}

/// Pairs that differ by more than this have a median that may be any of them.
const FAR_APART: f64 = 1.25;

/// Whether all pairs agree on a change, but hardly on which: they lie far apart, or it is less than what the
/// repetitions of one side differ by. Five pairs of equals agree once in sixteen times.
fn is_doubtful(before: &[Outcome], after: &[Outcome]) -> bool {
    let Ratio { median, spread: [least, most] } = ratio(after, before);
    let differ_by = |side: &[Outcome]| {
        let [slowest, fastest] = Ratio::of(side.iter().map(Outcome::iops).collect()).spread;
        fastest / slowest
    };
    let agree = least > 1.0 || most < 1.0;
    let is_small = median.max(1.0 / median) < differ_by(before).max(differ_by(after));
    agree && (is_small || most / least > FAR_APART)
}

#[cfg(test)]
mod tests;
