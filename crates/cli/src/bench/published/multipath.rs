//! 2016: dm-multipath's fast path loses its lock. One member over several paths, by three selectors,
//! each beside the member without paths, and beside itself behind one lock.

use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;
use tempfile::TempDir;

use crate::args::BenchRunArgs;
use crate::bench::figures::{Figures, Ratio, cpu_share, figures, ratio};
use crate::bench::measure::{Outcome, Until};
use crate::bench::paths_bed::{PathsBed, Way};
use crate::bench::table::{count, range};
use crate::bench::workload::{Subject, parse};
use crate::bench::{failed, machine};
use crate::failure::Failure;

use super::QUIET_CPU_SHARE;
use super::tables::Head;

pub(super) const HEAD: Head = Head {
    year: 2016,
    title: "multipath, 4K random read: part of raw; in brackets the same fast path behind one lock",
    published_on: "null_blk, 4 paths, dm-multipath",
};

/// The selectors, in the order of the columns.
const SELECTORS: [&str; 3] = ["service-time", "queue-length", "round-robin"];

const REPETITIONS: usize = 3;

/// Submitters of the published figures.
const SUBMITTERS: [u16; 2] = [12, 32];

/// What the floors are held to: the depth of a lane, and its members.
const FLOOR_DEPTH: u16 = 128;
const FILE_BYTES: usize = 256 << 20;

/// A figure as published, in thousands of IOPS, by selector as [`SELECTORS`].
struct Published {
    name: &'static str,
    raw: u32,
    without_lock: [u32; 3],
    with_lock: [u32; 3],
}

const PUBLISHED: [Published; 3] = [
    Published {
        name: "published: 12 jobs, pinned",
        raw: 4230,
        without_lock: [2474, 2488, 2675],
        with_lock: [1648, 1724, 1932],
    },
    Published {
        name: "published: 32 jobs, pinned",
        raw: 6056,
        without_lock: [2778, 2729, 4169],
        with_lock: [1656, 1728, 2084],
    },
    Published {
        name: "published: 32 jobs, not pinned",
        raw: 2599,
        without_lock: [1570, 1662, 2011],
        with_lock: [890, 882, 1121],
    },
];

/// The table as measured.
#[derive(Debug, Serialize)]
pub(super) struct MeasuredMultipath {
    #[serde(flatten)]
    head: Head,
    rows: Vec<Row>,
}

/// A member, its paths and who submits.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    /// The raw member, beside the first selector.
    raw: Figures,
    /// By selector, as [`SELECTORS`].
    selectors: Vec<Cell>,
    /// More lanes than CPUs.
    oversubscribed: bool,
    cpu_share: f64,
    errors: u64,
}

#[derive(Debug, Serialize)]
struct Cell {
    selector: &'static str,
    command: String,
    figures: Figures,
    /// Of the raw member beside it.
    of_raw: Ratio,
    /// Of a request, above the raw one.
    above_raw_ns: f64,
    behind_lock_of_raw: Ratio,
}

/// A row to measure.
#[derive(Clone)]
struct Plan {
    name: String,
    words: String,
    paths: u8,
    lanes: u16,
    pinned: bool,
}

/// Measures the table; `span` is one repetition of one side of a row.
pub(super) fn measure(span: Duration) -> Result<MeasuredMultipath, Failure> {
    let folder = TempDir::new().map_err(|error| failed("make a folder", error))?;
    let file = folder.path().join("member");
    let bytes: Vec<u8> = (0..FILE_BYTES).map(|at| (at >> 9) as u8 | 1).collect();
    std::fs::write(&file, bytes).map_err(|error| failed("write a file member", error))?;
    let mut plans = published_plans();
    plans.extend(floor_plans(&file.to_string_lossy()));
    let rows = plans.iter().map(|plan| measure_row(plan, span));
    let rows = rows.collect::<Result<_, _>>()?;
    Ok(MeasuredMultipath { head: HEAD, rows })
}

/// As published: a member that answers at once, by paths, submitters and pinning; and as many lanes as
/// submitters.
fn published_plans() -> Vec<Plan> {
    let cpus = machine::cpus().len() as u16;
    let mut plans = Vec::new();
    let mut add = |submitters: u16, lanes: u16, paths: u8, pinned: bool| {
        let depth = submitters / lanes;
        let how = if pinned { "pinned" } else { "not pinned" };
        let plural = if paths == 1 { "" } else { "s" };
        plans.push(Plan {
            name: format!("null, {paths} path{plural}, {lanes} lanes x {depth}, {how}"),
            words: format!("--member=null:64M --rw=randread --bs=4k --iodepth={depth}"),
            paths,
            lanes,
            pinned,
        });
    };
    for pinned in [true, false] {
        for submitters in SUBMITTERS {
            for paths in [1, 2, 4] {
                add(submitters, submitters.min(cpus), paths, pinned);
            }
        }
    }
    SUBMITTERS.into_iter().filter(|all| *all > cpus).for_each(|all| add(all, all, 4, false));
    plans
}

