//! `mdspace bench`.

use std::path::Path;
use std::process::ExitCode;

use super::Outcome;
use crate::args::{BenchArgs, BenchRunArgs, BenchVerb, MemberSpec};
use crate::bench;
use crate::failure::Failure;
use crate::member_probe::{self, Purpose};
use crate::run_dir::RunDir;

pub(super) fn run(args: &BenchArgs) -> Outcome {
    match &args.verb {
        BenchVerb::Run(args) => {
            look_first(args)?;
            bench::run(args)?;
        }
        BenchVerb::Limits(args) => bench::limits(args)?,
        BenchVerb::Published(args) => bench::published(args)?,
        BenchVerb::Peers(args) => bench::peers(args)?,
        BenchVerb::Rebuild(args) => bench::rebuild(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What the members hold is lost: as `create`, refuses what is in use and asks about what is not empty.
fn look_first(args: &BenchRunArgs) -> Result<(), Failure> {
    let specs: Vec<MemberSpec> = args.member.iter().filter_map(|word| word.parse().ok()).collect();
    let paths = specs.iter().filter_map(|spec| match spec {
        MemberSpec::Path(path) => Some(path.as_path()),
        _ => None,
    });
    let paths: Vec<&Path> = paths.collect();
    let purpose = Purpose::new_member("cannot measure");
    member_probe::check(&paths, &RunDir::open()?, args.run, &purpose).map(drop)
}
