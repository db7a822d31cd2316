//! A load in the words of `bench run`, so that every row of a table can be repeated alone.

use std::time::Duration;

use clap::Parser;

use crate::args::BenchRunArgs;
use crate::failure::Failure;

use super::REPETITIONS;
use super::measure::Outcome;
use super::run::{Bed, Side};

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
        let (mut raw, mut array) = (Vec::new(), Vec::new());
        for _ in 0..REPETITIONS {
            raw.push(self.load(args, span, Side::Raw));
            array.push(self.load(args, span, Side::Array));
        }
        Comparison { raw, array }
    }

    /// One repetition of what `args` ask for.
    pub(super) fn load(&self, args: &BenchRunArgs, span: Duration, side: Side) -> Outcome {
        self.measure(args.pattern(), args.bs.bytes(), args.iodepth.into(), span, side)
    }
}
