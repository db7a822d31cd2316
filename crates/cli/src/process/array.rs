//! The engine's array on this process' lanes, with its members.

use std::sync::{Arc, PoisonError, RwLock};

use mdspace_engine::array::{Action, CommandError, Reply};
use mdspace_engine::assembly::{LeftOut, Options, Refusal};
use mdspace_engine::backend::{MemberId, MemberInfo};
use mdspace_engine::lane::LaneId;
use mdspace_engine::neighbours::Neighbours;
use mdspace_engine::status::{ArrayStatus, MemberState, MemberStatus};
use mdspace_io::{AssembleError, Lanes, LanesConfig, OpenMode, RunningArray, WorkerCounts};

use super::members::OpenMembers;
use super::multipath::told_at_once;
use super::neighbours::Disks;
use super::{STOP_PATIENCE, Task, created};
use crate::args::MemberSpec;
use crate::failure::Failure;
use crate::member_probe::Probed;
use crate::report::WorkersReport;
use crate::run_dir::RunDir;

/// Open members, as the engine knows them.
pub(super) type Devices = Vec<(MemberId, MemberInfo)>;

/// A started array and its open members.
pub(super) struct ServedArray {
    /// None once the array is stopped.
    running: RwLock<Option<RunningArray>>,
    members: OpenMembers,
}

impl ServedArray {
    /// Opens the members, makes the array if it is new, assembles and starts it. The notes are for
    /// the user.
    pub(super) fn start(task: &Task, run_dir: &RunDir) -> Result<(Self, Vec<String>), Failure> {
        let members = OpenMembers::new(task.serving().fenced);
        let lanes = start_lanes(task, &members)?;
        let mut notes = Vec::new();
        let running = match Self::run(task, run_dir, &members, &lanes, &mut notes) {
            Ok(running) => running,
            Err(failure) => {
                // A member that closes with all answers leaves no record of what it may still do.
                let mut owing = members.all();
                owing.retain(|id| lanes.owe_answers(*id));
                members.close_all(STOP_PATIENCE, &owing);
                end_lanes(lanes);
                return Err(failure);
            }
        };
        members.have_started();
        let array = Self { running: RwLock::new(Some(running)), members };
        notes.push(format!("{}: {}", task.name(), started(&array.status()?)));
        let with_paths = array.members().paths();
        notes.extend(with_paths.iter().flat_map(|(_, paths)| told_at_once(paths)));
        Ok((array, notes))
    }

    fn run(
        task: &Task,
        run_dir: &RunDir,
        members: &OpenMembers,
        lanes: &Arc<Lanes>,
        notes: &mut Vec<String>,
    ) -> Result<RunningArray, Failure> {
        let devices = match task {
            Task::Create(args) => created::write(args, members, lanes, &task.what())?,
            Task::Assemble(args) => {
                let mode = OpenMode { read_only: args.serving.readonly, ..OpenMode::RUN };
                let names =
                    args.members.iter().map(MemberSpec::absolute).collect::<Result<Vec<_>, _>>()?;
                open_all(&names, mode, members, &Probed::default(), &task.what())?
            }
        };
        let running = assemble(task, lanes, devices, run_dir, notes)?;
        for left_out in running.left_out() {
            notes.push(words(left_out));
            members.find(&left_out.member).into_iter().for_each(|id| members.close(id));
        }
        Ok(running)
    }

    /// Uses the array, unless it is stopped.
    pub(super) fn with_running<T>(&self, work: impl FnOnce(&RunningArray) -> T) -> Option<T> {
        let running = self.running.read().unwrap_or_else(PoisonError::into_inner);
        running.as_ref().map(work)
    }

    /// Worker threads asked for and running.
    pub(super) fn workers(&self) -> WorkersReport {
        let counts = self.with_running(RunningArray::worker_counts);
        let report =
            |counts: WorkerCounts| WorkersReport { asked: counts.asked, running: counts.running };
        counts.map(report).unwrap_or_default()
    }

    /// Memory of the stripe cache.
    pub(super) fn stripe_cache_bytes(&self) -> usize {
        self.with_running(RunningArray::stripe_cache_bytes).unwrap_or_default()
    }

