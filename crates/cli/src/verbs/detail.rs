//! `mdspace detail`.

use std::process::ExitCode;

use super::Outcome;
use crate::args::DetailArgs;
use crate::control::client::Client;
use crate::output;
use crate::render::{detail, export};
use crate::report::ArrayReport;
use crate::run_dir::RunDir;

/// `--test` found no array, or could not ask it.
const EXIT_UNKNOWN: u8 = 4;

/// Shows one array.
pub(crate) fn run(args: &DetailArgs) -> Outcome {
    let report = RunDir::open()
        .and_then(|run_dir| Client::connect(&run_dir, &args.name))
        .and_then(|mut client| client.report())
        .map_err(|failure| match args.test {
            true => failure.with_exit_code(EXIT_UNKNOWN),
            false => failure,
        })?;
    if args.json {
        output::print_json(&report)?;
    } else if args.export {
        output::print(&export::text(&report))?;
    } else {
        output::print(&detail::text(&report))?;
    }
    Ok(ExitCode::from(if args.test { health(&report.array) } else { 0 }))
}

/// mdadm's exit code: 0 whole, 1 degraded, 2 beyond what the level bears.
fn health(array: &ArrayReport) -> u8 {
    match (array.failed, array.degraded) {
        (true, _) => 2,
        (false, 0) => 0,
        (false, _) => 1,
    }
}
