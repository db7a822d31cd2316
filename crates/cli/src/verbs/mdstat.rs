//! `mdspace mdstat`.

use std::process::ExitCode;

use super::Outcome;
use crate::control::client::Client;
use crate::failure::Failure;
use crate::output;
use crate::render::mdstat;
use crate::run_dir::RunDir;

/// Shows every array that runs; one that stops meanwhile is left out.
pub(crate) fn run() -> Outcome {
    let run_dir = RunDir::open()?;
    let names = run_dir.running().map_err(|error| {
        Failure::new("cannot list the arrays", error, "check the rights of the run directory")
    })?;
    let ask = |name| Client::connect(&run_dir, name).and_then(|mut client| client.report()).ok();
    let reports: Vec<_> = names.iter().filter_map(ask).collect();
    output::print(&mdstat::text(&output::plain(&reports)))?;
    Ok(ExitCode::SUCCESS)
}
