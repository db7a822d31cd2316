//! A load in the words of `bench run`, so that every row of a table can be repeated alone.

use std::time::Duration;

use clap::Parser;

use crate::args::BenchRunArgs;
use crate::failure::Failure;

use super::REPETITIONS;
use super::limits::Bare;
use super::measure::{Outcome, Until};

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

/// Which side of a comparison: the members, or what is made of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Raw,
    Array,
}

/// Both sides, repetition by repetition, in turns.
pub(super) struct Comparison {
    pub(super) raw: Vec<Outcome>,
    pub(super) array: Vec<Outcome>,
    /// The copies that raw members in memory cannot do without; empty for others.
    pub(super) bare: Vec<Outcome>,
}

/// What is measured beside its raw members.
pub(super) trait Subject {
    /// One repetition of what `args` ask for.
    fn load(&self, args: &BenchRunArgs, until: Until, side: Side) -> Outcome;

    fn stop(self) -> Result<(), Failure>;

    /// Both sides in turns; `runtime` seconds for each of them.
    fn compare(&self, args: &BenchRunArgs, runtime: f64) -> Comparison {
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
}