/// What the floors are told of: files in the page cache, and memory, on one lane and on two.
fn floor_plans(file: &str) -> Vec<Plan> {
    let members = [("file in the page cache", file), ("RAM", "ram:256M"), ("null", "null:64M")];
    let plans = members.iter().flat_map(|(name, member)| {
        [1, 2].map(|lanes: u16| {
            let plural = if lanes == 1 { "" } else { "s" };
            Plan {
                name: format!("{name}, 2 paths, {lanes} lane{plural} x {FLOOR_DEPTH}"),
                words: format!(
                    "--member={member} --direct=0 --rw=randread --bs=4k --iodepth={FLOOR_DEPTH}"
                ),
                paths: 2,
                lanes,
                pinned: true,
            }
        })
    });
    plans.collect()
}

fn measure_row(plan: &Plan, span: Duration) -> Result<Row, Failure> {
    let (mut raws, mut selectors) = (Vec::new(), Vec::new());
    let (mut errors, mut shares) = (0, Vec::new());
    for selector in SELECTORS {
        let Plan { words, paths, lanes, .. } = plan;
        let words = format!("--multipath={selector} --paths={paths} --lanes={lanes} {words}");
        let sides = measure_sides(&parse(&words), plan.pinned, span)?;
        errors += sides.iter().flatten().map(|outcome| outcome.errors).sum::<u64>();
        shares.push(cpu_share(sides.iter().flatten()));
        let [raw, through, behind_lock] = sides;
        let above = raw.iter().zip(&through);
        let above = above.map(|(raw, through)| 1e9 / through.iops() - 1e9 / raw.iops());
        let above_raw_ns = Ratio::of(above.collect()).median * f64::from(*lanes);
        selectors.push(Cell {
            selector,
            command: format!("mdspace bench run {words}"),
            of_raw: ratio(&through, &raw),
            behind_lock_of_raw: ratio(&behind_lock, &raw),
            above_raw_ns,
            figures: figures(through, BLOCK_BYTES),
        });
        raws.push(figures(raw, BLOCK_BYTES));
    }
    let oversubscribed = usize::from(plan.lanes) > machine::cpus().len();
    let (name, raw) = (plan.name.clone(), raws[0]);
    let cpu_share = shares.into_iter().fold(1.0, f64::min);
    Ok(Row { name, raw, selectors, oversubscribed, cpu_share, errors })
}

const BLOCK_BYTES: usize = 4096;

/// The member, the paths to it, and the paths behind a lock, in turns.
fn measure_sides(
    args: &BenchRunArgs,
    pinned: bool,
    span: Duration,
) -> Result<[Vec<Outcome>; 3], Failure> {
    let cpus = if pinned { machine::pinned(args.lanes.into()) } else { Vec::new() };
    let bed = PathsBed::on(args, cpus)?;
    let until = Until::Elapsed(span);
    let mut sides = [const { Vec::new() }; 3];
    for _ in 0..REPETITIONS {
        for (way, side) in [Way::Raw, Way::Paths, Way::PathsBehindLock].iter().zip(&mut sides) {
            side.push(bed.run(args, until, *way));
        }
    }
    bed.stop()?;
    Ok(sides)
}

impl MeasuredMultipath {
    /// The table for people.
    pub(super) fn text(&self) -> String {
        let Self { head, rows } = self;
        let mut text = format!("{head}\n");
        let [one, other, third] = SELECTORS;
        let _ = writeln!(
            text,
            "{:40} {:>8} {one:>21} {other:>21} {third:>21} {:>9}   CPU",
            "", "raw", "above raw"
        );
        for published in &PUBLISHED {
            let _ = writeln!(text, "{}", published.line());
        }
        for row in rows {
            let _ = writeln!(text, "{}", row.line());
        }
        text.push_str(
            "\nOf raw with its spread, the lock's in brackets. Above raw: what a request costs more than one without \
             paths, the dearest selector.\nA request that ends at once ends behind the lock.\n",
        );
        text
    }
}

impl Published {
    fn line(&self) -> String {
        let raw = f64::from(self.raw);
        let mut line = format!("{:40} {:>8}", self.name, count(raw * 1e3));
        for (without, with) in self.without_lock.iter().zip(self.with_lock) {
            let [without, with] = [*without, with].map(|iops| f64::from(iops) / raw * 100.0);
            let cell = format!("{without:.0} % ({with:.0})");
            let _ = write!(line, " {cell:>21}");
        }
        line
    }
}

impl Row {
    fn line(&self) -> String {
        let mut line = format!("{:40} {:>8}", self.name, count(self.raw.iops));
        for Cell { of_raw, behind_lock_of_raw, .. } in &self.selectors {
            let (part, behind_lock) = (of_raw.median * 100.0, behind_lock_of_raw.median * 100.0);
            let cell = format!("{part:.0} % {} ({behind_lock:.0})", range(of_raw.spread));
            let _ = write!(line, " {cell:>21}");
        }
        let dearest = self.selectors.iter().map(|cell| cell.above_raw_ns).fold(0.0, f64::max);
        let cpu = self.cpu_share * 100.0;
        let verdict = match () {
            () if self.errors > 0 => " WRONG: errors",
            () if self.oversubscribed => " oversubscribed",
            () if self.cpu_share < QUIET_CPU_SHARE => " machine busy, not judged",
            () => "",
        };
        line + &format!(" {dearest:>6.0} ns {cpu:>3.0} %{verdict}")
    }
}

#[cfg(test)]
mod tests;
