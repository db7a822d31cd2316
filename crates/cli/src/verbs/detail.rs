//! `mdspace detail`.

use std::process::ExitCode;

use super::Outcome;
use crate::args::DetailArgs;
use crate::control::client::{ANSWERS_WITHIN, Client};
use crate::output::{self, plain};
use crate::render::{connect, detail, export, paths};
use crate::report::{ArrayReport, DeviceReport, Report, ServedReport};
use crate::run_dir::RunDir;

/// `--test` found no array, or could not ask it.
const EXIT_UNKNOWN: u8 = 4;

/// Shows one array.
pub(crate) fn run(args: &DetailArgs) -> Outcome {
    let served = RunDir::open_of(&args.name)
        .and_then(|run_dir| match args.test {
            true => Client::connect_within(&run_dir, &args.name, ANSWERS_WITHIN),
            false => Client::connect(&run_dir, &args.name),
        })
        .and_then(|mut client| client.served())
        .map_err(|failure| match args.test {
            true => failure.with_exit_code(EXIT_UNKNOWN),
            false => failure,
        })?;
    match served {
        ServedReport::Array(report) => show(args, &report),
        ServedReport::Device(report) => show_device(args, &report),
    }
}

fn show(args: &DetailArgs, report: &Report) -> Outcome {
    if args.json {
        output::print_json(report)?;
    } else if args.export {
        output::print(&export::text(&plain(report)))?;
    } else if args.connect {
        output::print(&connect::text(args.name.as_str(), &plain(report).fronts))?;
    } else {
        output::print(&detail::text(&plain(report)))?;
    }
    Ok(ExitCode::from(if args.test { health(&report.array) } else { 0 }))
}

/// A device with paths: 0 when all are active, 1 when some are, 2 when none is.
fn show_device(args: &DetailArgs, report: &DeviceReport) -> Outcome {
    if args.json {
        output::print_json(report)?;
    } else if args.connect {
        output::print(&connect::text(args.name.as_str(), &plain(report).fronts))?;
    } else {
        output::print(&paths::text(&plain(report)))?;
    }
    let health = match report.health() {
        (false, _) => 2,
        (true, false) => 1,
        (true, true) => 0,
    };
    Ok(ExitCode::from(if args.test { health } else { 0 }))
}

/// mdadm's exit code: 0 whole, 1 degraded, 2 beyond what the level bears.
fn health(array: &ArrayReport) -> u8 {
    match (array.failed, array.degraded) {
        (true, _) => 2,
        (false, 0) => 0,
        (false, _) => 1,
    }
}
