//! `mdspace action`.

use std::process::ExitCode;

use clap::ValueEnum;

use super::members::as_absolute;
use super::{Outcome, wait};
use crate::args::{Action, ActionArgs};
use crate::control::Request;
use crate::control::client::Client;
use crate::failure::Failure;
use crate::output;
use crate::report::ArrayReport;
use crate::run_dir::RunDir;

/// Writes md's `sync_action`; with `--wait` returns at the end and says what was found; exit 2 when
/// something was left undone.
pub(crate) fn run(args: &ActionArgs) -> Outcome {
    let mut client = Client::connect(&RunDir::open()?, &args.name)?;
    client.ask(&Request::Action {
        action: word(args.action),
        force_parity: args.force_parity,
        trust: args.trust.as_ref().map(as_absolute).transpose()?,
    })?;
    if args.wait {
        wait::until_idle(&mut client)?;
        let found = client.report()?.array.mismatch_cnt;
        output::print_line(&format!("{}: mismatch_cnt {found}", args.name))?;
        if matches!(args.action, Action::Check | Action::Repair) {
            wait::expect_done(&mut client, &["incomplete", "no-space", "interrupted"])?;
            let array = client.report()?.array;
            for place in &array.mismatches.first {
                output::print_line(&format!("{}: {}", args.name, place.words(&array)))?;
            }
            let decided = args.force_parity || args.trust.is_some();
            if args.action == Action::Repair && array.mismatches.undecidable > 0 && !decided {
                return Err(undecidable(args, &array));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Where nobody can tell who lies, nothing was changed; the user may know better.
fn undecidable(args: &ActionArgs, array: &ArrayReport) -> Failure {
    let (name, places) = (&args.name, array.mismatches.undecidable);
    let what =
        format!("undecidable in {places} places: nobody can tell who lies, nothing was changed");
    let parity = matches!(array.level.as_str(), "raid4" | "raid5" | "raid6");
    let why = match parity {
        true => "one parity, or several liars, do not show which block is wrong",
        false => {
            "no copy is outvoted by two others; swap and other short-lived data may differ without harm"
        }
    };
    let trust = if parity { "" } else { ", or believe one: --trust=MEMBER" };
    let cure = format!("believe the data: mdspace action {name} repair --force-parity{trust}");
    Failure::new(what, why, cure).with_exit_code(EXIT_UNDECIDABLE)
}

/// Exit code where the evidence does not tell what is right.
const EXIT_UNDECIDABLE: u8 = 3;

fn word(action: Action) -> String {
    let value = action.to_possible_value().expect("no action is hidden");
    value.get_name().to_owned()
}
