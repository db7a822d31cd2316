//! What is printed of a failing run: what happened, what the disks hold, and how little of it still fails.

use std::path::PathBuf;

use mdspace_sim::regression::Regression;
use mdspace_sim::settings::Settings;
use mdspace_sim::shrink::{Budget, Shrunk, shrink};
use mdspace_sim::trace::Trace;
use mdspace_sim::trial::{self, Reason};

use super::Options;

/// Runs that a failure may take to shrink.
const MOST_RUNS: u64 = 500;

/// Steps of all these runs, in those of the failing one: as much work as so many of it.
const MOST_WORK: u64 = 400;

/// Prints a failure, and a smaller one of the same kind if there is one.
pub(super) fn print(settings: &Settings, reason: &Reason, steps: u64, options: &Options) {
    let (seed, broken) = (settings.seed, settings.broken);
    let broken = broken.map(|rule| format!(" --broken {}", rule.name())).unwrap_or_default();
    let replay = match &options.settings {
        Some(file) => format!("cargo run -p mdspace-sim -- --settings {}", file.display()),
        None => settings.replay(options.level) + &broken,
    };
    // In two pieces: other seeds may fail at the same time, and shrinking takes a while.
    let mut words = format!("seed {seed} FAILED: {}\n  {settings}\n", reason.words);
    words += &indented(&reason.disks);
    println!("{words}  replay: {replay}");
    if !options.no_shrink {
        print!("{}", shrunk(settings, reason, steps, options));
    }
}

/// Shrinks the run, writes what is left to a file, and says so.
fn shrunk(settings: &Settings, reason: &Reason, steps: u64, options: &Options) -> String {
    let (seed, limit) = (settings.seed, steps.saturating_mul(2).max(1_000));
    let run =
        |settings: &Settings| trial::run(settings.clone(), Trace::silent(), None, Some(limit));
    let budget = Budget { runs: MOST_RUNS, steps: limit.saturating_mul(MOST_WORK / 2) };
    let Shrunk { settings, removed, runs } = shrink(settings, budget, |smaller| {
        let trial = run(smaller);
        (trial.result.is_err_and(|other| other.kind == reason.kind), trial.steps)
    });
    let Err(reason) = run(&settings).result else {
        return "  it does not fail again in the same way: something besides its seed decides\n"
            .to_owned();
    };
    let mut words = format!(
        "  smaller than seed {seed}, after {runs} runs: {}\n  {}\n  seed {}, {settings}\n",
        if removed.is_empty() { "nothing could go".to_owned() } else { removed.join("; ") },
        reason.words,
        settings.seed
    );
    words += &indented(&reason.disks);
    let default = || PathBuf::from(format!("target/sim/{}.toml", settings.seed));
    let file = options.save.clone().unwrap_or_else(default);
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let made = folder.map_or(Ok(()), std::fs::create_dir_all).map_err(Into::into);
    let written = made.and_then(|()| Regression::new(reason.words, settings).write(&file));
    match written {
        Ok(()) => {
            words +=
                &format!("  replay: cargo run -p mdspace-sim -- --settings {}\n", file.display());
        }
        Err(error) => words += &format!("  {} was not written: {error}\n", file.display()),
    }
    words
}

fn indented(lines: &[String]) -> String {
    lines.iter().map(|line| format!("    {line}\n")).collect()
}
