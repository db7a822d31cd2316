//! `mdspace explain`.

use std::process::ExitCode;

use mdspace_io::name_of_path;

use super::Outcome;
use crate::args::ExplainArgs;
use crate::{explain, output};

/// Says what the members are and what to type; exit 1 unless all of them just assemble.
pub(crate) fn run(args: &ExplainArgs) -> Outcome {
    let names: Vec<String> = args.members.iter().map(|path| name_of_path(path)).collect();
    let explanation = explain::explain(&names)?;
    if args.json {
        output::print_json(&explanation)?;
    } else {
        output::print(&explain::text(&explanation))?;
    }
    Ok(ExitCode::from(u8::from(!explanation.is_plain())))
}
