//! `mdspace bench peers`: the same loads on Linux md under User-Mode Linux.
//!
//! The guest's members are `brd` ramdisks, its load is fio's io_uring engine in batches (libaio for
//! dm-multipath, which it serves better), straight to the block device. Each side is compared with its own raw member first.

mod script;

use std::fmt::Write;

use serde::Serialize;

use crate::args::{BenchPeersArgs, BenchRunArgs};
use crate::failure::Failure;
use crate::output;

use super::REPETITIONS;
use super::bed::Bed;
use super::figures::Ratio;
use super::guest::{CAVEAT, Guest, MEMBER_MIB, Printed};
use super::machine;
use super::measure::Outcome;
use super::paths_bed::PathsBed;
use super::sync::Task;
use super::table::{count, range};
use super::workload::{Subject, parse};

use script::script;

/// An array and the loads on it, in the words of `bench run`.
struct Shape {
    name: &'static str,
    array: &'static str,
    loads: &'static [Load],
}

struct Load {
    name: &'static str,
    words: &'static str,
    /// Slots that have failed.
    lost: &'static str,
}

const fn load(name: &'static str, words: &'static str) -> Load {
    Load { name, words, lost: "" }
}

const RANDOM_WRITE: &str = "--rw=randwrite --bs=4k --iodepth=128";
const RANDOM_READ: &str = "--rw=randread --bs=4k --iodepth=128";

/// In a shape, what needs all members comes before what does not.
const SHAPES: [Shape; 4] = [
    Shape {
        name: "RAID6 4+2",
        array: "--level=6 --raid-devices=6 --chunk=512K",
        loads: &[
            load("4 KiB random write", RANDOM_WRITE),
            load("4 KiB sequential write", "--rw=write --bs=4k --iodepth=256"),
            load("1 MiB write", "--rw=write --bs=1m --iodepth=8"),
            load("4 KiB random read", RANDOM_READ),
            Load { name: "degraded 4 KiB random read", words: RANDOM_READ, lost: "--fail=1" },
            Load { name: "degraded 4 KiB random write", words: RANDOM_WRITE, lost: "--fail=1" },
        ],
    },
    Shape {
        name: "RAID5 3+1",
        array: "--level=5 --raid-devices=4 --chunk=512K",
        loads: &[load("4 KiB random write", RANDOM_WRITE)],
    },
    Shape {
        name: "RAID1",
        array: "--level=1 --raid-devices=2",
        loads: &[load("4 KiB random write", RANDOM_WRITE)],
    },
    Shape {
        name: "RAID10",
        array: "--level=10 --raid-devices=4 --chunk=512K",
        loads: &[load("4 KiB random write", RANDOM_WRITE)],
    },
];

/// Of two paths to one member.
const SELECTORS: [&str; 3] = ["service-time", "queue-length", "round-robin"];

fn multipath_name(selector: &str) -> String {
    format!("2 paths, {selector}, 4 KiB random read")
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    machine: String,
    peer: &'static str,
    caveat: &'static str,
    /// The last ones are of dm-multipath.
    loads: Vec<Row>,
    /// What the guest could not do, and why.
    absent: Vec<(String, String)>,
    syncs: Vec<SyncRow>,
}

/// One load on both sides.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    command: String,
    ours: Side,
    md: Side,
    /// Ours over md's, medians.
    ours_over_md: f64,
}

#[derive(Debug, Serialize)]
struct Side {
    raw_iops: f64,
    iops: f64,
    /// The array over its raw member, repetition by repetition.
    of_raw: Ratio,
    /// Time of one request above that of one on the raw member.
    above_raw_ns: f64,
}

/// Check or rebuild on both sides, in bytes of one member.
#[derive(Debug, Serialize)]
struct SyncRow {
    name: &'static str,
    ours_mib_s: Ratio,
    md_mib_s: Ratio,
    ours_over_md: f64,
}

