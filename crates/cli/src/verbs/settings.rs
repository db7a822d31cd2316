//! `mdspace get` and `mdspace set`.

use std::process::ExitCode;

use super::{Outcome, done, save};
use crate::args::{GetArgs, MemberSpec, SetArgs};
use crate::control::client::Client;
use crate::control::{Reply, Request};
use crate::output;
use crate::run_dir::RunDir;

/// Prints one value, or every key with its value.
pub(crate) fn get(args: &GetArgs) -> Outcome {
    let mut client = Client::connect(&RunDir::open_of(&args.name)?, &args.name)?;
    let reply = client.ask(&Request::Get { key: args.key.clone() })?;
    if let Reply::Values { values } = reply {
        for (key, value) in values {
            match args.key {
                Some(_) => output::print_line(&value)?,
                None => output::print_line(&format!("{key} = {value}"))?,
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Changes one value.
pub(crate) fn set(args: &SetArgs) -> Outcome {
    let (key, mut value) = args.setting.clone();
    if key == "want_replacement" {
        value = MemberSpec::absolute_of(&value)?;
    }
    let mut notes = done(&args.name, &Request::Set { key: key.clone(), value })?;
    if args.save {
        notes.extend(save::write_settings(&args.name, &key)?);
    }
    output::end(&notes, Ok(()))
}
