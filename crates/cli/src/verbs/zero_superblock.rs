//! `mdspace zero-superblock`.

use std::path::Path;

use mdspace_io::name_of_path;

use super::Outcome;
use crate::args::ZeroSuperblockArgs;
use crate::erasure::erase_superblocks;
use crate::failure::Failure;
use crate::member_probe::{self, Held, Purpose, look};
use crate::output;
use crate::run_dir::RunDir;

/// Overwrites every md superblock of the members with zeroes. Data stay as they are.
pub(crate) fn run(args: &ZeroSuperblockArgs) -> Outcome {
    let what = "cannot erase superblocks";
    let members: Vec<&Path> = args.members.iter().map(AsRef::as_ref).collect();
    let held =
        member_probe::hold_and_ask(&members, &RunDir::open()?, args.run, &Purpose::known(what))?;
    let mut notes = Vec::new();
    let ended = held.into_iter().try_for_each(|member| {
        notes.push(erase(member, what)?);
        Ok(())
    });
    output::end(&notes, ended)
}

/// Gives a line for the user.
fn erase(held: Held, what: &str) -> Result<String, Failure> {
    let name = name_of_path(held.path());
    let erased = look(&name, what, move |_| erase_superblocks(held.file()))?;
    let erased = erased.map_err(|error| {
        let why = format!("{name}: {error}");
        Failure::new(what, why, "check the rights and the device, then try again")
    })?;
    match erased {
        0 => {
            let why = format!("{name} has no md superblock");
            Err(Failure::new(what, why, "see `mdspace examine` for what it holds"))
        }
        _ => Ok(format!("{name}: {erased} superblock(s) erased")),
    }
}
