//! What was published, and what stands for it here.

use crate::bench::machine;

/// One seed's table.
pub(super) struct Table {
    pub(super) year: u16,
    pub(super) title: &'static str,
    /// The machine and members of those who published it.
    pub(super) published_on: &'static str,
    pub(super) rows: fn() -> Vec<Row>,
    /// An array, in the words of `bench run`, for the table's stress test.
    pub(super) stress: Option<&'static str>,
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

pub(super) const TABLES: &[Table] = &[Table {
    year: 2020,
    title: "RAID5 of 4, stripe_size 64 KiB (baseline) and 4 KiB (treatment), 2 jobs x depth 64",
    published_on: "4 SATA SSDs, Linux md",
    rows: stripe_size,
    stress: None,
}];

/// `stripe_size` from 64 KiB to 4 KiB.
fn stripe_size() -> Vec<Row> {
    let loads = [
        ("4 KiB random write", "--rw=randwrite --bs=4k", "15 to 100 MB/s: +567 %"),
        ("1 MiB write", "--rw=write --bs=1m", "1000 to 700 MB/s: -30 %"),
    ];
    let members = [("RAM", "ram:64M", "copies and parity in memory")];
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
