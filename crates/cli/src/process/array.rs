//! The engine's array on this process' lanes, with its members.

use std::fmt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use mdspace_engine::array::{Action, CommandError, Reply};
use mdspace_engine::assembly::{LeftOut, Options, Reason, Refusal};
use mdspace_engine::backend::{MemberId, MemberInfo};
use mdspace_engine::neighbours::Neighbours;
use mdspace_engine::status::{ArrayStatus, MemberState, MemberStatus};
use mdspace_io::{AssembleError, Lanes, LanesConfig, OpenMode, RunningArray, WorkerCounts};

use super::members::{Closing, NotOpened, OpenMembers};
use super::multipath::told_at_once;
use super::neighbours::Disks;
use super::places::Places;
use super::{STOP_PATIENCE, Task, answers, created, decided};
use crate::args::MemberSpec;
use crate::failure::Failure;
use crate::member_probe::{Probed, Purpose};
use crate::report::WorkersReport;
use crate::run_dir::RunDir;

/// Open members, as the engine knows them.
pub(super) type Devices = Vec<(MemberId, MemberInfo)>;

/// A started array and its open members.
pub(super) struct ServedArray {
    /// None once the array is stopped.
    running: RwLock<Option<RunningArray>>,
    members: OpenMembers,
    /// Members that were named and could not be reached.
    unopened: Vec<String>,
    /// What there is to say of the end, once the members are let go. Held by the order that does so.
    ended: Mutex<Option<Vec<String>>>,
}

type OrderAnswer = Result<Reply, CommandError>;

/// How long the array may take to carry out an order. Its controller gives a device 10 s for each of three
/// steps of an `add`, and for superblocks and flushes its `write_deadline`, or 60 s where that has no end; an
/// order waits for those before it too.
const CARRIED_OUT_WITHIN: Duration = Duration::from_secs(150);

/// Why an order was not carried out, as far as that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OrderError {
    Refused(CommandError),
    /// The array has said nothing for so long, and may carry it out yet.
    Silent(Duration),
}

impl From<CommandError> for OrderError {
    fn from(error: CommandError) -> Self {
        Self::Refused(error)
    }
}

impl fmt::Display for OrderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => error.fmt(f),
            Self::Silent(time) => {
                write!(f, "the array has not answered for {} s", time.as_secs())
            }
        }
    }
}

impl OrderError {
    /// The failure of a verb.
    pub(super) fn failure(self, what: &str) -> Failure {
        let pid = std::process::id();
        match self {
            Self::Refused(error) => answers::refused(what, &error),
            Self::Silent(_) => Failure::of_silence(
                what,
                format!("{self}: it may still do it, once a member answers"),
                format!(
                    "read the log of process {pid}, and see which member hangs; what does not end by itself \
                     ends with `mdspace stop --force`, or as in a crash with `kill -KILL {pid}`: what was \
                     acknowledged is kept"
                ),
            ),
        }
    }
}

