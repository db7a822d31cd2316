//! `mdspace bench rebuild`: how fast sync tasks are alone, and what users and a rebuild leave each other.

mod alone;
mod beside;
mod text;

use serde::Serialize;

use crate::args::BenchRebuildArgs;
use crate::failure::Failure;
use crate::output;

use super::figures::Ratio;
use super::{REPETITIONS, machine};

/// Everything that was measured.
#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    machine: String,
    alone: Vec<Alone>,
    /// The load of users in the table.
    users: String,
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
}

/// Users and a rebuild of the same members.
#[derive(Debug, Serialize)]
struct Beside {
    member: String,
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
}

/// Measures and prints.
pub(crate) fn rebuild(args: &BenchRebuildArgs) -> Result<(), Failure> {
    let repetitions = if args.quick { 3 } else { REPETITIONS };
    let alone = alone::measure(repetitions)?;
    let beside = beside::measure(if args.quick { 1.0 } else { 5.0 })?;
    let report = Report {
        schema: 1,
        machine: machine::describe(),
        alone,
        users: beside::USERS.to_owned(),
        beside,
    };
    match args.json {
        true => output::print_json(&report),
        false => output::print(&text::text(&report)),
    }
}