    pub(super) fn members(&self) -> &OpenMembers {
        &self.members
    }

    pub(super) fn order(&self, action: Action) -> Result<Reply, CommandError> {
        self.with_running(|running| running.command(action)).unwrap_or(Err(CommandError::Stopped))
    }

    /// Whether a device that is to be added leads to the array itself.
    pub(super) fn leads_back(&self, device: MemberId, info: &MemberInfo) -> bool {
        self.with_running(|running| running.leads_back(device, info)).unwrap_or_default()
    }

    /// Has `given` called on the lane of the array's owner, or at once where no lane is at work.
    pub(super) fn sign_of_life(&self, given: Box<dyn FnOnce() + Send>) {
        // One who changes it waits for orders, or is stopping the array.
        let running = self.running.try_read();
        match running.as_deref() {
            Ok(Some(running)) => running.lanes().run_on(LaneId(0), move |_, _| given()),
            _ => given(),
        }
    }

    /// Has `told` called when something may have happened to the array, or it is stopped.
    pub(super) fn watch(&self, told: impl FnOnce() + Send + 'static) {
        self.with_running(|running| running.order(Action::News, |_| told()));
    }

    /// Fails members that someone has cut shorter under the array.
    pub(super) fn fail_cut_members(&self) {
        for (name, member) in self.members.newly_cut() {
            tracing::error!("{name} is shorter than when it was opened: its data are lost");
            match self.order(Action::Fail { member, force: true }) {
                // Nothing can do without it. What a write made of its end would read as zeroes.
                Err(CommandError::NoRedundancy) => {
                    tracing::error!(
                        "{name} is closed: make it whole, and assemble the array again"
                    );
                    self.members.close(member);
                }
                Err(error) => tracing::warn!("{name} is not failed: {error}"),
                Ok(_) => {}
            }
        }
    }

    pub(super) fn status(&self) -> Result<ArrayStatus, Failure> {
        let failure = |why: String| {
            Failure::new("the array does not say how it is", why, "read the log of its process")
        };
        match self.order(Action::Status) {
            Ok(Reply::Status(status)) => Ok(*status),
            Ok(other) => Err(failure(format!("the answer was {other:?}"))),
            Err(error) => Err(failure(error.to_string())),
        }
    }

    /// Marks the array clean, lets go of the members, and ends the lanes. By force that takes seconds. Gives a
    /// line for each member that owes answers.
    pub(super) fn stop(&self, force: bool) -> Result<Vec<String>, Failure> {
        // Other orders find the array until it has ended: it may wait for a member that is to be failed.
        let stopped = self.with_running(|running| running.end(force));
        let running = self.running.write().unwrap_or_else(PoisonError::into_inner).take();
        let (Some(stopped), Some(running)) = (stopped, running) else { return Ok(Vec::new()) };
        let lanes = running.lanes().clone();
        let mut owing = self.members.all();
        owing.retain(|id| running.owes_answers(*id));
        running.let_go();
        let deleted = self.members.deleted();
        self.members.close_all(STOP_PATIENCE, &owing);
        end_lanes(lanes);
        let note =
            |member| format!("{member} has not answered everything: the array is as after a crash");
        let gone = |name| format!("{name} was deleted while the array ran: its data are gone");
        let deleted = deleted.into_iter().map(gone);
        let notes = stopped.map(|silent| silent.into_iter().map(note).chain(deleted).collect());
        notes.map_err(|error| {
            let cure = "the members stay as after a crash: assemble again, and check";
            Failure::new("the array did not stop cleanly", error, cure)
        })
    }
}

pub(super) fn end_lanes(lanes: Arc<Lanes>) {
    if let Some(Err(error)) = Arc::into_inner(lanes).map(|lanes| lanes.stop(STOP_PATIENCE)) {
        tracing::warn!("{error}");
    }
}