impl ServedArray {
    /// Opens the members, makes the array if it is new, assembles and starts it. The notes are for
    /// the user.
    pub(super) fn start(task: &Task, run_dir: &RunDir) -> Result<(Self, Vec<String>), Failure> {
        let members = OpenMembers::new(task.serving().fenced);
        let lanes = start_lanes(task, &members)?;
        let (mut notes, mut unopened) = (Vec::new(), Vec::new());
        let begun = Self::run(task, run_dir, &members, &lanes, &mut unopened, &mut notes);
        let running = match begun {
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
        let (running, ended) = (RwLock::new(Some(running)), Mutex::default());
        let array = Self { running, members, unopened, ended };
        let is_new = matches!(task, Task::Create(_));
        notes.push(format!("{}: {}", task.name(), started(&array.status()?, is_new)));
        let with_paths = array.members().paths();
        notes.extend(with_paths.iter().flat_map(|(_, paths)| told_at_once(paths)));
        Ok((array, notes))
    }

    fn run(
        task: &Task,
        run_dir: &RunDir,
        members: &OpenMembers,
        lanes: &Arc<Lanes>,
        unopened: &mut Vec<String>,
        notes: &mut Vec<String>,
    ) -> Result<RunningArray, Failure> {
        let devices = match task {
            Task::Create(args) => created::write(args, members, lanes, &task.purpose())?,
            Task::Assemble(args) => {
                let mode = OpenMode { read_only: args.serving.readonly, ..OpenMode::RUN };
                let names =
                    args.members.iter().map(MemberSpec::absolute).collect::<Result<Vec<_>, _>>()?;
                notes.extend(args.left_out.iter().map(words));
                let opened = open_those_there(&names, mode, members, args.run, &task.purpose())?;
                notes.extend(opened.1.iter().map(words));
                unopened.extend(opened.1.into_iter().map(|left_out| left_out.member));
                opened.0
            }
        };
        let places = members.places().clone();
        let running = assemble(task, lanes, devices, run_dir, places, notes)?;
        notes.extend(keep_decision(task, &running, run_dir));
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

    /// Has the array carry out an order, and waits for that, but not for ever.
    pub(super) fn order(&self, action: Action) -> Result<Reply, OrderError> {
        self.order_within(action, CARRIED_OUT_WITHIN)
    }

    /// Whether a device that is to be added leads to the array itself.
    pub(super) fn leads_back(&self, device: MemberId, info: &MemberInfo) -> bool {
        self.with_running(|running| running.leads_back(device, info)).unwrap_or_default()
    }

    /// Orders the array to take in a device that was opened for it. If the array refuses the device after the caller
    /// stopped waiting, the device is closed.
    pub(super) fn order_to_take(
        &self,
        action: Action,
        member: MemberId,
    ) -> Result<Reply, OrderError> {
        let closing = self.members.closing(member);
        let told = |answer: OrderAnswer| match answer {
            Ok(reply) => {
                closing.keep_open();
                (Ok(reply), None)
            }
            refused => (refused, Some(closing)),
        };
        let (answer, closing) = answered(&self.begin_order_as(action, told)?, CARRIED_OUT_WITHIN)?;
        closing.into_iter().for_each(Closing::keep_open);
        Ok(answer?)
    }

    fn order_within(&self, action: Action, patience: Duration) -> Result<Reply, OrderError> {
        Ok(answered(&self.begin_order(action)?, patience)??)
    }

    /// Where the answer to an order comes.
    fn begin_order(&self, action: Action) -> Result<Receiver<OrderAnswer>, CommandError> {
        self.begin_order_as(action, |answer| answer)
    }

    /// As [`begin_order`](Self::begin_order), in other words.
    fn begin_order_as<T: Send + 'static>(
        &self,
        action: Action,
        told: impl FnOnce(OrderAnswer) -> T + Send + 'static,
    ) -> Result<Receiver<T>, CommandError> {
        let (sender, answer) = channel();
        // Who orders may have lost patience when it comes.
        let ordered = self.with_running(|running| {
            running.order(action, move |answer| drop(sender.send(told(answer))));
        });
        ordered.ok_or(CommandError::Stopped).map(|()| answer)
    }

    /// Has `given` called when every lane has turned, or at once where no lane is at work.
    pub(super) fn sign_of_life(&self, given: Box<dyn FnOnce() + Send>) {
        // One who changes it is stopping the array.
        let running = self.running.try_read();
        match running.as_deref() {
            Ok(Some(running)) => running.lanes().when_all_turn(given),
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
                Err(OrderError::Refused(CommandError::NoRedundancy)) => {
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

    /// Members of the array that it did not start with.
    pub(super) fn left_out(&self) -> Vec<String> {
        let is_of_it = |reason: &Reason| {
            !matches!(reason, Reason::NoSuperblock | Reason::OtherArray | Reason::Replaced(_))
        };
        let names = |running: &RunningArray| {
            let left_out = running.left_out().iter().filter(|left_out| is_of_it(&left_out.reason));
            left_out.map(|left_out| left_out.member.clone()).collect::<Vec<_>>()
        };
        let of_it = self.with_running(names).unwrap_or_default();
        self.unopened.iter().cloned().chain(of_it).collect()
    }

    pub(super) fn status(&self) -> Result<ArrayStatus, Failure> {
        let failure = |why: String| {
            Failure::new("the array does not say how it is", why, "read the log of its process")
        };
        match self.order(Action::Status) {
            Ok(Reply::Status(status)) => Ok(*status),
            Ok(other) => Err(failure(format!("the answer was {other:?}"))),
            Err(OrderError::Refused(error)) => Err(failure(error.to_string())),
            Err(silent) => Err(silent.failure("the array does not say how it is")),
        }
    }

    /// Marks the array clean, lets go of the members, and ends the lanes. By force that takes seconds. Gives a
    /// line for each member that owes answers. Of several orders each is carried out when this returns.
    pub(super) fn stop(&self, force: bool) -> Vec<String> {
        // Other orders find the array until it has ended: it may wait for a member that is to be failed.
        // It ends when the array has ended, whether or not who ordered that still waits.
        let answer = self.begin_order(if force { Action::StopByForce } else { Action::Stop });
        let silent = match answer.map(|answer| answer.recv()) {
            Ok(Ok(Ok(Reply::Stopped { unanswered }))) => unanswered,
            // Where it is refused another order has stopped the array.
            _ => Vec::new(),
        };
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let note =
            |member| format!("{member} has not answered everything: the array is as after a crash");
        let mut notes: Vec<String> = silent.into_iter().map(note).collect();
        notes.extend(ended.get_or_insert_with(|| self.let_go()).iter().cloned());
        notes
    }

    /// Lets go of the members of an array that has ended, and ends the lanes. Gives lines for the user.
    fn let_go(&self) -> Vec<String> {
        let running = self.running.write().unwrap_or_else(PoisonError::into_inner).take();
        let Some(running) = running else { return Vec::new() };
        let lanes = running.lanes().clone();
        let mut owing = self.members.all();
        owing.retain(|id| running.owes_answers(*id));
        running.let_go();
        let deleted = self.members.deleted();
        self.members.close_all(STOP_PATIENCE, &owing);
        end_lanes(lanes);
        let gone = |name| format!("{name} was deleted while the array ran: its data are gone");
        deleted.into_iter().map(gone).collect()
    }
}

/// What an array answers in time.
fn answered<T>(answer: &Receiver<T>, patience: Duration) -> Result<T, OrderError> {
    answer.recv_timeout(patience).map_err(|error| match error {
        RecvTimeoutError::Timeout => OrderError::Silent(patience),
        RecvTimeoutError::Disconnected => CommandError::Stopped.into(),
    })
}

pub(super) fn end_lanes(lanes: Arc<Lanes>) {
    if let Some(Err(error)) = Arc::into_inner(lanes).map(|lanes| lanes.stop(STOP_PATIENCE)) {
        tracing::warn!("{error}");
    }
}

/// As mdadm: how many members of how many slots, and the spares. Also which slots are empty, and what a new array
/// rebuilds.
fn started(status: &ArrayStatus, is_new: bool) -> String {
    let (slots, lacks) = (status.raid_disks, status.degraded());
    let spare = |member: &&MemberStatus| {
        matches!(member.state, MemberState::Spare | MemberState::Recovering)
    };
    let spares: Vec<&MemberStatus> = status.members.iter().filter(spare).collect();
    let said = format!("started with {} of {slots} members", slots - lacks);
    match &spares[..] {
        [one] if is_new && lacks == 1 => {
            format!("{said}; {} is built from them, and until then no other may fail", one.name)
        }
        [] => said + &empty_slots(status),
        more if is_new && lacks == 1 => {
            let spares = more.len();
            format!(
                "{said}; one of {spares} spares is built from them, and until then no other may fail"
            )
        }
        [_] => format!("{said}, and 1 spare"),
        more => format!("{said}, and {} spares", more.len()),
    }
}

fn empty_slots(status: &ArrayStatus) -> String {
    let held = |slot: &u32| status.members.iter().any(|member| member.slot == Some(*slot));
    let empty: Vec<String> =
        (0..status.raid_disks).filter(|slot| !held(slot)).map(|slot| slot.to_string()).collect();
    match &empty[..] {
        [] => String::new(),
        [slot] => format!("; slot {slot} is empty"),
        slots => format!("; slots {} are empty", slots.join(" and ")),
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
    purpose: &Purpose,
) -> Result<Devices, Failure> {
    names.iter().map(|name| members.open(name, mode, probed, purpose)).collect()
}

/// As [`open_all`]. Where the array may start without missing members (`run`), those that cannot be reached are left out.
/// Gives what was left out.
fn open_those_there(
    names: &[String],
    mode: OpenMode,
    members: &OpenMembers,
    run: bool,
    purpose: &Purpose,
) -> Result<(Devices, Vec<LeftOut>), Failure> {
    let (mut devices, mut left_out, mut first) = (Vec::new(), Vec::new(), None);
    for name in names {
        match members.try_open(name, mode, &Probed::default(), purpose) {
            Ok(device) => devices.push(device),
            Err(NotOpened { failure, is_away: true }) if run => {
                let why = failure.why.strip_prefix(&format!("{name}: ")).unwrap_or(&failure.why);
                let reason = Reason::Unreadable(format!("cannot be opened: {why}"));
                left_out.push(LeftOut { member: name.clone(), reason });
                first.get_or_insert(failure);
            }
            Err(NotOpened { failure, is_away: true }) if !failure.cure.contains("--run") => {
                let cure = format!("{}; or start without it: --run", failure.cure);
                return Err(Failure { cure, ..failure });
            }
            Err(NotOpened { failure, .. }) => return Err(failure),
        }
    }
    match first {
        Some(failure) if devices.is_empty() => Err(failure),
        _ => Ok((devices, left_out)),
    }
}

/// With `--force` tries first without: what is accepted is named only where it had to be.
fn assemble(
    task: &Task,
    lanes: &Arc<Lanes>,
    devices: Devices,
    run_dir: &RunDir,
    places: Places,
    notes: &mut Vec<String>,
) -> Result<RunningArray, Failure> {
    let neighbours: Arc<dyn Neighbours> = Arc::new(Disks::new(run_dir.path(), places));
    let options = Options { neighbours: Some(neighbours), ..options(task, run_dir)? };
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

/// Keeps what the operator has decided for the next start. A look decides nothing.
fn keep_decision(task: &Task, running: &RunningArray, run_dir: &RunDir) -> Option<String> {
    if task.serving().readonly {
        return None;
    }
    let kept = decided::keep(running.decided(), run_dir.path());
    let error = kept.err()?;
    Some(format!("{}: the next start asks again what was decided: {error}", task.name()))
}

fn options(task: &Task, run_dir: &RunDir) -> Result<Options, Failure> {
    let serving = task.serving();
    let common = Options {
        read_only: serving.readonly || serving.refuse_writes,
        settings: serving.start_settings(),
        ..Options::default()
    };
    Ok(match task {
        // What was just made may start, whatever slots are empty.
        Task::Create(_) => Options { run: true, ..common },
        Task::Assemble(args) => Options {
            // What is only read keeps no member from coming later.
            run: args.run || serving.readonly,
            force: args.force,
            uuid: args.uuid,
            prefer: args.prefer.as_ref().map(MemberSpec::absolute).transpose()?,
            decided: decided::all(run_dir.path()),
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
        Refusal::Rejected { .. } => "find those; or go on with what is here: --prefer=MEMBER",
        Refusal::Duplicate { .. } => "leave one of them out",
        Refusal::NoneOfIt { .. } => {
            "name members of that array; where it was made anew, its configuration is of the old one: say \
             `mdspace assemble NAME MEMBER... --save`"
        }
        Refusal::TwoSuperblocks { .. } => "say which array is wanted: --uuid=UUID",
        Refusal::DifferentArrays { .. } => "leave one array's members out, or say --uuid=UUID",
        Refusal::Unsupported { .. } => "use the program that made the array",
        _ => "look at the members with `mdspace examine`; docs/recovery.md helps",
    }
}

#[cfg(test)]
mod tests;
