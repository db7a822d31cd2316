//! `mdspace wait`, and the waiting of other verbs.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::Outcome;
use crate::args::ArrayName;
use crate::control::client::Client;
use crate::failure::{Code, Failure};
use crate::report::{ArrayReport, MemberReport, SyncReport};
use crate::run_dir::RunDir;

/// Time between two looks at the array.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Looks that a task gets to begin.
const BEGIN_LOOKS: u32 = 15;

/// Exit code of a wait for an array that does not run, or does not answer.
const EXIT_UNKNOWN: u8 = 4;

/// Waits for the end of what runs; exit 2 when it, or the last resync or rebuild before, left something undone.
pub(crate) fn run(name: &ArrayName) -> Outcome {
    let unknown = |failure: Failure| failure.with_exit_code(EXIT_UNKNOWN);
    let mut client = Client::connect(&RunDir::open_of(name)?, name).map_err(unknown)?;
    let waited = until_idle(&mut client)?;
    // The user did not wait for a check that ended before.
    if waited || matches!(&*client.report()?.array.sync.last_action, "resync" | "recover") {
        expect_done(&mut client, &["incomplete", "no-space"])?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Fails, with what was left, where the last task ended in one of these ways.
pub(crate) fn expect_done(client: &mut Client, undone: &[&str]) -> Result<(), Failure> {
    let report = client.report()?;
    let sync = &report.array.sync;
    let Some(end) = sync.last_end.clone().filter(|end| undone.contains(&end.as_str())) else {
        return Ok(());
    };
    let (why, cure) = match end.as_str() {
        "incomplete" if report.array.doubted.sectors > 0 => (
            sync.skipped.words().unwrap_or_else(|| "some of it could not be done".to_owned()),
            "parity there may be half-written after a crash: write the blocks anew, or take what parity \
             says with `mdspace accept-doubt`",
        ),
        "interrupted" => {
            ("it was told to end, or a member failed or came".to_owned(), "start it again")
        }
        "no-space" => (
            report
                .array
                .space_words()
                .unwrap_or_else(|| "there is no space behind a member".into()),
            "make room below the member; it is tried again every half a minute",
        ),
        _ => (
            sync.skipped.words().unwrap_or_else(|| "some of it could not be done".to_owned()),
            "what is listed can be neither read nor computed: replace the member that cannot read it",
        ),
    };
    let task = if sync.last_action == "recover" { "rebuild" } else { &*sync.last_action };
    let what = format!("the {task} did not do all");
    Err(Failure::new(what, why, cure).with_code(Code::Undone))
}

/// Fails where the last task was another one: a member has failed or come, and the task was not begun anew after that.
pub(crate) fn expect_last(array: &ArrayReport, action: &str) -> Result<(), Failure> {
    let last = &*array.sync.last_action;
    if last == action {
        return Ok(());
    }
    let what = format!("the {action} did not do all");
    let why = format!("a member failed or came, and a {last} ran after that");
    Err(Failure::new(what, why, "start it again").with_code(Code::Undone))
}

/// Waits until no sync task runs, with a bar on a terminal; says whether one did.
pub(crate) fn until_idle(client: &mut Client) -> Result<bool, Failure> {
    let Some(mut sync) = begun(client)? else { return Ok(false) };
    let bar = ProgressBar::new(sync.total_sectors);
    let style = ProgressStyle::with_template("{msg:>10} [{bar:40}] {percent:>3}%  {prefix}");
    bar.set_style(style.expect("the template is well formed").progress_chars("=>."));
    while sync.runs() {
        show(&bar, &sync);
        thread::sleep(LOOK_EVERY);
        sync = client.report()?.array.sync;
    }
    bar.finish_and_clear();
    Ok(true)
}

/// The task that runs; none if none does. One that is about to begin is waited for: between a
/// failure and the rebuild onto a spare lie superblock writes.
fn begun(client: &mut Client) -> Result<Option<SyncReport>, Failure> {
    for _ in 0..BEGIN_LOOKS {
        let array = client.report()?.array;
        if array.sync.runs() {
            return Ok(Some(array.sync));
        }
        if !is_about_to_rebuild(&array) {
            break;
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(None)
}

fn is_about_to_rebuild(array: &ArrayReport) -> bool {
    let takes_writes = matches!(array.array_state.as_str(), "clean" | "active");
    let spare = array.members.iter().any(MemberReport::is_spare);
    takes_writes && array.degraded > 0 && array.sync.action == "idle" && spare
}

fn show(bar: &ProgressBar, sync: &SyncReport) {
    bar.set_length(sync.total_sectors);
    bar.set_position(sync.completed_sectors);
    bar.set_message(sync.action.clone());
    bar.set_prefix(format!("{} MiB/s a member", sync.speed_kib_s >> 10));
}

#[cfg(test)]
mod tests;