/// As mdadm: how many of how many, and who waits.
fn started(status: &ArrayStatus) -> String {
    let slots = status.raid_disks;
    let present = slots - status.degraded();
    let spare = |member: &&MemberStatus| {
        matches!(member.state, MemberState::Spare | MemberState::Recovering)
    };
    match status.members.iter().filter(spare).count() {
        0 => format!("started with {present} of {slots} members"),
        spares => format!("started with {present} of {slots} members, and {spares} spare"),
    }
}

fn start_lanes(task: &Task, members: &OpenMembers) -> Result<Arc<Lanes>, Failure> {
    let config = LanesConfig {
        count: task.serving().lanes.into(),
        members: members.table().clone(),
        ..LanesConfig::default()
    };
    Lanes::start(config)
        .map(Arc::new)
        .map_err(|error| Failure::new(task.what(), error, "see `mdspace doctor`"))
}

/// Opens all members before any of them is written to: two processes never get a half each.
pub(super) fn open_all(
    names: &[String],
    mode: OpenMode,
    members: &OpenMembers,
    probed: &Probed,
    what: &str,
) -> Result<Devices, Failure> {
    names.iter().map(|name| members.open(name, mode, probed, what)).collect()
}

/// With `--force` tries first without: what is accepted is named only where it had to be.
fn assemble(
    task: &Task,
    lanes: &Arc<Lanes>,
    devices: Devices,
    run_dir: &RunDir,
    notes: &mut Vec<String>,
) -> Result<RunningArray, Failure> {
    let neighbours: Arc<dyn Neighbours> = Arc::new(Disks::new(run_dir.path()));
    let options = Options { neighbours: Some(neighbours), ..options(task)? };
    let careful = Options { force: false, run: options.run || options.force, ..options.clone() };
    let first = RunningArray::assemble(lanes.clone(), devices.clone(), careful);
    let result = match first {
        Err(AssembleError { refusal, .. }) if options.force && refusal.yields_to_force() => {
            let forced = RunningArray::assemble(lanes.clone(), devices, options);
            notes.push(format!("{refusal}: started all the same"));
            let accepted = forced.as_ref().map_or(0, RunningArray::accepted_sectors);
            notes.extend((accepted > 0).then(|| words_of_doubt(accepted)));
            forced
        }
        result => result,
    };
    result.map_err(|error| {
        notes.extend(error.left_out.iter().map(words));
        notes.push(error.refusal.to_string());
        Failure::new(task.what(), notes.join("\n"), cure_of(&error.refusal))
    })
}

fn options(task: &Task) -> Result<Options, Failure> {
    let serving = task.serving();
    let common = Options {
        read_only: serving.readonly,
        settings: serving.start_settings(),
        ..Options::default()
    };
    Ok(match task {
        // What was just made may start, whatever slots are empty.
        Task::Create(_) => Options { run: true, ..common },
        Task::Assemble(args) => Options {
            run: args.run,
            force: args.force,
            uuid: args.uuid,
            prefer: args.prefer.as_ref().map(MemberSpec::absolute).transpose()?,
            ..common
        },
    })
}

/// What a forced start takes for right.
pub(crate) fn words_of_doubt(accepted_sectors: u64) -> String {
    let mib = accepted_sectors as f64 / 2048.0;
    format!("In {mib:.1} MiB of each member what is missing comes from parity that may be old")
}

fn words(left_out: &LeftOut) -> String {
    format!("{} {}: left out", left_out.member, left_out.reason)
}

/// What to do about an array that does not start.
pub(crate) fn cure_of(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Missing { .. } => "find them; or start without them: --run",
        Refusal::TooFew { .. } => "find the missing members; docs/recovery.md helps",
        Refusal::WentOnElsewhere { .. } => "find them; or go on with what is here: --force",
        Refusal::DirtyDegraded => "find the missing members; or take that risk: --force",
        Refusal::SplitBrain { .. } => "choose the half to go on with: --prefer=MEMBER",
        Refusal::Duplicate { .. } => "leave one of them out",
        Refusal::DifferentArrays { .. } => "leave one array's members out, or say --uuid=UUID",
        Refusal::Unsupported { .. } => "use the program that made the array",
        _ => "look at the members with `mdspace examine`; docs/recovery.md helps",
    }
}
