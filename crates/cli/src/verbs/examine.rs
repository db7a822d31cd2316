//! `mdspace examine`.

use std::io;
use std::process::ExitCode;

use mdspace_io::name_of_path;

use super::Outcome;
use crate::args::ExamineArgs;
use crate::failure::Failure;
use crate::member_probe::Look;
use crate::{examine, output};

/// Shows what can be read; exit 1 if a member cannot.
pub(crate) fn run(args: &ExamineArgs) -> Outcome {
    let (mut members, mut failures) = (Vec::new(), Vec::new());
    // All at once: several that do not answer take no longer than one.
    let looking = args.members.iter().map(|path| {
        let path = path.clone();
        Look::start(name_of_path(&path), move |_| examine::read_member(&path))
    });
    for (path, looking) in args.members.iter().zip(looking.collect::<Vec<_>>()) {
        let silent = |error: io::Error| {
            let why = format!("{}: {error}", name_of_path(path));
            Failure::new("cannot examine", why, "look at the device and the kernel's log")
        };
        match looking.and_then(Look::end).map_err(silent).flatten() {
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
