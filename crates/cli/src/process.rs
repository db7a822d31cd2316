//! The process that serves one array: lanes, the engine's array, fronts and the control socket.
//!
//! A crash takes down one array, and systemd can own the process. The verbs talk to it through its
//! control socket; nothing else is shared.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use crate::args::create::ServingArgs;
use crate::args::member::MemberOrMissing;
use crate::args::{ArrayName, AssembleArgs, CreateArgs, MemberSpec};
use crate::config;
use crate::control::server::Listener;
use crate::failure::Failure;
use crate::member_probe::Purpose;
use crate::output;
use crate::report::{ArrayReport, Report, SCHEMA, VERSION};
use crate::run_dir::{NameLock, RunDir};
use crate::udev;

mod answers;
mod array;
mod changes;
mod created;
pub(crate) mod decided;
mod descriptors;
mod ending;
pub(crate) mod fronts;
mod hung_paths;
pub(crate) mod journal;
mod keeper;
pub(crate) mod launch;
mod log;
mod members;
pub(crate) mod multipath;
mod neighbours;
mod places;
mod reclaim;
mod recorder;
mod rotating;
mod saved;
mod scrub;
mod spares;
mod state_dir;
mod systemd;
mod under_way;
mod unproved;

use array::ServedArray;
pub(crate) use array::{cure_of, words_of_doubt};
pub(crate) use created::check as check_words;
use descriptors::Needs;
pub(crate) use descriptors::paths_of;
use ending::{Ending, Served};
use fronts::{Fronts, Prepared};
use launch::Readiness;
use recorder::Recorder;
use saved::Saved;
use scrub::Scrub;
use spares::SpareGroup;
use under_way::UnderWay;

/// How long clients and members may take to finish what is under way at a stop.
const STOP_PATIENCE: Duration = Duration::from_secs(60);

/// What the process is to serve.
pub(crate) enum Task {
    /// A new array.
    Create(Box<CreateArgs>),
    /// One that is there.
    Assemble(Box<AssembleArgs>),
}

impl Task {
    pub(crate) fn name(&self) -> &ArrayName {
        match self {
            Self::Create(args) => &args.name,
            Self::Assemble(args) => args.name(),
        }
    }

    pub(crate) fn serving(&self) -> &ServingArgs {
        match self {
            Self::Create(args) => &args.serving,
            Self::Assemble(args) => &args.serving,
        }
    }

    /// Names of what was left out before assembly.
    fn left_out(&self) -> impl Iterator<Item = String> {
        let left_out = match self {
            Self::Create(_) => &[][..],
            Self::Assemble(args) => &args.left_out,
        };
        left_out.iter().map(|left_out| left_out.member.clone())
    }

    /// What serving it takes.
    fn needs(&self) -> Result<Needs, Failure> {
        let members: Vec<&MemberSpec> = match self {
            Self::Create(args) => args.members.iter().filter_map(MemberOrMissing::member).collect(),
            Self::Assemble(args) => args.members.iter().collect(),
        };
        let names: Vec<String> =
            members.into_iter().map(MemberSpec::absolute).collect::<Result<_, _>>()?;
        let serving = self.serving();
        let names = names.iter().map(String::as_str);
        Ok(Needs::new(serving.lanes, names, serving.fronts().count()))
    }

    /// What did not happen where it fails.
    fn what(&self) -> String {
        self.purpose().what().to_owned()
    }

    /// What its members are wanted for.
    fn purpose(&self) -> Purpose {
        match self {
            Self::Create(args) => Purpose::new_member(format!("cannot create {}", args.name)),
            Self::Assemble(args) => Purpose::start(format!("cannot assemble {}", args.name())),
        }
    }
}

/// Where the process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seat {
    /// On the terminal or under systemd: logs to standard error.
    Foreground,
    /// On its own, started by another command that waits for it to be ready.
    Detached,
}

/// One array, served.
pub(crate) struct ServingProcess {
    name: ArrayName,
    array: ServedArray,
    fronts: Fronts,
    recorder: Recorder,
    ending: Ending,
    spares: SpareGroup,
    saved: Saved,
    scrub: Scrub,
    changes: UnderWay,
}

