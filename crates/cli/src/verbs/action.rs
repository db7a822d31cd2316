//! `mdspace action`.

use std::process::ExitCode;

use clap::ValueEnum;

use super::{Outcome, wait};
use crate::args::{Action, ActionArgs};
use crate::control::Request;
use crate::control::client::Client;
use crate::output;
use crate::run_dir::RunDir;

/// Writes md's `sync_action`; with `--wait` returns at the end and says what was found; exit 2 when
/// something was left undone.
pub(crate) fn run(args: &ActionArgs) -> Outcome {
    let mut client = Client::connect(&RunDir::open()?, &args.name)?;
    client.ask(&Request::Action { action: word(args.action) })?;
    if args.wait {
        wait::until_idle(&mut client)?;
        let found = client.report()?.array.mismatch_cnt;
        output::print_line(&format!("{}: mismatch_cnt {found}", args.name))?;
        if matches!(args.action, Action::Check | Action::Repair) {
            wait::expect_done(&mut client, &["incomplete", "no-space", "interrupted"])?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn word(action: Action) -> String {
    let value = action.to_possible_value().expect("no action is hidden");
    value.get_name().to_owned()
}
