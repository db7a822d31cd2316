//! `mdspace bench`.

use std::process::ExitCode;

use crate::args::{BenchArgs, BenchVerb};
use crate::bench;

use super::Outcome;

pub(super) fn run(args: &BenchArgs) -> Outcome {
    match &args.verb {
        BenchVerb::Run(args) => bench::run(args)?,
        BenchVerb::Limits(args) => bench::limits(args)?,
    }
    Ok(ExitCode::SUCCESS)
}
