//! What both sides gave, pass by pass, and what it comes to.

use serde::Serialize;

use crate::args::BenchRunArgs;
use crate::bench::REPETITIONS;
use crate::bench::bed::Bed;
use crate::bench::figures::Ratio;
use crate::bench::guest::{MEMBER_MIB, Printed};
use crate::bench::measure::Outcome;
use crate::bench::paths_bed::PathsBed;
use crate::bench::sync::Task;
use crate::bench::workload::{Subject, parse};
use crate::failure::Failure;

/// A load, and what each pass gave.
pub(super) struct LoadSamples {
    pub(super) name: String,
    pub(super) words: String,
    pub(super) ours: Samples,
    pub(super) md: Samples,
}

/// IOPS of one side, pass by pass.
#[derive(Default)]
pub(super) struct Samples {
    pub(super) raw: Vec<f64>,
    pub(super) array: Vec<f64>,
}

impl LoadSamples {
    pub(super) fn new(name: String, words: &str) -> Self {
        let words = format!("{words} --member=ram:{MEMBER_MIB}M");
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        Self { name, words, ours: Samples::default(), md: Samples::default() }
    }

    /// Takes what the guest gave, and measures ours beside it.
    pub(super) fn measure(&mut self, theirs: &Printed, runtime: f64) -> Result<(), Failure> {
        let args = parse(&self.words);
        match args.multipath {
            Some(_) => self.ours.add(&args, PathsBed::new(&args)?, runtime)?,
            None => self.ours.add(&args, Bed::ready(&args)?, runtime)?,
        }
        self.md.raw.extend(theirs.load(&self.name, "raw")?);
        self.md.array.extend(theirs.load(&self.name, "md")?);
        Ok(())
    }

    pub(super) fn row(self) -> Row {
        let ours_over_md = Ratio::of_pairs(&self.ours.array, &self.md.array, |ours, md| ours / md);
        let command = format!("mdspace bench run {}", self.words);
        Row { name: self.name, command, ours: self.ours.side(), md: self.md.side(), ours_over_md }
    }
}

impl Samples {
    fn add(
        &mut self,
        args: &BenchRunArgs,
        subject: impl Subject,
        runtime: f64,
    ) -> Result<(), Failure> {
        let found = subject.compare(args, runtime);
        subject.stop()?;
        let middle =
            |outcomes: &[Outcome]| Ratio::of(outcomes.iter().map(Outcome::iops).collect()).median;
        self.raw.push(middle(&found.raw));
        self.array.push(middle(&found.array));
        Ok(())
    }

    pub(super) fn side(self) -> Side {
        let of_raw = Ratio::of_pairs(&self.raw, &self.array, |raw, array| array / raw);
        let above_raw_ns =
            Ratio::of_pairs(&self.raw, &self.array, |raw, array| 1e9 / array - 1e9 / raw).median;
        Side {
            raw_iops: Ratio::of(self.raw).median,
            iops: Ratio::of(self.array).median,
            of_raw,
            above_raw_ns,
        }
    }
}

/// Speeds of a check or rebuild, pass by pass, in MiB/s of one member.
pub(super) struct SyncSamples {
    task: Task,
    ours: Vec<f64>,
    md: Vec<f64>,
}

impl SyncSamples {
    pub(super) fn new(task: Task) -> Self {
        Self { task, ours: Vec::new(), md: Vec::new() }
    }

    pub(super) fn measure(&mut self, theirs: &Printed) -> Result<(), Failure> {
        let words = format!("--level=6 --raid-devices=6 --chunk=512K --member=ram:{MEMBER_MIB}M");
        self.ours.push(self.task.measure(&words, REPETITIONS)?.mib_s.median);
        self.md.extend(theirs.sync(self.task.word())?);
        Ok(())
    }

    pub(super) fn row(self) -> SyncRow {
        let ours_over_md = Ratio::of_pairs(&self.ours, &self.md, |ours, md| ours / md);
        let (ours_mib_s, md_mib_s) = (Ratio::of(self.ours), Ratio::of(self.md));
        SyncRow { name: self.task.word(), ours_mib_s, md_mib_s, ours_over_md }
    }
}

/// One load on both sides.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) command: String,
    pub(super) ours: Side,
    pub(super) md: Side,
    /// Ours over md's, pass by pass.
    pub(super) ours_over_md: Ratio,
}

#[derive(Debug, Serialize)]
pub(super) struct Side {
    pub(super) raw_iops: f64,
    pub(super) iops: f64,
    /// The array over its raw member, repetition by repetition.
    pub(super) of_raw: Ratio,
    /// Time of one request above that of one on the raw member.
    pub(super) above_raw_ns: f64,
}

/// Check or rebuild on both sides, in bytes of one member.
#[derive(Debug, Serialize)]
pub(super) struct SyncRow {
    pub(super) name: &'static str,
    pub(super) ours_mib_s: Ratio,
    pub(super) md_mib_s: Ratio,
    pub(super) ours_over_md: Ratio,
}
