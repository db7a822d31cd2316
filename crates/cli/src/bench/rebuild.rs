//! `mdspace bench rebuild`: how fast sync tasks are alone, and what users and a rebuild leave each other.

mod alone;
mod beside;
mod md;
mod text;

use std::time::Duration;

use serde::Serialize;

use crate::args::{BenchRebuildArgs, RebuildTable};
use crate::failure::Failure;
use crate::output;

use super::figures::Ratio;
use super::{REPETITIONS, machine};

use md::Md;

/// The arrays of the tables, as words of `bench run`.
const RAID6: &str = "--level=6 --raid-devices=6 --chunk=512K";
const RAID5: &str = "--level=5 --raid-devices=6 --chunk=512K";

/// Everything that was measured.
#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    machine: String,
    alone: Vec<Alone>,
    /// Why nothing of Linux md stands beside.
    #[serde(skip_serializing_if = "Option::is_none")]
    no_md: Option<String>,
    beside: Vec<Beside>,
}

/// A check or a rebuild that nobody disturbs.
#[derive(Debug, Serialize)]
struct Alone {
    name: String,
    /// An array in the words of `bench run`.
    array: String,
    /// Of one member.
    mib_s: Ratio,
    /// Of all members' bytes that a check reads; of the new member's that a rebuild writes.
    gib_s: f64,
    /// What bounds it, in the same unit: bare copies and parity, or the members.
    bound_gib_s: Option<f64>,
    part: Option<f64>,
    /// The part of the time in which the lane had the CPU that it wanted.
    cpu_share: f64,
    /// Of one member of Linux md's, under User-Mode Linux.
    md_mib_s: Option<Ratio>,
}

/// Users and a rebuild of the same members.
#[derive(Debug, Serialize)]
struct Beside {
    member: &'static str,
    /// What they do, in the words of `bench run`.
    users: &'static str,
    /// The rebuild with no users.
    rebuild_alone_mib_s: f64,
    rows: Vec<Row>,
}

/// One way to share.
#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    settings: &'static str,
    iops: f64,
    p50_us: f64,
    p99_us: f64,
    /// Against the same users without a rebuild.
    iops_part: f64,
    p99_times: f64,
    /// None without one.
    rebuild_mib_s: Option<f64>,
    rebuild_part: Option<f64>,
    /// The part of the time in which the lane had the CPU that it wanted.
    cpu_share: f64,
}

/// Measures and prints.
pub(crate) fn rebuild(args: &BenchRebuildArgs) -> Result<(), Failure> {
    let repetitions = if args.quick { 3 } else { REPETITIONS };
    let runtime = Duration::from_secs(if args.quick { 1 } else { 5 });
    let wanted = |table| args.table.is_none_or(|only| only == table);
    let md = wanted(RebuildTable::Alone).then(|| Md::measure(if args.quick { 1 } else { 3 }));
    let alone = md.as_ref().map(|md| alone::measure(repetitions, md));
    let beside = wanted(RebuildTable::Users).then(|| beside::measure(runtime));
    let report = Report {
        schema: 1,
        machine: machine::describe(),
        alone: alone.transpose()?.unwrap_or_default(),
        no_md: md.and_then(|md| md.why_not()),
        beside: beside.transpose()?.unwrap_or_default(),
    };
    match args.json {
        true => output::print_json(&report),
        false => output::print(&text::text(&report)),
    }
}
