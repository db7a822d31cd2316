//! `mdspace events`.

use std::process::ExitCode;

use serde::Serialize;

use super::Outcome;
use crate::args::EventsArgs;
use crate::control::client::{Client, ENDS_WITHIN};
use crate::control::{Reply, Request};
use crate::events::Event;
use crate::failure::Failure;
use crate::output;
use crate::process::journal;
use crate::render::event;
use crate::report::SCHEMA;
use crate::run_dir::RunDir;

/// Prints the events kept; with `--follow` those to come, until the array stops. Those of an array that does
/// not run are on disk.
pub(crate) fn run(args: &EventsArgs) -> Outcome {
    let run_dir = RunDir::open_of(&args.name)?;
    let mut client = match Client::connect(&run_dir, &args.name) {
        Err(failure) if !args.follow => return print_written(&run_dir, args, failure),
        connected => connected?,
    };
    let mut reply = client.ask(&Request::Events { follow: args.follow })?;
    while let Reply::Event { event } = &reply {
        if !is_read(event, args)? {
            break;
        }
        reply = match client.next_reply() {
            Err(lost) if args.follow && !lost.is_of_silence() => {
                return end(&run_dir, args, lost);
            }
            next => next?,
        };
    }
    Ok(ExitCode::SUCCESS)
}

/// What the last process wrote down. One that does not answer still runs: that is said too.
fn print_written(run_dir: &RunDir, args: &EventsArgs, failure: Failure) -> Outcome {
    let events = journal::read(&args.name, run_dir);
    for event in &events {
        if !is_read(event, args)? {
            break;
        }
    }
    match events.is_empty() || failure.is_of_silence() {
        true => Err(failure),
        false => Ok(ExitCode::SUCCESS),
    }
}

/// The process ends with its array, perhaps before its last word is read. One that was killed leaves its
/// socket behind.
fn end(run_dir: &RunDir, args: &EventsArgs, lost: Failure) -> Outcome {
    let gone = run_dir.wait_until_gone(&args.name, ENDS_WITHIN).map_err(|error| {
        Failure::new("lost the events", error, "run as the user who started the array")
    })?;
    if !gone {
        return Err(lost);
    }
    if run_dir.socket(&args.name).exists() {
        let why = format!("the process that serves {} has ended without a stop", args.name);
        let cure = format!("see its log, then `mdspace assemble {}`", args.name);
        return Err(Failure::new("no more events come", why, cure));
    }
    Ok(ExitCode::SUCCESS)
}

/// An event as `--json` prints it.
#[derive(Serialize)]
struct Line<'a> {
    schema: u32,
    array: &'a str,
    #[serde(flatten)]
    event: &'a Event,
}

/// Prints an event. Says whether anyone is there to read more.
fn is_read(event: &Event, args: &EventsArgs) -> Result<bool, Failure> {
    match args.json {
        true => {
            output::json_line_is_read(&Line { schema: SCHEMA, array: args.name.as_str(), event })
        }
        false => output::line_is_read(&event::line(&output::plain(event))),
    }
}
