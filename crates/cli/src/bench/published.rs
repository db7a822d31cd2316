//! `mdspace bench published`: the tables of published work on md, and what the same change gives here.
//!
//! A row compares a baseline with a treatment, as its authors did; both are arrays of ours. A change
//! counts only when all repetitions agree on its sign.

mod stress;
mod tables;
mod text;

use std::time::Duration;

use serde::Serialize;

use crate::args::BenchPublishedArgs;
use crate::failure::Failure;
use crate::output;

use super::bed::{Bed, Side};
use super::figures::{Figures, Ratio, figures, ratio};
use super::measure::Until;
use super::workload::parse;
use super::{REPETITIONS, machine};

use stress::Stress;
use tables::{Row, TABLES, Table};

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    machine: String,
    tables: Vec<MeasuredTable>,
}

#[derive(Debug, Serialize)]
struct MeasuredTable {
    year: u16,
    title: &'static str,
    published_on: &'static str,
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
}

impl Verdict {
    fn new(change: &Ratio, threads: usize, cpus: usize) -> Self {
        match change.spread {
            _ if threads > cpus => Self::Oversubscribed,
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
    let tables = TABLES.iter().filter(|table| args.table.is_none_or(|year| year == table.year));
    let tables = tables.map(|table| measure_table(table, span)).collect::<Result<_, _>>()?;
    let report = Report { schema: 1, machine: machine::describe(), tables };
    match args.json {
        true => output::print_json(&report),
        false => output::print(&text::text(&report)),
    }
}

fn measure_table(table: &Table, span: Duration) -> Result<MeasuredTable, Failure> {
    let rows = (table.rows)();
    let rows = rows.into_iter().map(|row| measure_row(row, span)).collect::<Result<_, _>>()?;
    let stress = table.stress.map(|words| Stress::run(words, span)).transpose()?;
    let Table { year, title, published_on, .. } = *table;
    Ok(MeasuredTable { year, title, published_on, rows, stress })
}

fn measure_row(row: Row, span: Duration) -> Result<MeasuredRow, Failure> {
    let words = [&row.baseline, &row.treatment].map(|sets| format!("{} {sets}", row.words()));
    let [baseline, treatment] = words.each_ref().map(|words| parse(words));
    let beds = [Bed::ready(&baseline)?, Bed::ready(&treatment)?];
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let until = Until::Elapsed(span);
    for _ in 0..REPETITIONS {
        before.push(beds[0].load(&baseline, until, Side::Array));
        after.push(beds[1].load(&treatment, until, Side::Array));
    }
    let errors = before.iter().chain(&after).map(|outcome| outcome.errors).sum();
    let mut mismatch_sectors = 0;
    for bed in beds {
        mismatch_sectors += bed.check()?;
        bed.stop()?;
    }
    let change = ratio(&after, &before);
    let threads = usize::from(treatment.lanes) + row.workers;
    let [baseline_command, treatment_command] =
        words.map(|words| format!("mdspace bench run {}", words.trim()));
    let block_bytes = baseline.bs.bytes();
    Ok(MeasuredRow {
        verdict: Verdict::new(&change, threads, machine::cpus().len()),
        name: row.name,
        published: row.published,
        bound: row.bound,
        baseline_command,
        treatment_command,
        baseline: figures(before, block_bytes),
        treatment: figures(after, block_bytes),
        change,
        threads,
        errors,
        mismatch_sectors,
    })
}

#[cfg(test)]
mod tests;
