//! `mdspace bench run`: an array or a multipath device and its raw members, in turns, in one run.

use serde::Serialize;

use crate::args::BenchRunArgs;
use crate::failure::Failure;
use crate::output;

use super::bed::Bed;
use super::figures::{Figures, Ratio, figures, ratio};
use super::measure::{Outcome, Until};
use super::paths_bed::PathsBed;
use super::table;
use super::workload::{Comparison, Side, Subject};

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    raw: Figures,
    array: Figures,
    ratio: f64,
    /// Raw over the bare copies of `bench limits`, where members are in memory. Below 0.9 raw is no
    /// measure for an array.
    raw_over_copies: Option<Ratio>,
    bytes_copied_per_byte: f64,
    member_ios_per_io: f64,
    member_bytes_per_byte: f64,
    errors: u64,
    simd: &'static str,
    settings: String,
}

/// Runs the benchmark and prints what it found.
pub(crate) fn run(args: &BenchRunArgs) -> Result<(), Failure> {
    match args.multipath {
        Some(_) => measure(args, PathsBed::new(args)?),
        None => measure(args, Bed::ready(args)?),
    }
}

fn measure(args: &BenchRunArgs, subject: impl Subject) -> Result<(), Failure> {
    if let Some(number) = args.number_ios {
        let outcome = subject.load(args, Until::Requests(number), Side::Array);
        let Outcome { requests, errors, .. } = outcome;
        subject.stop()?;
        return output::print_line(&format!("{requests} requests, {errors} errors"));
    }
    let report = report(args, subject.compare(args, args.runtime));
    subject.stop()?;
    match args.json {
        true => output::print_json(&report),
        false => {
            let mut facts = vec![("array over raw", report.ratio)];
            facts
                .extend(report.raw_over_copies.map(|ratio| ("raw over bare copies", ratio.median)));
            facts.extend([
                ("bytes copied per byte", report.bytes_copied_per_byte),
                ("member I/Os per I/O", report.member_ios_per_io),
                ("member bytes per byte", report.member_bytes_per_byte),
            ]);
            output::print(&table::run(&report.settings, &report.raw, &report.array, &facts))
        }
    }
}

fn report(args: &BenchRunArgs, Comparison { raw, array, bare }: Comparison) -> Report {
    let block = args.bs.bytes();
    let requests: u64 = array.iter().map(|outcome| outcome.requests).sum::<u64>().max(1);
    let per = |of: fn(&Outcome) -> u64| array.iter().map(of).sum::<u64>() as f64 / requests as f64;
    let errors = raw.iter().chain(&array).map(|outcome| outcome.errors).sum();
    let copied = per(|outcome| outcome.traffic.copied_bytes) / block as f64;
    let ios = per(|outcome| outcome.traffic.member_ios);
    let bytes = per(|outcome| outcome.traffic.member_bytes) / block as f64;
    let raw_over_copies = (!bare.is_empty()).then(|| ratio(&raw, &bare));
    let (raw, array) = (figures(raw, block), figures(array, block));
    Report {
        schema: 1,
        ratio: array.iops / raw.iops,
        raw_over_copies,
        raw,
        array,
        bytes_copied_per_byte: copied,
        member_ios_per_io: ios,
        member_bytes_per_byte: bytes,
        errors,
        simd: mdspace_parity::kernels().isa().name(),
        settings: args.to_string(),
    }
}
