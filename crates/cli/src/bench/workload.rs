//! A load in the words of `bench run`, so that every row of a table can be repeated alone.

use std::time::{Duration, Instant};

use clap::Parser;
use mdspace_engine::array::Action;

use crate::args::BenchRunArgs;
use crate::failure::Failure;

use super::REPETITIONS;
use super::limits::Bare;
use super::measure::{Outcome, Until};
use super::run::{Bed, Side, failed};

/// The words as clap reads them.
#[derive(Parser)]
struct Words {
    #[command(flatten)]
    args: BenchRunArgs,
}

/// What `bench run` does with these words.
pub(super) fn parse(words: &str) -> BenchRunArgs {
    let words = std::iter::once("run").chain(words.split_whitespace());
    Words::try_parse_from(words).expect("tables hold good words").args
}

/// Both sides, repetition by repetition, in turns.
pub(super) struct Comparison {
    pub(super) raw: Vec<Outcome>,
    pub(super) array: Vec<Outcome>,
    /// The copies that raw members in memory cannot do without; empty for others.
    pub(super) bare: Vec<Outcome>,
}

impl Bed {
    /// An array that is filled and has lost what it shall lose.
    pub(super) fn ready(args: &BenchRunArgs) -> Result<Self, Failure> {
        let bed = Self::new(args)?;
        bed.fill()?;
        bed.fail_members(&args.fail)?;
        Ok(bed)
    }

    /// Raw members and the array in turns; `runtime` seconds for each of them.
    pub(super) fn compare(&self, args: &BenchRunArgs, runtime: f64) -> Comparison {
        let span = Duration::from_secs_f64(runtime / REPETITIONS as f64);
        let until = Until::Elapsed(span);
        let mut copies = Bare::of(args);
        let (mut raw, mut array, mut bare) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..REPETITIONS {
            bare.extend(copies.as_mut().map(|copies| copies.run(span)));
            raw.push(self.load(args, until, Side::Raw));
            array.push(self.load(args, until, Side::Array));
        }
        Comparison { raw, array, bare }
    }

    /// One repetition of what `args` ask for.
    pub(super) fn load(&self, args: &BenchRunArgs, until: Until, side: Side) -> Outcome {
        self.measure(args.pattern(), args.bs.bytes(), args.iodepth.into(), until, side)
    }

    /// Checks the array; gives the sectors that differ.
    pub(super) fn check(&self) -> Result<u64, Failure> {
        self.order(Action::Check)?;
        self.wait_for_sync()?;
        Ok(self.status()?.mismatch_sectors)
    }

    /// Waits until a task that was just ordered has run to its end on a whole array.
    pub(super) fn wait_for_sync(&self) -> Result<(), Failure> {
        let (mut seen, ordered) = (false, Instant::now());
        loop {
            let status = self.status()?;
            let runs = status.sync.action.runs();
            if seen && !runs && status.degraded() == 0 {
                return Ok(());
            }
            seen |= runs;
            if !seen && ordered.elapsed() > Duration::from_secs(5) {
                return Err(failed("measure a sync task", "it does not start"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
