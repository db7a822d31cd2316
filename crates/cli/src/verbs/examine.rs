//! `mdspace examine`.

use std::process::ExitCode;

use super::Outcome;
use crate::args::ExamineArgs;
use crate::{examine, output};

/// Shows what can be read; exit 1 if a member cannot.
pub(crate) fn run(args: &ExamineArgs) -> Outcome {
    let (mut members, mut failures) = (Vec::new(), Vec::new());
    for path in &args.members {
        match examine::read_member(path) {
            Ok(member) => members.push(member),
            Err(failure) => failures.push(failure),
        }
    }
    if args.json {
        output::print_json(&examine::to_json(&members))?;
    } else if args.export {
        output::print(&examine::render_export(&members))?;
    } else if args.scan {
        output::print(&examine::render_scan(&members, false))?;
    } else {
        output::print(&examine::render_text(&members))?;
    }
    failures.iter().for_each(output::print_error);
    Ok(ExitCode::from(if failures.is_empty() { 0 } else { 1 }))
}
