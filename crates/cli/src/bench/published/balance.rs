//! 2019: RAID10 learns to count what is pending. Four ways to choose the member to read, on arrays
//! of unequal members, beside what the members give by themselves.

use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;

use crate::args::BenchRunArgs;
use crate::bench::bed::Bed;
use crate::bench::failed;
use crate::bench::figures::{Figures, figures};
use crate::bench::measure::{Outcome, Until};
use crate::bench::table::count;
use crate::bench::workload::{Side, Subject, parse};
use crate::failure::Failure;

use super::tables::Head;

pub(super) const HEAD: Head = Head {
    year: 2019,
    title: "RAID1 and RAID10 of unequal members, by read_policy; nearest is md before, md is md after",
    published_on: "a fast pair, and two disks, Linux md: random read of RAID10 208 K before, 602 K after",
};

/// The policies, in the order of the columns.
const POLICIES: [&str; 4] = ["first", "nearest", "md", "expected"];

/// Repetitions of each policy; disks need longer ones, for they do a hundred I/Os a second.
const REPETITIONS: u32 = 3;
const DISKS_SPAN: Duration = Duration::from_millis(400);

/// An array of the table, in the words of `bench run`.
#[derive(Clone, Copy)]
struct Bench {
    name: &'static str,
    array: &'static str,
    loads: [Load; 4],
}

/// A load, and what was published for it.
#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    words: &'static str,
    published: &'static str,
}

