//! `mdspace stop`.

use std::thread;
use std::time::{Duration, Instant};

use super::Outcome;
use crate::args::{ArrayName, StopArgs};
use crate::config::Config;
use crate::control::client::{ANSWERS_WITHIN, Client, ENDS_WITHIN};
use crate::control::{Reply, Request};
use crate::failure::{Code, Failure};
use crate::output;
use crate::report::{FrontReport, ServedReport};
use crate::run_dir::RunDir;

/// How long an array may take to stop. Its clients have a minute to end, its writes their deadlines, its
/// members and lanes a minute each. What takes longer may have no end: the order stands.
const STOPS_WITHIN: Duration = Duration::from_secs(240);

/// Between two looks whether programs of this host have let go of it.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Stops an array.
pub(crate) fn run(args: &StopArgs) -> Outcome {
    let name = &args.name;
    let stopped = match args.force_after {
        None => stop(name, How { force: args.force, ..How::default() })?,
        Some(seconds) => {
            wait_for_this_host(name, Duration::from_secs(seconds))?;
            match stop(name, How { force: true, ..How::default() }) {
                // systemd runs this after any other stop, too.
                Err(failure) if failure.code == Code::NoArray => Stopped::default(),
                stopped => stopped?,
            }
        }
    };
    output::end(&stopped.notes, Ok(()))
}

/// How an array is stopped.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct How {
    /// Its clients are disconnected.
    pub(super) force: bool,
    /// It starts again at once, and says how it was.
    pub(super) restarts: bool,
}

/// Waits until nothing on this host uses the array, but no longer than `patience`. Where the host is shut down, file
/// systems are unmounted and programs stopped at the same time.
fn wait_for_this_host(name: &ArrayName, patience: Duration) -> Result<(), Failure> {
    let until = Instant::now() + patience;
    let run_dir = RunDir::open_of(name)?;
    let mut told = Vec::new();
    while Instant::now() < until {
        let served = Client::connect_within(&run_dir, name, ANSWERS_WITHIN)
            .and_then(|mut client| client.served_with(true));
        let fronts = match served {
            Ok(ServedReport::Array(report)) => report.fronts,
            Ok(ServedReport::Device(report)) => report.fronts,
            // The stop says so.
            Err(failure) if failure.code == Code::NoArray => return Ok(()),
            // It is busy with a member, say. What uses it may use it still.
            Err(_) => {
                thread::sleep(LOOK_EVERY);
                continue;
            }
        };
        let is_here = |front: &&FrontReport| !front.address.starts_with("nbd:tcp:");
        let users: Vec<String> =
            fronts.iter().filter(is_here).flat_map(|front| front.clients.clone()).collect();
        if users.is_empty() {
            return Ok(());
        }
        let new = users.iter().filter(|user| !told.contains(*user));
        new.for_each(|user| output::print_aside(&format!("{name}: waits for its users: {user}")));
        told = users;
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// What an array said when it was stopped.
#[derive(Default)]
pub(super) struct Stopped {
    /// Lines for the user.
    pub(super) notes: Vec<String>,
    /// How it was, where it was to say so.
    pub(super) config: Option<Config>,
}

/// Stops an array; returns once its process has let go of the members.
pub(super) fn stop(name: &ArrayName, how: How) -> Result<Stopped, Failure> {
    let run_dir = RunDir::open_of(name)?;
    let How { force, restarts } = how;
    let client = Client::connect_within(&run_dir, name, STOPS_WITHIN);
    let mut client = client.map_err(|failure| match failure.code {
        // The usual advice is to start it.
        Code::NoArray => Failure { cure: of_none(&run_dir, name), ..failure },
        _ => by_kill(failure, force),
    })?;
    let reply = match client.ask(&Request::Stop { force, restarts }) {
        // Another order to stop came first, unless its socket says that it was killed.
        Err(_) if client.is_cut_off() && has_ended(&run_dir, name, client.pid()) => Reply::done(),
        reply => reply.map_err(|failure| by_kill(failure, force))?,
    };
    let unseen = |why: String| {
        let cure = format!("look for it with {}", look(client.pid()));
        Failure::of_silence(format!("stopped {name}, but its process does not end"), why, cure)
    };
    match run_dir.wait_until_process_gone(name, client.pid(), ENDS_WITHIN) {
        Ok(true) => {}
        Ok(false) => {
            return Err(unseen(format!("it was there for {} s more", ENDS_WITHIN.as_secs())));
        }
        Err(error) => return Err(unseen(error.to_string())),
    }
    match reply {
        Reply::Done { notes } => Ok(Stopped { notes, config: None }),
        Reply::Stopped { notes, config } => Ok(Stopped { notes, config: Some(*config) }),
        _ => Ok(Stopped::default()),
    }
}

/// What to do where no array of that name is to be stopped.
fn of_none(run_dir: &RunDir, name: &ArrayName) -> String {
    let nothing = "nothing is to be stopped: see `mdspace mdstat`";
    match run_dir.like(name) {
        Some(meant) => format!("if you mean {meant}, say so; else {nothing}"),
        None => nothing.to_owned(),
    }
}

/// Whether the process of an array ends, and not as one that was killed: that leaves its socket behind.
fn has_ended(run_dir: &RunDir, name: &ArrayName, process: Option<i32>) -> bool {
    let gone = run_dir.wait_until_process_gone(name, process, ENDS_WITHIN);
    gone.unwrap_or(false) && !run_dir.socket(name).exists()
}

/// By force, the user wants the array to end: a process that does not answer ends by a kill alone.
fn by_kill(failure: Failure, force: bool) -> Failure {
    if !force || !failure.is_of_silence() {
        return failure;
    }
    let cure = format!(
        "{}; to end it as a crash would, `kill -KILL` it: what was acknowledged is kept, and the next \
         assembly resyncs",
        failure.cure
    );
    Failure { cure, ..failure }
}

fn look(pid: Option<i32>) -> String {
    pid.map_or_else(|| "`ps`".to_owned(), |pid| format!("`ps -p {pid}`"))
}
