//! `mdspace zero-superblock`.

use std::path::Path;
use std::process::ExitCode;

use mdspace_io::name_of_path;

use super::Outcome;
use crate::args::ZeroSuperblockArgs;
use crate::erasure::erase_superblocks;
use crate::failure::Failure;
use crate::member_probe::{self, look};
use crate::output;
use crate::run_dir::RunDir;

/// Overwrites every md superblock of the members with zeroes. Data stay as they are.
pub(crate) fn run(args: &ZeroSuperblockArgs) -> Outcome {
    let what = "cannot erase superblocks";
    let members: Vec<&Path> = args.members.iter().map(AsRef::as_ref).collect();
    for held in member_probe::hold_and_ask(&members, &RunDir::open()?, args.run, what)? {
        let member = held.path().to_path_buf();
        let erased = look(name_of_path(&member), what, move |_| erase_superblocks(held.file()))?;
        let erased = erased.map_err(|error| {
            let why = format!("{}: {error}", name_of_path(&member));
            Failure::new(what, why, "check the rights and the device, then try again")
        })?;
        if erased == 0 {
            let why = format!("{} has no md superblock", name_of_path(&member));
            return Err(Failure::new(what, why, "see `mdspace examine` for what it holds"));
        }
        output::print_line(&format!("{}: {erased} superblock(s) erased", name_of_path(&member)))?;
    }
    Ok(ExitCode::SUCCESS)
}
