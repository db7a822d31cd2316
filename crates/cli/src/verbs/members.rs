//! `mdspace add`, `re-add`, `remove`, `fail` and `replace`.

use std::path::Path;

use mdspace_format::Superblock;
use mdspace_io::path_of_name;

use super::{Outcome, ask};
use crate::args::{
    AddArgs, FailArgs, ForgettingArgs, MemberSpec, MembersArgs, RemoveArgs, ReplaceArgs,
};
use crate::control::Request;
use crate::control::client::Client;
use crate::failure::{Code, Failure};
use crate::member_probe::{self, Probed, Purpose, which_leads_to};
use crate::report::ArrayReport;
use crate::run_dir::RunDir;

/// Adds members, after a look at what they hold. One that was in this array is no surprise.
pub(crate) fn add(args: &AddArgs) -> Outcome {
    let MembersArgs { name, members } = &args.on;
    refuse_forgetting(args.forgetting, members, || format!("cannot add to {name}"))?;
    let run_dir = RunDir::open_of(name)?;
    let array = Client::connect(&run_dir, name)?.report()?.array;
    let purpose = Purpose::new_member(format!("cannot add to {name}"));
    let mut probed = Probed::default();
    for member in members {
        probed.add(look_at(member, &array, &run_dir, args.run, &purpose)?);
    }
    ask(name, &Request::Add { members: absolute(members)?, probed })
}

/// Asks before a new member is overwritten that holds something else.
fn look_at(
    member: &MemberSpec,
    array: &ArrayReport,
    run_dir: &RunDir,
    run: bool,
    purpose: &Purpose,
) -> Result<Probed, Failure> {
    // The array may hold it still. What has that name by now may be something else.
    let uuid = array.uuid.clone();
    let own = move |sb: &Superblock| sb.set_uuid.to_string() == uuid;
    match member {
        MemberSpec::Nbd(_) | MemberSpec::Multipath(_) => {
            member_probe::check_remote_unless(&member.absolute()?, run, purpose, own)?;
        }
        MemberSpec::Path(path) => {
            let names = array.members.iter().map(|known| path_of_name(&known.member));
            return match which_leads_to(path, &names.collect::<Vec<_>>()) {
                Some(_) => member_probe::check_held_unless(path, run, purpose, own),
                None => member_probe::check_unless(path, run_dir, run, purpose, own),
            };
        }
        MemberSpec::Ram { .. } | MemberSpec::Null(_) => {}
    }
    Ok(Probed::default())
}

/// Refuses members that keep no data, unless the user takes them.
fn refuse_forgetting<'a>(
    forgetting: ForgettingArgs,
    members: impl IntoIterator<Item = &'a MemberSpec>,
    what: impl FnOnce() -> String,
) -> Result<(), Failure> {
    match forgetting.refuses(members) {
        Some((why, cure)) => Err(Failure::new(what(), why, cure).with_code(Code::Usage)),
        None => Ok(()),
    }
}

/// Has a member replaced that still works.
pub(crate) fn replace(args: &ReplaceArgs) -> Outcome {
    let mut probed = Probed::default();
    let ReplaceArgs { name, member, .. } = args;
    let what = || format!("cannot replace {member} in {name}");
    refuse_forgetting(args.forgetting, &args.with, what)?;
    if let Some(with) = &args.with {
        let run_dir = RunDir::open_of(&args.name)?;
        let array = Client::connect(&run_dir, &args.name)?.report()?.array;
        let purpose = Purpose::known(what());
        probed = look_at(with, &array, &run_dir, args.run, &purpose)?;
    }
    let with = args.with.as_ref().map(MemberSpec::absolute).transpose()?;
    ask(&args.name, &Request::Replace { member: args.member.absolute()?, with, probed })
}

/// Brings members back by bitmap.
pub(crate) fn re_add(args: &MembersArgs) -> Outcome {
    ask(&args.name, &Request::ReAdd { members: absolute(&args.members)? })
}

/// Takes failed members and spares out.
pub(crate) fn remove(args: &RemoveArgs) -> Outcome {
    let members = args.members.iter().map(|member| match member {
        MemberSpec::Path(word) if word == Path::new("failed") => Ok("failed".to_owned()),
        member => member.absolute(),
    });
    ask(&args.name, &Request::Remove { members: members.collect::<Result<_, _>>()? })
}

/// Marks members as failed.
pub(crate) fn fail(args: &FailArgs) -> Outcome {
    let members = absolute(&args.on.members)?;
    ask(&args.on.name, &Request::Fail { members, force: args.force })
}

/// Members in the words that the serving process knows them by.
fn absolute(members: &[MemberSpec]) -> Result<Vec<String>, Failure> {
    members.iter().map(MemberSpec::absolute).collect()
}
