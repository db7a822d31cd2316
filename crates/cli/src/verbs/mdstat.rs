//! `mdspace mdstat`.

use std::process::ExitCode;

use super::Outcome;
use crate::control::client::ask_all;
use crate::failure::Failure;
use crate::output;
use crate::render::mdstat;
use crate::report::ServedReport;
use crate::run_dir::RunDir;

/// Shows every array and every multipath device that runs; one that stops meanwhile is left out. The last failure of those that do not
/// answer is the verb's, after the others are shown.
pub(crate) fn run() -> Outcome {
    let run_dir = RunDir::open()?;
    let running = run_dir.running().map_err(|error| {
        Failure::new("cannot list the arrays", error, "check the rights of the run directory")
    })?;
    let (reports, failures): (Vec<_>, Vec<_>) =
        ask_all(&running).into_iter().partition(Result::is_ok);
    let reports: Vec<ServedReport> = reports.into_iter().flatten().map(plain).collect();
    output::print(&mdstat::text(&reports))?;
    run_dir.unseen().iter().for_each(|line| output::print_aside(line));
    let silent = failures.into_iter().filter_map(Result::err).filter(Failure::is_of_silence);
    silent.reduce(Failure::and).map_or(Ok(ExitCode::SUCCESS), Err)
}

fn plain(served: ServedReport) -> ServedReport {
    match served {
        ServedReport::Array(report) => ServedReport::Array(Box::new(output::plain(&*report))),
        ServedReport::Device(report) => ServedReport::Device(Box::new(output::plain(&*report))),
    }
}
