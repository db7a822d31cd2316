//! `mdspace doctor`.

use std::process::ExitCode;

use super::Outcome;
use crate::args::JsonArgs;
use crate::doctor::Diagnosis;
use crate::output;

/// Shows what this host offers; exit 1 when mdspace cannot serve an array here.
pub(crate) fn run(args: &JsonArgs) -> Outcome {
    let diagnosis = Diagnosis::of_this_host();
    if args.json {
        output::print_json(&diagnosis)?;
    } else {
        output::print(&diagnosis.text())?;
    }
    Ok(ExitCode::from(u8::from(!diagnosis.can_serve())))
}