/// Serves until someone stops it. Nothing is left running when it returns.
pub(crate) fn serve(task: &Task, seat: Seat, run_dir: &RunDir) -> Result<ExitCode, Failure> {
    let name = task.name();
    let system = |error: io::Error| Failure::new(task.what(), error, "see `mdspace doctor`");
    let Some(lock) = run_dir.try_lock(name).map_err(system)? else {
        let cure = format!("stop it with `mdspace stop {name}`, or choose another name");
        return Err(Failure::new(task.what(), format!("an array {name} runs already"), cure));
    };
    let lock = Arc::new(lock);
    let served = seat.with_log(name, run_dir, |without_log| {
        serve_with_log(task, seat, run_dir, &lock, without_log)
    });
    ending::hold_to_the_end(lock, served.is_err());
    served
}

fn serve_with_log(
    task: &Task,
    seat: Seat,
    run_dir: &RunDir,
    lock: &Arc<NameLock>,
    without_log: Option<String>,
) -> Result<ExitCode, Failure> {
    let name = task.name();
    let system = |error: io::Error| Failure::new(task.what(), error, "see `mdspace doctor`");
    task.needs()?.provide(&task.what())?;
    let signals = ending::signals().map_err(system)?;
    let fronts = task
        .serving()
        .fronts()
        .map(|front| Prepared::new(&front, name, run_dir))
        .collect::<Result<Vec<_>, _>>()?;
    let (process, mut notes) = ServingProcess::start(task, run_dir)?;
    // Before anyone can write to the array, or ask what was set.
    let refused = process.set_all(&task.serving().settings);
    let _listener = match process.open_doors(fronts, run_dir, lock, &mut notes) {
        Ok(listener) => listener,
        Err(failure) => {
            process.end_early(lock)?;
            return Err(failure);
        }
    };
    notes.extend(without_log);
    refused.iter().for_each(|line| tracing::error!("{line}"));
    notes.iter().for_each(|note| tracing::info!("{note}"));
    process.keep_from_md(run_dir);
    if let Err(error) = seat.say_ready(notes, refused) {
        tracing::warn!("nobody waits for {name} any more: {error}");
        process.end_early(lock)?;
        return Ok(ExitCode::FAILURE);
    }
    ending::stop_on(process.clone(), signals).map_err(system)?;
    process.ending.wait();
    process.spares.wait_for_moves();
    process.ending.leave_name(lock);
    Ok(ExitCode::SUCCESS)
}

impl Seat {
    /// Serves with a log, which ends with it. `serve` gets a note for the user where there is none. The log has the first
    /// thread: before it the process stands apart from those that wait for its devices.
    fn with_log(
        self,
        name: &ArrayName,
        run_dir: &RunDir,
        serve: impl FnOnce(Option<String>) -> Result<ExitCode, Failure>,
    ) -> Result<ExitCode, Failure> {
        let apart = reclaim::stand_apart();
        let (_log, without_log) = match self {
            Self::Foreground => (log::to_stderr(), None),
            Self::Detached => log::to_file(name, run_dir),
        };
        reclaim::tell(&apart);
        let served = serve(without_log);
        if let (Err(failure), Self::Detached) = (&served, self) {
            // The command that started it may be gone: then the failure stands in the log alone.
            tracing::error!("{failure}");
        }
        served
    }

    fn say_ready(self, notes: Vec<String>, refused: Vec<String>) -> io::Result<()> {
        match self {
            Self::Foreground => {
                // The log has them too: a closed output stops no array.
                if let Err(failure) = notes.iter().try_for_each(|note| output::print_line(note)) {
                    tracing::warn!("{failure}");
                }
                // Who cannot be told ends it, if that matters to them.
                if let Err(error) = systemd::ready() {
                    tracing::warn!(
                        "systemd cannot be told at NOTIFY_SOCKET that the array is ready: {error}"
                    );
                }
                Ok(())
            }
            Self::Detached => {
                launch::say(&Readiness::Ready { notes, refused })?;
                launch::settle_down()
            }
        }
    }
}

