//! `mdspace save` and `restart`.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::Duration;

use super::{Outcome, stop};
use crate::args::{ArrayName, RestartArgs, SaveArgs};
use crate::config::{self, Config};
use crate::control::client::Client;
use crate::control::{Reply, Request};
use crate::failure::Failure;
use crate::output;
use crate::process::launch;
use crate::run_dir::{RunDir, Taken, Turn, Work};

/// Writes the configuration of an array as it is now.
pub(crate) fn run(args: &SaveArgs) -> Outcome {
    output::end(&write(&args.name, args.config.as_deref())?, Ok(()))
}

/// How long another `restart` may be looked at by others before this one is refused.
const RESTART_WAITS: Duration = Duration::from_millis(100);

/// How long others that save the array may take: as long as the array may take to answer.
const SAVE_WAITS: Duration = Duration::from_secs(30);

/// Writes it to `path`, or where `assemble` looks for it. Gives lines for the user.
pub(super) fn write(name: &ArrayName, path: Option<&Path>) -> Result<Vec<String>, Failure> {
    let run_dir = RunDir::open_of(name)?;
    let _turn = turn(&run_dir, name, Work::Save)?;
    write_all(&run_dir, name, path)
}

fn write_all(
    run_dir: &RunDir,
    name: &ArrayName,
    path: Option<&Path>,
) -> Result<Vec<String>, Failure> {
    let config = ask(run_dir, name)?.config;
    let saved = |path: &Path| format!("{name}: saved to {}", path.display());
    if let Some(path) = path {
        config.write(path)?;
        return Ok(vec![saved(path)]);
    }
    let path = config::new_path(name)?;
    config.write(&path)?;
    let left_to_do = config.array().map(|array| config::keep_from_md(name, array)).transpose()?;
    let left_to_do = left_to_do.flatten().into_iter().chain(config::passed_over(name));
    Ok([saved(&path)].into_iter().chain(left_to_do).collect())
}

/// Writes what was set to the configuration, and leaves the rest of that as it is. Where there is none, all is written.
/// Gives lines for the user.
pub(super) fn write_settings(name: &ArrayName, key: &str) -> Result<Vec<String>, Failure> {
    let run_dir = RunDir::open_of(name)?;
    let _turn = turn(&run_dir, name, Work::Save)?;
    let path = config::new_path(name)?;
    if !path.exists() {
        return write_all(&run_dir, name, None);
    }
    let now = ask(&run_dir, name)?.config;
    let old = Config::read(&path)?;
    if let Some(other) = old.array().filter(|array| Some(*array) != now.array()) {
        let what = format!("it was set, and not saved to {}", path.display());
        let why = format!("that is of array {other}");
        return Err(Failure::new(what, why, format!("write it anew: `mdspace save {name}`")));
    }
    // Whether it refuses writes may be by this start's words alone.
    let of_writes = if key == "array_state" { &now } else { &old };
    let &Config { readonly, refuse_writes, .. } = of_writes;
    // This process may not have read the file: what else it sets stays.
    let settings = old.settings.into_iter().chain(now.settings).collect();
    Config { settings, readonly, refuse_writes, ..old }.write(&path)?;
    Ok(vec![format!("{name}: saved to {}", path.display())])
}

/// What an array says of itself.
struct Told {
    config: Config,
    foreground: bool,
    tells_at_stop: bool,
}

fn ask(run_dir: &RunDir, name: &ArrayName) -> Result<Told, Failure> {
    let mut client = Client::connect(run_dir, name)?;
    match client.ask(&Request::Configuration)? {
        Reply::Configuration { config, foreground, tells_at_stop } => {
            Ok(Told { config: *config, foreground, tells_at_stop })
        }
        _ => Err(client.strange_answer()),
    }
}

/// No other command does this work on this array as long as the value lives.
pub(super) fn turn(run_dir: &RunDir, name: &ArrayName, work: Work) -> Result<Turn, Failure> {
    let (verb, does, patience) = match work {
        Work::Restart => ("restart", "restarts", RESTART_WAITS),
        Work::Save => ("save", "saves", SAVE_WAITS),
    };
    let what = format!("cannot {verb} {name}");
    match run_dir.take_turn(name, work, patience) {
        Ok(Ok(turn)) => Ok(turn),
        Ok(Err(Taken(holder))) => {
            let cure = "wait until that has ended, and try again";
            Err(Failure::new(what, format!("{holder} {does} it already"), cure))
        }
        Err(error) => {
            let folder = run_dir.path().display();
            let cure = format!("see to it that files can be written in {folder}");
            Err(Failure::new(what, error, cure))
        }
    }
}

/// Whether an array is as it was, though it was to stop: the order was refused, and it says how it is. One that has
/// not said in time that it stops may end yet, whatever else it says; one that says nothing may have been killed.
fn runs_on(stop: &Failure, says_how_it_is: impl FnOnce() -> bool) -> bool {
    !stop.is_of_silence() && says_how_it_is()
}

/// Stops an array and starts it again, with a new process: the same members, fronts and settings.
pub(crate) fn restart(args: &RestartArgs) -> Outcome {
    let name = &args.name;
    let run_dir = RunDir::open_of(name)?;
    let _turn = turn(&run_dir, name, Work::Restart)?;
    let Told { config, foreground, tells_at_stop } = ask(&run_dir, name)?;
    if foreground {
        let why = "its process stays in the foreground, and who started it would miss it";
        return Err(Failure::new(format!("cannot restart {name}"), why, "restart it there"));
    }
    // Left behind only where the array does not come up again: then it says how it was.
    let file = run_dir.path().join(format!("{name}.restart.toml"));
    config.write(&file).map_err(|failure| {
        let cure = format!(
            "see to it that {} can be written; or save it with --config=FILE, stop it, and assemble it from there",
            file.display()
        );
        Failure { cure, ..failure }
    })?;
    launch::ignore_interrupts();
    let how = stop::How { force: args.force, restarts: tells_at_stop };
    let stopped = stop::stop(name, how).map_err(|failure| {
        if runs_on(&failure, || ask(&run_dir, name).is_ok()) {
            drop(fs::remove_file(&file));
            return failure;
        }
        let cure = format!(
            "once it does not run, `mdspace assemble {name} --config={}` starts it as it was",
            file.display()
        );
        Failure { cure: format!("{}; {cure}", failure.cure), ..failure }
    })?;
    let mut notes = stopped.notes;
    // What was ordered since it was asked. It is stopped by now: without that it starts all the same.
    let at_stop = stopped.config.filter(|at_stop| *at_stop != config);
    let kept = at_stop.map_or(Ok(()), |at_stop| at_stop.write(&file));
    let kept = kept.map_err(|failure| Failure {
        what: format!("{name} was started as it was before its last orders"),
        why: format!("{}: {}", failure.what, failure.why),
        cure: format!("look at it with `mdspace detail {name}`, and give them again"),
        ..failure
    });
    let mut words: Vec<OsString> = ["assemble", name.as_str()].map(OsString::from).into();
    words.extend(args.run.then(|| "--run".into()));
    words.extend(["--config".into(), file.clone().into_os_string()]);
    let launched = launch::launch_with(name, &run_dir, words).map_err(|failure| {
        let cure = format!("then `mdspace assemble {name} --config={}`", file.display());
        Failure { cure: format!("{}; {cure}", failure.cure), ..failure }
    });
    let served = launched.and_then(|launched| {
        // It has done its work.
        drop(fs::remove_file(&file));
        launched.tell(&mut notes)
    });
    output::end(&notes, served.and(kept))
}

#[cfg(test)]
mod tests;
