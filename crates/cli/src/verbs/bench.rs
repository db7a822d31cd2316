//! `mdspace bench`.

use std::process::ExitCode;

use super::Outcome;
use crate::args::{BenchArgs, BenchRunArgs, BenchVerb, MemberSpec};
use crate::bench;
use crate::failure::Failure;
use crate::member_probe::{self, Probed, Purpose};
use crate::run_dir::RunDir;

pub(super) fn run(args: &mut BenchArgs) -> Outcome {
    match &mut args.verb {
        BenchVerb::Run(args) => {
            args.probed = look_first(args)?;
            bench::run(args)?;
        }
        BenchVerb::Limits(args) => bench::limits(args)?,
        BenchVerb::Published(args) => bench::published(args)?,
        BenchVerb::Peers(args) => bench::peers(args)?,
        BenchVerb::Fronts(args) => bench::fronts(args)?,
        BenchVerb::Rebuild(args) => bench::rebuild(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What the members hold is lost: as `create`, refuses what is in use and asks about what is not empty.
fn look_first(args: &BenchRunArgs) -> Result<Probed, Failure> {
    let purpose = Purpose::new_member("cannot measure");
    let parse = |word: &String| {
        let wrong = |why| {
            Failure::new(purpose.what(), format!("{word}: {why}"), "see `mdspace help member`")
        };
        word.parse().map_err(wrong)
    };
    let specs: Vec<MemberSpec> = args.member.iter().map(parse).collect::<Result<_, _>>()?;
    member_probe::check_all(specs.iter(), &RunDir::open()?, args.run, &purpose)
}