impl ServingProcess {
    fn start(task: &Task, run_dir: &RunDir) -> Result<(Arc<Self>, Vec<String>), Failure> {
        let (array, mut notes) = ServedArray::start(task, run_dir)?;
        let new = matches!(task, Task::Create(_));
        let (recorder, note) = Recorder::open(task.name(), run_dir, new);
        notes.extend(note);
        let left_out = array.left_out();
        let process = Self {
            name: task.name().clone(),
            recorder,
            fronts: Fronts::default(),
            array,
            ending: Ending::default(),
            spares: SpareGroup::new(run_dir.clone()),
            saved: Saved::new(task.serving()),
            scrub: Scrub::new(log::path(task.name(), run_dir).with_extension("scrub")),
            changes: UnderWay::default(),
        };
        process.note_left_out(&left_out);
        let told: Vec<_> = left_out.into_iter().chain(task.left_out()).collect();
        notes.extend(process.missing_line(&told));
        Ok((Arc::new(process), notes))
    }

    /// Opens every front, then the control socket: who can ask finds the array served.
    fn open_doors(
        self: &Arc<Self>,
        fronts: Vec<Prepared>,
        run_dir: &RunDir,
        lock: &Arc<NameLock>,
        notes: &mut Vec<String>,
    ) -> Result<Arc<Listener>, Failure> {
        for front in fronts {
            notes.push(self.fronts.open(front, &self.name, &self.array)?);
        }
        notes.extend(self.fronts.release_left(&self.name, &self.array));
        let system = |error: io::Error| {
            let what = format!("cannot open the control socket of {}", self.name);
            Failure::new(what, error, "check the rights of the run directory")
        };
        let listener = Listener::bind(&run_dir.socket(&self.name)).map_err(system)?;
        listener.spawn(self.clone()).map_err(system)?;
        recorder::spawn(self).map_err(system)?;
        let listener = Arc::new(listener);
        keeper::spawn(self.clone(), lock, &listener).map_err(system)?;
        Ok(listener)
    }

    /// Sees to the descriptors of `members` and `fronts` more.
    fn provide_for(&self, members: &[String], fronts: usize, what: &str) -> Result<(), Failure> {
        let open = self.array.members().names();
        let names = open.iter().chain(members).map(String::as_str);
        let fronts = self.fronts.addresses().len() + fronts;
        Needs::new(self.saved.lanes(), names, fronts).provide(what)
    }

    /// Has udev keep the members from the kernel's md.
    fn keep_from_md(&self, run_dir: &RunDir) {
        let Ok(status) = self.array.status() else { return };
        // It stays when the array stops: that is when udev looks.
        if let Err(error) = udev::keep_from_md(run_dir.path(), &status.uuid.to_string(), &self.name)
        {
            tracing::warn!("udev may hand the members to the kernel's md at a stop: {error}");
        }
        if let Err(failure) = config::keep_from_md_if_saved(&self.name, status.uuid) {
            tracing::warn!("{}: {}", failure.what, failure.why);
        }
    }

    /// The array and this process.
    fn report(&self) -> Result<Report, Failure> {
        self.report_with(false)
    }

    /// The same. Who uses a device of its fronts and shows nowhere is found where it `claims` that for a moment.
    fn report_with(&self, claims: bool) -> Result<Report, Failure> {
        let mut array: ArrayReport = (&self.array.status()?).into();
        for member in &mut array.members {
            (member.major, member.minor) =
                self.array.members().places().device(&member.member).unzip();
        }
        Ok(Report {
            schema: SCHEMA,
            name: self.name.to_string(),
            array,
            multipath: self.array.members().multipath(),
            fronts: self.fronts.report(claims),
            workers: self.array.workers(),
            stripe_cache_bytes: self.array.stripe_cache_bytes(),
            pid: std::process::id(),
            version: VERSION.to_owned(),
        })
    }
}

impl Served for ServingProcess {
    fn name(&self) -> &ArrayName {
        &self.name
    }

    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn ending(&self) -> &Ending {
        &self.ending
    }

    fn fronts(&self) -> &Fronts {
        &self.fronts
    }

    fn stop_served(&self, force: bool) -> Vec<String> {
        self.keep_scrub();
        let on_its_way = self.spares.end_moves(force);
        let mut notes = self.array.stop(force);
        self.ending.note_members(self.array.members().table());
        notes.extend(on_its_way);
        notes
    }
}
