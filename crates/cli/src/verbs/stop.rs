//! `mdspace stop`.

use std::process::ExitCode;

use super::Outcome;
use crate::args::StopArgs;
use crate::control::client::Client;
use crate::control::{Reply, Request};
use crate::failure::Failure;
use crate::output;
use crate::run_dir::RunDir;

/// Stops an array; returns once its process has let go of the members.
pub(crate) fn run(args: &StopArgs) -> Outcome {
    let run_dir = RunDir::open()?;
    let mut client = Client::connect(&run_dir, &args.name)?;
    let reply = client.ask(&Request::Stop { force: args.force })?;
    run_dir.wait_until_gone(&args.name).map_err(|error| {
        Failure::new(
            format!("stopped {}, but cannot see its process end", args.name),
            error,
            "look for it with `ps`",
        )
    })?;
    if let Reply::Done { notes } = reply {
        output::print_done(&notes)?;
    }
    Ok(ExitCode::SUCCESS)
}
