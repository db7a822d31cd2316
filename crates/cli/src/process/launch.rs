//! Starting a serving process that stays when the command returns.
//!
//! The command runs itself again as `mdspace __serve --run-dir=DIRECTORY VERB ...` with the same words. The new process
//! takes a session of its own, and says on its standard output, as one JSON line, whether the array
//! and every front answer. Only then does the command return 0. If the command dies while it waits,
//! the line cannot be said, and the new process stops what it has started.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdout, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::log;
use crate::args::ArrayName;
use crate::control::client::{ANSWERS_WITHIN, ENDS_WITHIN};
use crate::failure::Failure;
use crate::run_dir::RunDir;

/// The hidden verb under which a serving process starts.
pub(crate) const SERVING_VERB: &str = "__serve";

/// Between two looks whether a process has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Between two looks whether one that says nothing was stopped.
const LOOK_AT_STATE_EVERY: Duration = Duration::from_millis(100);

/// What a new serving process says of itself.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Readiness {
    /// The array and every front answer.
    Ready {
        /// Lines for the user.
        notes: Vec<String>,
        /// Settings of the configuration that could not be set.
        refused: Vec<String>,
    },
    /// It serves nothing and ends.
    Failed {
        /// Why.
        failure: Failure,
    },
}

/// What a serving process said when it was ready.
pub(crate) struct Launched {
    name: ArrayName,
    notes: Vec<String>,
    refused: Vec<String>,
}

impl Launched {
    /// Adds its notes. An error if it runs otherwise than its configuration says.
    pub(crate) fn tell(self, notes: &mut Vec<String>) -> Result<(), Failure> {
        notes.extend(self.notes);
        if self.refused.is_empty() {
            return Ok(());
        }
        let what = format!("{} is served, but not as its configuration says", self.name);
        let cure = format!("set what it should be with `mdspace set {}`", self.name);
        Err(Failure::new(what, self.refused.join("; "), cure))
    }
}

/// From now on no hang-up, interrupt or order to end stops this command: an array that it has stopped is to start again.
pub(crate) fn ignore_interrupts() {
    // A registered handler takes the place of the signal's effect. The command keeps it to its end.
    let ignored = Signals::new([SIGHUP, SIGINT, SIGTERM]);
    ignored.into_iter().for_each(std::mem::forget);
}

/// Starts a serving process with this command's own words; returns when it is ready.
pub(crate) fn launch(name: &ArrayName, run_dir: &RunDir) -> Result<Launched, Failure> {
    launch_with(name, run_dir, env::args_os().skip(1).collect())
}

/// The program as it runs, also where an update has replaced its file or taken that away.
pub(crate) fn this_program() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("mdspace");
    command
}

/// This program under a hidden verb, as a process that goes on when its starter is signalled or killed. It keeps no
/// folder of that one, and nothing of its environment.
pub(crate) fn second_process(verb: &str) -> Command {
    let mut command = this_program();
    command.arg(verb).current_dir("/").process_group(0).env_clear();
    command
}

/// Starts a serving process with the words of another command.
pub(crate) fn launch_with(
    name: &ArrayName,
    run_dir: &RunDir,
    words: Vec<OsString>,
) -> Result<Launched, Failure> {
    let cannot = |error: io::Error| {
        Failure::new(
            format!("cannot start a process for {name}"),
            error,
            "try --foreground, which needs none",
        )
    };
    let spinner = spinner(name);
    let mut child = this_program()
        .arg(SERVING_VERB)
        // Its user may have another first one by then, or by the environment.
        .arg("--run-dir")
        .arg(run_dir.path())
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log::open(name, run_dir).map_or_else(|_| Stdio::null(), Stdio::from))
        .spawn()
        .map_err(cannot)?;
    let said = child.stdout.take().expect("its output is piped");
    let heard = first_line(said, child.id());
    spinner.finish_and_clear();
    let line = match heard {
        Ok(Some(line)) => line,
        Ok(None) => return Err(stopped(name, child.id())),
        Err(error) => return Err(cannot(error)),
    };
    match serde_json::from_str(&line) {
        Ok(Readiness::Ready { notes, refused }) => {
            return Ok(Launched { name: name.clone(), notes, refused });
        }
        Ok(Readiness::Failed { failure }) => {
            // It says so before it ends: nothing is left running when this returns, but what the kernel keeps.
            let until = Instant::now() + ENDS_WITHIN;
            while child.try_wait().map_err(cannot)?.is_none() && Instant::now() < until {
                thread::sleep(LOOK_EVERY);
            }
            return Err(failure);
        }
        Err(_) => {}
    }
    let status = child.wait().map_err(cannot)?;
    let log = log::path(name, run_dir);
    Err(Failure::new(
        format!("cannot serve {name}"),
        format!("its process ended without a word ({status})"),
        format!("read {}, and report it", log.display()),
    ))
}

/// What a process says first; nothing, if it ends without a word. None: it has been stopped for a while.
pub(super) fn first_line(said: ChildStdout, process: u32) -> io::Result<Option<String>> {
    let (sender, heard) = channel();
    thread::Builder::new().name("launch".into()).spawn(move || {
        let mut line = String::new();
        let read = BufReader::new(said).read_line(&mut line);
        // Who listened may have lost its patience.
        let _ = sender.send(read.map(|_| line));
    })?;
    let mut stopped_since = None;
    loop {
        match heard.recv_timeout(LOOK_AT_STATE_EVERY) {
            Ok(line) => return line.map(Some),
            Err(RecvTimeoutError::Disconnected) => return Ok(Some(String::new())),
            Err(RecvTimeoutError::Timeout) if is_stopped(process) => {
                let since = *stopped_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= ANSWERS_WITHIN {
                    return Ok(None);
                }
            }
            Err(RecvTimeoutError::Timeout) => stopped_since = None,
        }
    }
}

/// Whether a process was stopped by a signal, or by who traces it.
fn is_stopped(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The state follows the name, which stands in parentheses and may hold any character.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 't']))
}

fn stopped(name: &ArrayName, process: u32) -> Failure {
    let why = format!("process {process} was stopped at its start, and is stopped still");
    let cure = format!(
        "`kill -CONT {process}` lets it go on: it lets go of the members then, for no command waits for it; then try \
         again"
    );
    Failure::of_silence(format!("the process that is to serve {name} does not answer"), why, cure)
}

/// Tells the command that waits. An error means that it is gone.
pub(crate) fn say(readiness: &Readiness) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    let mut line = serde_json::to_string(readiness)?;
    line.push('\n');
    stdout.write_all(line.as_bytes())?;
    stdout.flush()
}

/// Leaves the terminal and the session of the command that started this process.
pub(crate) fn detach() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(())
}

/// Lets go of what the process was started with: its folder, and the pipe to the command.
pub(crate) fn settle_down() -> io::Result<()> {
    env::set_current_dir("/")?;
    rustix::stdio::dup2_stdout(File::options().write(true).open("/dev/null")?)?;
    Ok(())
}

fn spinner(name: &ArrayName) -> ProgressBar {
    let spinner = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{spinner} starting {msg} ({elapsed})");
    spinner.set_style(style.expect("the template is well formed"));
    spinner.set_message(name.to_string());
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}
