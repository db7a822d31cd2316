//! `mdspace bench published`: the tables of published work on md, and what the same change gives here.
//!
//! A row compares a baseline with a treatment, as its authors did; both are arrays of ours. A change
//! counts only when all repetitions agree on its sign, whichever of the two was made and came first.

mod balance;
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
use super::figures::{Figures, Ratio, figures, ratio};
use super::limits::Bare;
use super::measure::{Outcome, Until};
use super::workload::{Side, Subject, parse};
use super::{REPETITIONS, machine};

use balance::MeasuredBalance;
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
    Ok(MeasuredTable { head: table.head, rows, stress })
}

fn measure_row(row: Row, of_limit: bool, span: Duration) -> Result<MeasuredRow, Failure> {
    let words = [&row.baseline, &row.treatment].map(|sets| format!("{} {sets}", row.words()));
    let sides = words.each_ref().map(|words| parse(words));
    let [baseline, treatment] = &sides;
    let (threads, cpus) = (usize::from(treatment.lanes) + row.workers, machine::cpus().len());
    let mut bare = of_limit.then(|| Bare::raid5_write(treatment, threads.min(cpus))).flatten();
    let mut taken = Taken::default();
    taken.sit(&sides, [0, 1], REPETITIONS.div_ceil(2), &mut bare, span)?;
    taken.sit(&sides, [1, 0], REPETITIONS / 2, &mut bare, span)?;
    let Taken { outcomes: [before, after], limit, mismatch_sectors } = taken;
    let both = || before.iter().chain(&after);
    let errors = both().map(|outcome| outcome.errors).sum();
    let cpu_share = both().map(Outcome::cpu_share).fold(1.0, f64::min);
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

/// What the repetitions of a row have given.
#[derive(Default)]
struct Taken {
    /// Of the baseline, and of the treatment.
    outcomes: [Vec<Outcome>; 2],
    limit: Vec<Outcome>,
    mismatch_sectors: u64,
}

impl Taken {
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
                let until = Until::Elapsed(span);
                self.outcomes[side].push(bed.load(&sides[side], until, Side::Array));
            }
        }
        for bed in beds {
            self.mismatch_sectors += bed.check()?;
            bed.stop()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