/// Measures md in a guest, then ours, and prints both.
pub(crate) fn peers(args: &BenchPeersArgs) -> Result<(), Failure> {
    let repetitions = if args.quick { 3 } else { 5 };
    let seconds = if args.quick { 0.5 } else { 1.0 };
    let theirs = Guest::find()?.run(&script(), repetitions, seconds)?;
    let runtime = if args.quick { 0.5 } else { 2.0 };
    let mut rows = Vec::new();
    for shape in &SHAPES {
        for load in shape.loads {
            let words =
                format!("{} {} {} --member=ram:{MEMBER_MIB}M", shape.array, load.words, load.lost);
            let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
            let name = format!("{}, {}", shape.name, load.name);
            rows.push(row(name, &words, &theirs, runtime)?);
        }
    }
    let mut absent = Vec::new();
    for selector in SELECTORS {
        let name = multipath_name(selector);
        if let Some(why) = theirs.why_not(&name) {
            absent.push((name, why.to_owned()));
            continue;
        }
        let words = format!("--multipath={selector} {RANDOM_READ} --member=ram:{MEMBER_MIB}M");
        rows.push(row(name, &words, &theirs, runtime)?);
    }
    let mut syncs = Vec::new();
    for task in Task::ALL {
        let name = task.word();
        let words = format!("--level=6 --raid-devices=6 --chunk=512K --member=ram:{MEMBER_MIB}M");
        let ours_mib_s = task.measure(&words, REPETITIONS)?.mib_s;
        let md_mib_s = Ratio::of(theirs.sync(name)?);
        let ours_over_md = ours_mib_s.median / md_mib_s.median;
        syncs.push(SyncRow { name, ours_mib_s, md_mib_s, ours_over_md });
    }
    let machine = machine::describe();
    let (peer, caveat) = ("Linux md and dm-multipath", CAVEAT);
    let report = Report { schema: 1, machine, peer, caveat, loads: rows, absent, syncs };
    match args.json {
        true => output::print_json(&report),
        false => output::print(&text(&report)),
    }
}

fn row(name: String, words: &str, theirs: &Printed, runtime: f64) -> Result<Row, Failure> {
    let args = parse(words);
    let ours = match args.multipath {
        Some(_) => ours(&args, PathsBed::new(&args)?, runtime)?,
        None => ours(&args, Bed::ready(&args)?, runtime)?,
    };
    let md = side(theirs.load(&name, "raw")?, theirs.load(&name, "md")?);
    let ours_over_md = ours.iops / md.iops;
    Ok(Row { name, command: format!("mdspace bench run {words}"), ours, md, ours_over_md })
}

fn ours(args: &BenchRunArgs, subject: impl Subject, runtime: f64) -> Result<Side, Failure> {
    let found = subject.compare(args, runtime);
    subject.stop()?;
    let iops = |outcomes: &[Outcome]| outcomes.iter().map(Outcome::iops).collect();
    Ok(side(iops(&found.raw), iops(&found.array)))
}

/// Repetitions of IOPS, raw and through the array, in turns.
fn side(raw: Vec<f64>, array: Vec<f64>) -> Side {
    let pairs = |of: fn(f64, f64) -> f64| {
        Ratio::of(raw.iter().zip(&array).map(|(raw, array)| of(*raw, *array)).collect())
    };
    let of_raw = pairs(|raw, array| array / raw);
    let above_raw_ns = pairs(|raw, array| 1e9 / array - 1e9 / raw).median;
    Side { raw_iops: Ratio::of(raw).median, iops: Ratio::of(array).median, of_raw, above_raw_ns }
}

fn text(report: &Report) -> String {
    let mut text = format!("{}\nLinux md beside it: {CAVEAT}.\n\n", report.machine);
    let _ = writeln!(
        text,
        "{:40} {:>9} {:>17} {:>9}   {:>9} {:>17} {:>9}   {:>9}",
        "", "ours", "of raw", "above raw", "md (UML)", "of raw", "above raw", "ours/md *",
    );
    for Row { name, ours, md, ours_over_md, .. } in &report.loads {
        let _ =
            writeln!(text, "{name:40} {}   {}   {ours_over_md:>9.1}", columns(ours), columns(md));
    }
    for (name, why) in &report.absent {
        let _ = writeln!(text, "{name:40} not measured: {why}");
    }
    let _ = writeln!(
        text,
        "\n{:40} {:>20}   {:>20}   {:>9}",
        "MiB/s of one member", "ours", "md (UML)", "ours/md *"
    );
    for SyncRow { name, ours_mib_s, md_mib_s, ours_over_md } in &report.syncs {
        let cell = |rate: &Ratio| {
            format!("{:.0} {:.0}-{:.0}", rate.median, rate.spread[0], rate.spread[1])
        };
        let name = format!("RAID6 4+2, {name}");
        let _ = writeln!(
            text,
            "{name:40} {:>20}   {:>20}   {ours_over_md:>9.1}",
            cell(ours_mib_s),
            cell(md_mib_s),
        );
    }
    let _ = writeln!(text, "\n* {CAVEAT}.");
    let _ = writeln!(
        text,
        "IOPS are medians; beside a ratio its spread. Above raw: of one request, in time."
    );
    text
}

fn columns(side: &Side) -> String {
    let of_raw = format!("{:.2} {}", side.of_raw.median, range(side.of_raw.spread));
    let above = format!("{:.0} ns", side.above_raw_ns);
    format!("{:>9} {of_raw:>17} {above:>9}", count(side.iops))
}

#[cfg(test)]
mod tests;
