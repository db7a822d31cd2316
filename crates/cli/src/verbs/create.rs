//! `mdspace create` and `mdspace assemble`, and the process that they start.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use mdspace_io::OpenMode;

use super::{Outcome, arrival, save, scan, unit};
use crate::args::member::MemberOrMissing;
use crate::args::{AssembleArgs, CommandLine, CreateArgs, MemberSpec, MultipathArgs, Verb};
use crate::failure::Failure;
use crate::member_probe::{self, Purpose};
use crate::process::launch::{self, Readiness};
use crate::process::{self, Seat, Task};
use crate::run_dir::RunDir;
use crate::{config, output};

/// Makes an array, after a look at what its members hold.
pub(crate) fn create(mut args: Box<CreateArgs>) -> Outcome {
    let purpose = Purpose::new_member(format!("cannot create {}", args.name));
    // What no answer makes right is refused before a question is asked.
    process::check_words(&args, purpose.what())?;
    let members = args.members.iter().filter_map(MemberOrMissing::member);
    let probed = member_probe::check_all(members, &RunDir::open()?, args.run, &purpose)?;
    args.probed = probed;
    serve(Task::Create(args))
}

/// Assembles an array from free members.
pub(crate) fn assemble(mut args: Box<AssembleArgs>) -> Outcome {
    if args.scan {
        return scan::run(&args);
    }
    match args.run_after {
        Some(seconds) => arrival::wait(&mut args, Duration::from_secs(seconds.into()))?,
        None => arrival::complete(&mut args)?,
    }
    let run_dir = RunDir::open()?;
    let purpose = Purpose::start(format!("cannot assemble {}", args.name()));
    let mode = OpenMode { read_only: args.serving.readonly, ..OpenMode::RUN };
    let paths = args.members.iter().filter_map(|member| match member {
        MemberSpec::Path(path) => Some(path.as_path()),
        _ => None,
    });
    member_probe::check_free(paths, mode, &run_dir, &purpose)?;
    serve(Task::Assemble(args))
}

/// Serves a multipath device that stands alone.
pub(crate) fn multipath(args: &MultipathArgs) -> Outcome {
    if args.foreground {
        return process::multipath::serve(args, Seat::Foreground, &RunDir::open()?);
    }
    let mut notes = Vec::new();
    let served = launch::launch(&args.name, &RunDir::open()?)?.tell(&mut notes);
    output::end(&notes, served)
}

fn task_of(verb: Verb) -> Result<Task, Failure> {
    match verb {
        Verb::Create(args) => Ok(Task::Create(args)),
        Verb::Assemble(mut args) => {
            arrival::complete(&mut args)?;
            Ok(Task::Assemble(args))
        }
        _ => Err(Failure::new("nothing to serve", "no such task", "use mdspace create")),
    }
}

fn serve(task: Task) -> Outcome {
    if task.serving().foreground {
        return process::serve(&task, Seat::Foreground, &RunDir::open()?);
    }
    let launched = launch::launch_with(task.name(), &RunDir::open()?, words_of(&task))?;
    let mut notes = Vec::new();
    let served = launched.tell(&mut notes);
    let kept = served.and_then(|()| match (&task, task.serving().save) {
        (_, true) => keep(&task, &mut notes),
        (Task::Create(_), false) => {
            notes.extend(config::of_an_older_one(task.name()));
            Ok(())
        }
        (Task::Assemble(_), false) => Ok(()),
    });
    output::end(&notes, kept)
}

/// Saves it, for the next `assemble NAME` and for systemd.
fn keep(task: &Task, notes: &mut Vec<String>) -> Result<(), Failure> {
    let config = task.serving().config.as_deref();
    notes.extend(save::write(task.name(), config)?);
    // The unit reads the configuration only where `assemble NAME` looks for it.
    if config.is_none() { unit::give(task.name(), notes) } else { Ok(()) }
}

/// This command's own words, and what it has looked at.
fn words_of(task: &Task) -> Vec<OsString> {
    let mut words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Task::Create(args) = task {
        // Behind the verb: what follows `--` is no option.
        words.insert(1, format!("--probed={}", args.probed).into());
    }
    words
}

/// The other side of [`launch::launch`]: this process is the one that serves, in `run_dir`.
pub(crate) fn serving_process(run_dir: &Path, words: Vec<OsString>) -> Outcome {
    let words = std::iter::once("mdspace".into()).chain(words);
    let verb = CommandLine::parse_from(words).verb;
    let serve = || {
        // First: what ends the command that waits, as an interrupt or a lost terminal, must not end a `restart` in the middle.
        let stays = |error| Failure::new("cannot leave the terminal", error, "try --foreground");
        launch::detach().map_err(stays)?;
        let run_dir = RunDir::open_in(run_dir)?;
        match verb {
            Verb::Multipath(args) => process::multipath::serve(&args, Seat::Detached, &run_dir),
            verb => process::serve(&task_of(verb)?, Seat::Detached, &run_dir),
        }
    };
    let served = serve();
    match served {
        Ok(code) => Ok(code),
        Err(failure) => {
            drop(launch::say(&Readiness::Failed { failure }));
            Ok(ExitCode::FAILURE)
        }
    }
}
