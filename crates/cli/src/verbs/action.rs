//! `mdspace action`.

use clap::ValueEnum;

use super::{Outcome, wait};
use crate::args::{Action, ActionArgs, MemberSpec};
use crate::control::client::Client;
use crate::control::{Reply, Request};
use crate::failure::{Code, Failure};
use crate::output;
use crate::report::{ArrayReport, MismatchReport};
use crate::run_dir::RunDir;

/// Writes md's `sync_action`; with `--wait` returns at the end and says what was found; exit 2 when
/// something was left undone, 3 when it is not known which member is wrong.
pub(crate) fn run(args: &ActionArgs) -> Outcome {
    let mut client = Client::connect(&RunDir::open_of(&args.name)?, &args.name)?;
    let trust = args.trust.as_ref().map(MemberSpec::absolute).transpose()?;
    client.ask(&Request::Action {
        action: word(args.action),
        force_parity: args.force_parity,
        trust: trust.clone(),
        for_s: args.budget.map(|span| span.0.as_secs()),
    })?;
    let mut notes = Vec::new();
    let ended = match args.wait {
        true => end(args, trust.as_deref(), &mut client, &mut notes),
        false => Ok(()),
    };
    output::end(&notes, ended)
}

/// Waits for the end. Adds lines about what was found.
fn end(
    args: &ActionArgs,
    trust: Option<&str>,
    client: &mut Client,
    notes: &mut Vec<String>,
) -> Result<(), Failure> {
    wait::until_idle(client)?;
    let array = client.report()?.array;
    notes.push(format!("{}: mismatch_cnt {}", args.name, array.mismatch_cnt));
    if !matches!(args.action, Action::Check | Action::Repair) {
        return Ok(());
    }
    notes.extend(places(args, &array));
    wait::expect_last(&array, &word(args.action))?;
    match args.budget.filter(|_| array.sync.last_end.as_deref() == Some("interrupted")) {
        Some(_) => notes.extend(place_of_end(args, client)?),
        None => wait::expect_done(client, &["incomplete", "no-space", "interrupted"])?,
    }
    match !args.force_parity && is_open(&array, trust) {
        true => Err(undecidable(args, &array)),
        false => Ok(()),
    }
}

/// What a check or repair found, a line for each place.
fn places(args: &ActionArgs, array: &ArrayReport) -> Vec<String> {
    let found = &array.mismatches;
    let place = |place: &MismatchReport| format!("{}: {}", args.name, place.words(array));
    let mut lines: Vec<String> = found.first.iter().map(place).collect();
    let more = found.places.saturating_sub(found.first.len() as u64);
    lines.extend((more > 0).then(|| format!("{}: and {more} places more", args.name)));
    lines
}

/// Where the time was over, which is no failure.
fn place_of_end(args: &ActionArgs, client: &mut Client) -> Result<Option<String>, Failure> {
    let reply = client.ask(&Request::Get { key: Some("sync_min".into()) })?;
    let Reply::Values { values } = reply else { return Ok(None) };
    let sector = values.first().map_or("0", |(_, value)| value);
    Ok(Some(format!(
        "{}: ended at sector {sector}; the next {} with --for goes on there",
        args.name,
        word(args.action)
    )))
}

/// Whether there are places where it is not known which member is wrong, and the trusted one does not decide.
fn is_open(array: &ArrayReport, trust: Option<&str>) -> bool {
    let found = &array.mismatches;
    let trusted = array.members.iter().find(|member| Some(&*member.member) == trust);
    let Some(slot) = trusted.and_then(|member| member.slot) else { return found.undecidable > 0 };
    let open = |place: &MismatchReport| place.liar.is_none() && !place.slots.contains(&slot);
    // Of RAID10 what is not listed one by one may lie elsewhere: the next run tells.
    let listed = found.first.len() as u64 == found.places || array.level == "raid1";
    !listed || found.first.iter().any(open)
}

/// Where it is not known which member is wrong nothing was changed; the user may know better.
fn undecidable(args: &ActionArgs, array: &ArrayReport) -> Failure {
    let places = array.mismatches.undecidable;
    let noun = if places == 1 { "place" } else { "places" };
    let what = format!(
        "undecidable in {places} {noun}: it is not known which member is wrong, nothing was changed"
    );
    let repair = format!("mdspace action {} repair", args.name);
    let (why, cure) = match array.level.as_str() {
        "raid4" | "raid5" | "raid6" => (
            "one parity, or several liars, do not show which block is wrong",
            format!("believe the data, as md does: {repair} --force-parity"),
        ),
        _ => {
            let trust = concerned(array).into_iter();
            let trust: Vec<String> = trust.map(|who| format!("{repair} --trust={who}")).collect();
            (
                "no copy is outvoted by two others; swap and other short-lived data may differ \
                 without harm",
                format!(
                    "believe one copy: {}; or the first: {repair} --force-parity",
                    trust.join(", or ")
                ),
            )
        }
    };
    Failure::new(what, why, cure).with_code(Code::Undecidable)
}

/// The members of the undecidable places, in the order of slots.
fn concerned(array: &ArrayReport) -> Vec<String> {
    let open = || array.mismatches.first.iter().filter(|place| place.liar.is_none());
    let is_concerned = |slot| open().any(|place| place.slots.contains(&slot));
    let members = array.members.iter().filter(|member| member.slot.is_some_and(is_concerned));
    let mut members: Vec<_> = members.map(|member| (member.slot, member.member.clone())).collect();
    members.sort();
    members.into_iter().map(|(_, name)| name).collect()
}

fn word(action: Action) -> String {
    let value = action.to_possible_value().expect("no action is hidden");
    value.get_name().to_owned()
}
