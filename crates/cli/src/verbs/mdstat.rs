//! `mdspace mdstat`.

use std::process::ExitCode;
use std::thread;

use super::Outcome;
use crate::control::client::{ANSWERS_WITHIN, Client};
use crate::failure::Failure;
use crate::output;
use crate::render::mdstat;
use crate::report::ServedReport;
use crate::run_dir::{RunDir, Running};

/// Shows every array and every multipath device that runs; one that stops meanwhile is left out. The last failure of those that do not
/// answer is the verb's, after the others are shown.
pub(crate) fn run() -> Outcome {
    let run_dir = RunDir::open()?;
    let running = run_dir.running().map_err(|error| {
        Failure::new("cannot list the arrays", error, "check the rights of the run directory")
    })?;
    let ask = |Running { run_dir, name }: &Running| {
        let client = Client::connect_within(run_dir, name, ANSWERS_WITHIN);
        client.and_then(|mut client| client.served())
    };
    // All at once: several that do not answer take no longer than one.
    let answers: Vec<Result<ServedReport, Failure>> = thread::scope(|scope| {
        let asking: Vec<_> = running.iter().map(|it| scope.spawn(move || ask(it))).collect();
        asking.into_iter().map(|asked| asked.join().expect("asking does not panic")).collect()
    });
    let (reports, failures): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
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
