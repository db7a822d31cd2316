//! What was published, and what stands for it here.

use std::fmt;

use serde::Serialize;

use crate::bench::machine;

/// What stands above a table.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Head {
    pub(super) year: u16,
    pub(super) title: &'static str,
    /// The machine and members of those who published it.
    pub(super) published_on: &'static str,
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { year, title, published_on } = self;
        writeln!(f, "\n{year}: {title}\npublished on: {published_on}")
    }
}

/// One seed's table.
pub(super) struct Table {
    pub(super) head: Head,
    pub(super) rows: fn() -> Vec<Row>,
    /// Whether its rows are also told as parts of what RAID5 writes in memory cannot do without.
    pub(super) of_limit: bool,
    /// An array, in the words of `bench run`, for the table's stress test.
    pub(super) stress: Option<&'static str>,
    /// Whether dbench was run on ext4 too.
    pub(super) dbench: bool,
}

/// A baseline and a treatment.
pub(super) struct Row {
    pub(super) name: String,
    /// The array and the load, without jobs and depth.
    pub(super) load: String,
    pub(super) jobs: u16,
    /// Requests in flight of each job.
    pub(super) iodepth: u16,
    /// What `bench run` is told besides.
    pub(super) baseline: String,
    pub(super) treatment: String,
    /// Worker threads of the treatment.
    pub(super) workers: usize,
    pub(super) published: &'static str,
    /// What bounds the figure here.
    pub(super) bound: &'static str,
}

impl Row {
    /// The words of `bench run` for both sides. A lane serves several jobs where CPUs are few.
    pub(super) fn words(&self) -> String {
        let lanes = usize::from(self.jobs).min(machine::cpus().len()).max(1) as u16;
        let depth = self.jobs * self.iodepth / lanes;
        format!("{} --lanes={lanes} --iodepth={depth}", self.load)
    }
}

pub(super) const TABLES: &[Table] = &[
    Table {
        head: Head {
            year: 2026,
            title: "RAID6 4+2, stripe_cache_size 16384; 8 hash locks and batches of 8 (baseline), 32 and \
                32 (treatment)",
            published_on: "ramdisks, 22 cores, Linux md",
        },
        rows: locks_and_batches,
        of_limit: false,
        stress: None,
        dbench: false,
    },
    Table {
        head: Head {
            year: 2012,
            title: "RAID5, one submitting lane; stripe_cache_size 256 without workers (baseline), 512 with \
                workers (treatment)",
            published_on: "3 and 4 SSDs, Linux md",
        },
        rows: workers,
        of_limit: true,
        stress: Some(
            "--level=5 --raid-devices=4 --chunk=64K --member=ram:64M --set group_thread_cnt=2",
        ),
        dbench: false,
    },
    Table {
        head: Head {
            year: 2020,
            title: "RAID5 of 4, stripe_size 64 KiB (baseline) and 4 KiB (treatment), 2 jobs x depth 64",
            published_on: "4 SATA SSDs, Linux md",
        },
        rows: stripe_size,
        of_limit: false,
        stress: None,
        dbench: true,
    },
];

/// A workload of 2026: its name, load, jobs, depth of each, and what was published by workers.
type Workload = (&'static str, &'static str, u16, u16, [&'static str; 4]);

const WORKLOADS: [Workload; 5] = [
    ("4K random write", "--rw=randwrite --bs=4k", 4, 32, ["+4.2 %", "+8.1 %", "+17.4 %", "+6.5 %"]),
    (
        "mixed 75/25 8K",
        "--rw=randrw --rwmixread=75 --bs=8k",
        8,
        16,
        ["+0.4 %", "+4.2 %", "+10.3 %", "+4.7 %"],
    ),
    (
        "mixed 70/30 4K",
        "--rw=randrw --rwmixread=70 --bs=4k",
        16,
        8,
        ["+3.9 %", "+1.2 %", "+10.0 %", "+0.2 %"],
    ),
    (
        "mixed 70/30 16K",
        "--rw=randrw --rwmixread=70 --bs=16k",
        6,
        16,
        ["-0.3 %", "+4.7 %", "+10.1 %", "+9.3 %"],
    ),
    (
        "partial 8K write",
        "--rw=randwrite --bs=8k",
        4,
        32,
        ["+1.1 %", "+4.8 %", "+11.2 %", "+14.2 %"],
    ),
];

/// The workloads of 2026 by 0, 2, 4 and 8 workers a node.
fn locks_and_batches() -> Vec<Row> {
    let rows = WORKLOADS.iter().flat_map(|(name, load, jobs, iodepth, published)| {
        [0, 2, 4, 8].into_iter().zip(published).map(move |(workers, published)| Row {
            name: format!("{name}, {workers} workers"),
            load: format!(
                "--level=6 --raid-devices=6 --chunk=512K --member=ram:64M {load} \
                 --set stripe_cache_size=16384 --set group_thread_cnt={workers}"
            ),
            jobs: *jobs,
            iodepth: *iodepth,
            baseline: "--set stripe_hash_locks=8 --set max_stripe_batch=8".into(),
            treatment: "--set stripe_hash_locks=32 --set max_stripe_batch=32".into(),
            workers,
            published,
            bound: "copies and parity in memory",
        })
    });
    rows.collect()
}

/// 0 to 4 extra workers for one submitting lane.
fn workers() -> Vec<Row> {
    let loads = [
        ("4K random write", "--rw=randwrite --bs=4k"),
        ("64K sequential write", "--rw=write --bs=64k"),
    ];
    let mut rows = Vec::new();
    for (disks, gain) in [(3, "+130 %"), (4, "+200 %")] {
        for (name, load) in loads {
            rows.extend([0, 1, 2, 4].map(|workers| Row {
                name: format!("{disks} disks, {name}, {workers} workers"),
                load: format!(
                    "--level=5 --raid-devices={disks} --chunk=512K --member=ram:64M {load}"
                ),
                jobs: 1,
                iodepth: 128,
                baseline: "--set group_thread_cnt=0 --set stripe_cache_size=256".into(),
                treatment: format!("--set group_thread_cnt={workers} --set stripe_cache_size=512"),
                workers,
                published: if workers == 2 { gain } else { "not told" },
                bound: "the submitting lane, then copies and parity",
            }));
        }
    }
    rows
}

/// `stripe_size` from 64 KiB to 4 KiB.
fn stripe_size() -> Vec<Row> {
    let loads = [
        ("4 KiB random write", "--rw=randwrite --bs=4k", "15 to 100 MB/s: +567 %"),
        ("1 MiB write", "--rw=write --bs=1m", "1000 to 700 MB/s: -30 %"),
    ];
    let members = [
        ("RAM", "ram:64M", "copies and parity in memory"),
        ("null:sata-ssd", "null:sata-ssd?size=64M", "the drives' bandwidth and service time"),
    ];
    let rows = members.iter().flat_map(|(place, member, bound)| {
        loads.iter().map(move |(name, load, published)| Row {
            name: format!("{name}, {place}"),
            load: format!("--level=5 --raid-devices=4 --chunk=512K --member={member} {load}"),
            jobs: 2,
            iodepth: 64,
            baseline: "--set stripe_size=65536".into(),
            treatment: "--set stripe_size=4096".into(),
            workers: 0,
            published,
            bound,
        })
    });
    rows.collect()
}