/// Random read, read, random write and write of solid state drives, with what was published of each.
const fn drives(published: [&'static str; 4]) -> [Load; 4] {
    loads(
        [
            "--rw=randread --bs=4k --iodepth=128",
            "--rw=read --bs=128k --iodepth=32",
            "--rw=randwrite --bs=4k --iodepth=128",
            "--rw=write --bs=128k --iodepth=32",
        ],
        published,
    )
}

/// The same of disks, which bear less depth.
const fn disks(published: [&'static str; 4]) -> [Load; 4] {
    loads(
        [
            "--rw=randread --bs=4k --iodepth=32",
            "--rw=read --bs=64k --iodepth=16",
            "--rw=randwrite --bs=4k --iodepth=32",
            "--rw=write --bs=64k --iodepth=16",
        ],
        published,
    )
}

const fn loads(words: [&'static str; 4], published: [&'static str; 4]) -> [Load; 4] {
    [
        Load { name: "random read", words: words[0], published: published[0] },
        Load { name: "read", words: words[1], published: published[1] },
        Load { name: "random write", words: words[2], published: published[2] },
        Load { name: "write", words: words[3], published: published[3] },
    ]
}

const UNEQUAL: [Load; 4] = drives(["-"; 4]);

/// As published of the fast pair: before and after.
const FAST_PAIR: [Load; 4] = drives(["208 K, then 602 K", "-", "82.2 K", "-"]);

const DISKS_1: [Load; 4] = disks(["501", "198 MiB/s", "25", "18 MiB/s"]);

const DISKS_10: [Load; 4] =
    disks(["501, then 487", "188, 211 MiB/s", "21, then 71", "19, 19 MiB/s"]);

const BENCHES: [Bench; 5] = [
    Bench {
        name: "RAID1, SATA and NVMe",
        array: "--level=1 --raid-devices=2 --member=null:sata-ssd?size=256M --member=null:nvme?size=256M",
        loads: UNEQUAL,
    },
    Bench {
        name: "RAID10, SATA and NVMe",
        array: "--level=10 --raid-devices=2 --member=null:sata-ssd?size=256M --member=null:nvme?size=256M",
        loads: FAST_PAIR,
    },
    Bench {
        name: "RAID10 of 4",
        array: "--level=10 --raid-devices=4 --member=null:sata-ssd?size=256M --member=null:nvme?size=256M \
                --member=null:sata-ssd?size=256M --member=null:nvme?size=256M",
        loads: UNEQUAL,
    },
    Bench {
        name: "RAID1, 2 disks",
        array: "--level=1 --raid-devices=2 --member=null:hdd?size=512M",
        loads: DISKS_1,
    },
    Bench {
        name: "RAID10, 2 disks",
        array: "--level=10 --raid-devices=2 --member=null:hdd?size=512M",
        loads: DISKS_10,
    },
];

/// The table as measured.
#[derive(Debug, Serialize)]
pub(super) struct MeasuredBalance {
    #[serde(flatten)]
    head: Head,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    published: &'static str,
    command: String,
    random: bool,
    /// What the members give without an array: of reads all together, each as deep as it bears; of
    /// writes the slowest, for every copy is written.
    members: f64,
    /// By policy, as [`POLICIES`].
    policies: Vec<Figures>,
    /// `expected` over what the members give, and over the best of the other policies.
    of_members: f64,
    of_best: f64,
    errors: u64,
}

/// Measures the table; `span` is one repetition of one policy.
pub(super) fn measure(span: Duration) -> Result<MeasuredBalance, Failure> {
    let mut rows = Vec::new();
    for bench in BENCHES {
        let bed = Bed::ready(&parse(bench.array))?;
        let disks = bench.array.contains("null:hdd");
        let span = if disks { span.max(DISKS_SPAN) } else { span };
        for load in bench.loads {
            rows.push(measure_row(&bed, &bench, &load, span)?);
        }
        bed.stop()?;
    }
    Ok(MeasuredBalance { head: HEAD, rows })
}

fn measure_row(bed: &Bed, bench: &Bench, load: &Load, span: Duration) -> Result<Row, Failure> {
    let words = format!("{} {}", bench.array, load.words);
    let args = parse(&words);
    let until = Until::Elapsed(span);
    let members = members_give(bed, &args, span);
    let mut outcomes: Vec<Vec<Outcome>> = POLICIES.map(|_| Vec::new()).into();
    for _ in 0..REPETITIONS {
        for (policy, outcomes) in POLICIES.iter().zip(&mut outcomes) {
            let set = bed.array().set("read_policy", policy);
            set.map_err(|error| failed("set a key", error))?;
            outcomes.push(bed.load(&args, until, Side::Array));
        }
    }
    let errors = outcomes.iter().flatten().map(|outcome| outcome.errors).sum();
    let block = args.bs.bytes();
    let policies: Vec<_> = outcomes.into_iter().map(|runs| figures(runs, block)).collect();
    let [others @ .., expected] = &policies[..] else { unreachable!("there are four policies") };
    let best = others.iter().map(|figures| figures.iops).fold(0.0, f64::max);
    Ok(Row {
        name: format!("{}: {}", bench.name, load.name),
        published: load.published,
        command: format!("mdspace bench run {words} --set read_policy=POLICY"),
        random: args.rw.random,
        members,
        of_members: expected.iops / members,
        of_best: expected.iops / best,
        policies,
        errors,
    })
}

/// I/Os a second of the raw members: the middle of the repetitions.
fn members_give(bed: &Bed, args: &BenchRunArgs, span: Duration) -> f64 {
    let (until, depth) = (Until::Elapsed(span), usize::from(args.iodepth));
    let run = |parts: &[(usize, usize)]| {
        bed.measure_members(parts, args.pattern(), args.bs.bytes(), until).iops()
    };
    let alone: Vec<f64> = (0..args.raid_devices).map(|member| run(&[(member, depth)])).collect();
    if args.rw.reads_percent == 0 {
        let slowest = alone.iter().copied().fold(f64::INFINITY, f64::min);
        return slowest * (args.raid_devices / 2) as f64;
    }
    let all: f64 = alone.iter().sum();
    let share = |(member, one): (usize, &f64)| {
        (member, ((depth as f64 * one / all).round() as usize).max(1))
    };
    let parts: Vec<_> = alone.iter().enumerate().map(share).collect();
    let mut together: Vec<f64> = (0..REPETITIONS).map(|_| run(&parts)).collect();
    together.sort_by(f64::total_cmp);
    together[together.len() / 2]
}

impl MeasuredBalance {
    /// The table for people.
    pub(super) fn text(&self) -> String {
        let Self { head, rows } = self;
        let mut text = format!("{head}\n");
        let [first, nearest, md, expected] = POLICIES;
        let _ = writeln!(
            text,
            "{:36} {:>18} {:>9} {first:>9} {nearest:>9} {md:>9} {expected:>9} {:>11} {:>8}",
            "I/Os a second; streams in MiB/s", "published", "members", "of members", "of best",
        );
        for row in rows {
            let _ = write!(text, "{:36} {:>18}", row.name, row.published);
            let bytes = row.policies[0].mib_s / row.policies[0].iops.max(1e-9);
            let unit = |iops: f64| if row.random { count(iops) } else { count(iops * bytes) };
            let _ = write!(text, " {:>9}", unit(row.members));
            for figures in &row.policies {
                let _ = write!(text, " {:>9}", unit(figures.iops));
            }
            let (of_members, of_best) = (row.of_members * 100.0, row.of_best * 100.0);
            let _ = write!(text, " {of_members:>9.0} % {of_best:>6.0} %");
            let wrong = if row.errors > 0 { " WRONG: errors" } else { "" };
            let _ = writeln!(text, "{wrong}");
        }
        text.push_str(
            "\nmembers: raw, all together, each as deep as it bears; of writes the slowest. of best: expected over \
             the best of\nthe three others.\n",
        );
        text
    }
}

#[cfg(test)]
mod tests;
