//! One run: users and troubles on one side, the model and the oracle on the other, the engine between.
//!
//! Within what the level bears no request may fail and nothing that was acknowledged may be lost.
//! Beyond it requests may fail, but a read that succeeds is right all the same.

mod atlas;
mod copies;
mod doubt;
mod finale;
mod lies;
mod operator;
mod plugs;
mod requests;
mod restart;
mod troubles;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use mdspace_engine::array::{BrokenHere, CommandError, Point};
use mdspace_engine::request::RequestError;
use mdspace_engine::time::Time;

use crate::disk::DiskIndex;
use crate::model::{Model, Violation};
use crate::oracle::{NotWhole, Remains};
use crate::process::{Process, StartError, create};
use crate::random::Random;
use crate::settings::{Happening, SLOWER, Settings, Trouble};
use crate::trace::Trace;
use crate::workload::{Ask, Grain, Workload};
use crate::world::{PATHS_GIVE_UP, Step, World};

use atlas::Atlas;
use doubt::HalfDone;
use operator::Operator;
use plugs::Plugs;
use requests::Pending;

/// A run under way.
pub struct Simulation {
    settings: Settings,
    world: Rc<World>,
    /// Empty only while the array is down.
    process: Option<Process>,
    model: Model,
    workload: Workload,
    /// Requests to come before those of the workload.
    backlog: VecDeque<Ask>,
    pending: Pending,
    atlas: Atlas,
    operator: Operator,
    /// Every disk in the machine.
    disks: Vec<DiskIndex>,
    /// Disks that left it and may come back, as they were.
    shelf: Vec<Shelved>,
    /// What becomes of disks when the array is down next.
    plugs: Plugs,
    random: Random,
    /// Requests of the workload still to come.
    requests_left: u64,
    next_happening: u64,
    /// The aim whose turn it is, and how often this process came to its point.
    aim: usize,
    point_reached: u64,
    /// The disk that it names.
    aimed_at: Option<DiskIndex>,
    /// What is to happen then, for the engine has come to the point.
    due: Option<(Time, Happening)>,
    /// When the last disk began to hang. Each may cost a request its deadline, one after the other.
    last_hang: Time,
    /// Until then users think.
    thinking_until: Time,
    /// They write nothing.
    only_read: bool,
    /// The array has lost more than it bears, and said so.
    broken: bool,
    /// The rule of the engine that is broken.
    _broken_here: Option<BrokenHere>,
    /// Whatever cannot be read now must be lost.
    judges_errors: bool,
    /// Places where members lied so far.
    lies: u64,
    half_done: HalfDone,
    /// As in [`Outcome`].
    reached: u128,
    next_look_at_held: Time,
    /// Steps of the world after which the run is taken for endless.
    most_steps: u64,
}

/// A disk that left the machine.
#[derive(Clone, Copy, Debug)]
struct Shelved {
    disk: DiskIndex,
    /// The one that came in its place.
    successor: DiskIndex,
}

/// What a run was, when nothing was wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The hash of its trace.
    pub trace_hash: u64,
    /// Lines of its trace.
    pub lines: u64,
    /// Requests that were answered.
    pub answered: u64,
    /// Requests that failed, as they may beyond what the level bears.
    pub failed: u64,
    /// Whether the oracle saw the array whole at the end.
    pub judged: bool,
    /// Places where members lied.
    pub lies: u64,
    /// The points of its orderings that the engine came to, a bit each.
    pub reached: u128,
}

/// What is wrong.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A read returned what it must not.
    #[error("a read of {sectors} sectors at {sector} is wrong: {violation}")]
    Wrong {
        /// Where the read began.
        sector: u64,
        /// How long it was.
        sectors: u64,
        /// What is wrong.
        violation: Violation,
    },
    /// A request failed that must not.
    #[error("request {tag}, {ask}, failed: {error}")]
    Request {
        /// Its tag.
        tag: u64,
        /// What it was.
        ask: String,
        /// The error.
        error: RequestError,
    },
    /// A command failed that must not.
    #[error("the command {command} failed: {error}")]
    Command {
        /// The command.
        command: String,
        /// The error.
        error: CommandError,
    },
    /// Something goes on for ever.
    #[error("{what} does not end")]
    Stuck {
        /// What.
        what: String,
    },
    /// It takes more steps than any run may.
    #[error("the run does not end")]
    Endless,
    /// Writes wait for the proof that earlier ones are over for longer than a fence takes to give it.
    #[error("after a path was lost a write was held back for {0:?}")]
    Held(Duration),
    /// An array that must start does not.
    #[error("the array does not start: {0}")]
    NoStart(#[from] StartError),
    /// A check counted what must not be there.
    #[error("a check found {sectors} sectors of mismatch")]
    Check {
        /// How many.
        sectors: u64,
    },
    /// A check does not name the liars, or a repair does not mend them and nothing else.
    #[error("a scrub {0}")]
    Scrub(String),
    /// The engine calls a member bad that is not.
    #[error("{disk} was failed without cause")]
    Kicked {
        /// The disk.
        disk: DiskIndex,
    },
    /// The disks do not make a whole array at the end.
    #[error("at the end the disks are not whole: {0}")]
    NotWhole(#[from] NotWhole),
    /// Parity or copies are wrong on the disks.
    #[error("at the end {sectors} sectors of redundancy on the disks are wrong")]
    Redundancy {
        /// How many.
        sectors: u64,
    },
    /// Of an array that is down redundancy is wrong in a place that no bitmap marks.
    #[error(
        "of what is left {sectors} sectors of redundancy are wrong that nothing marks, at {first} first"
    )]
    Unmarked {
        /// The first of them, as resync counts.
        first: u64,
        /// How many.
        sectors: u64,
    },
    /// The disks of an array that is down hold, or give, what they must not.
    #[error("what is left is wrong: {violation}, {}", whence(*at))]
    Left {
        /// What is wrong.
        violation: Violation,
        /// The disk and its sector that has it; none where it was computed.
        at: Option<(DiskIndex, u64)>,
    },
    /// A copy of the array, with one member lost, is not what the array is.
    #[error("on a copy without {without}, {what}")]
    Copy {
        /// The disk that is lost there.
        without: DiskIndex,
        /// What is wrong.
        what: String,
    },
    /// A block cannot be read, though members in sync have or give it.
    #[error("at the end sector {sector} cannot be read, and it is there {}", whence(*at))]
    Unread {
        /// Sector of the array.
        sector: u64,
        /// A disk that has it, and where; none where others give it.
        at: Option<(DiskIndex, u64)>,
    },
    /// The disks hold what they must not.
    #[error("at the end the disks hold wrong data: {0}")]
    Platter(Violation),
}

impl Failure {
    /// What kind of failure it is: its name.
    pub fn kind(&self) -> String {
        format!("{self:?}").chars().take_while(char::is_ascii_alphanumeric).collect()
    }

    /// The sector of the array that it is about.
    fn sector(&self, remains: &Remains<'_>) -> Option<u64> {
        match self {
            Self::Wrong { violation, .. }
            | Self::Left { violation, .. }
            | Self::Platter(violation) => Some(violation.sector),
            Self::Unread { sector, .. } => Some(*sector),
            Self::Unmarked { first, .. } => Some(remains.array_sector(*first)),
            _ => None,
        }
    }
}

fn whence(at: Option<(DiskIndex, u64)>) -> String {
    match at {
        Some((disk, sector)) => format!("on {disk} in its sector {sector}"),
        None => "as the others give it".to_owned(),
    }
}

/// A request that is not answered in this time, on the simulated clock, is stuck. Beyond what the level
/// bears it may meet many hung disks, one after another.
const PATIENCE: Duration = Duration::from_secs(120);
const PATIENCE_BEYOND: Duration = Duration::from_secs(1200);

/// Steps of the world that no run needs: the longest has some millions.
const MOST_STEPS: u64 = 50_000_000;

/// What is enough where members have deadlines: disks hang for longer. The last of 24 writes to the same sectors of a
/// slow disk has taken 30.04 s.
const PATIENCE_WITH_DEADLINES: Duration = Duration::from_secs(45);

/// The pause that a lost path may cost a write, fences answering in less than a third of it.
const HELD_LIMIT: Duration = Duration::from_millis(1500);
const HELD_LOOK_EVERY: Duration = Duration::from_millis(20);

impl Simulation {
    /// A run with a new array that is served.
    pub fn new(settings: Settings, trace: Trace) -> Result<Self, Failure> {
        let broken_here = settings.broken.map(BrokenHere::new);
        let mut random = Random::new(settings.seed).fork();
        let world = World::new(random.fork(), trace);
        world.note(format_args!("-- {settings}"));
        let disks: Vec<DiskIndex> =
            settings.disks.iter().map(|spec| world.add_disk(spec.clone())).collect();
        disks.iter().for_each(|&disk| world.add_wires(disk, settings.paths));
        world.set_fences(settings.fences);
        world.set_servers(settings.servers);
        if settings.noisy_disks {
            disks.iter().for_each(|&disk| fill_with_noise(&world, disk, &mut random));
        }
        create(&world, &settings, &disks);
        let process = Process::start(
            &world,
            &disks,
            settings.lanes,
            settings.workers,
            (&settings.options(), &settings.tuning),
            0,
        )?;
        let sectors = process.sectors();
        let model = if settings.noisy_disks { Model::anything } else { Model::zeroes };
        let mut model = model(sectors);
        // A write that failed is old on some copies and new on others. With the copy that was read gone
        // before they were made equal, and back later, reads see one, then the other.
        model.set_steady(
            settings.trouble == Trouble::Bearable && !settings.failed_writes_may_land(),
        );
        if settings.rests_on_one() {
            model.answers_rest_on_one();
        }
        let workload =
            Workload::new(random.fork(), settings.habits.clone(), grain(&settings, &process));
        let mut simulation = Self {
            requests_left: settings.requests,
            next_happening: settings.calm_requests,
            aim: 0,
            point_reached: 0,
            aimed_at: None,
            due: None,
            last_hang: Time::ZERO,
            atlas: Atlas::new(&settings),
            process: Some(process),
            model,
            workload,
            backlog: VecDeque::new(),
            pending: Pending::default(),
            operator: Operator::default(),
            disks,
            shelf: Vec::new(),
            plugs: Plugs::default(),
            random,
            thinking_until: Time::ZERO,
            only_read: false,
            broken: false,
            _broken_here: broken_here,
            judges_errors: false,
            lies: 0,
            half_done: HalfDone::default(),
            reached: 0,
            most_steps: MOST_STEPS,
            next_look_at_held: Time::ZERO,
            settings,
            world,
        };
        simulation.look();
        Ok(simulation)
    }

    /// Tells the trace what a sector of a disk holds whenever somebody worked on it.
    pub fn watch(&self, disk: u16, sector: u64) {
        self.world.watch(DiskIndex(disk), sector);
    }

    /// What the disks hold of the sector that a failure is about, a line each; none where it is about none.
    pub fn tell(&self, failure: &Failure) -> Vec<String> {
        let Ok(remains) = Remains::find(&self.world, &self.disks) else { return Vec::new() };
        failure.sector(&remains).map_or(Vec::new(), |sector| remains.tell(sector))
    }

    /// Its world.
    pub fn world(&self) -> &Rc<World> {
        &self.world
    }

    /// Lets it fail after so many steps of its world.
    pub fn limit_steps(&mut self, most: u64) {
        self.most_steps = most;
    }

    /// Runs to the end.
    pub fn run(mut self) -> Result<Outcome, Failure> {
        self.run_to_the_end()
    }

    /// Runs to the end, and leaves what is there to be looked at.
    pub fn run_to_the_end(&mut self) -> Result<Outcome, Failure> {
        self.begin_with_a_rest()?;
        while self.requests_left > 0 && !self.broken {
            self.pump();
            self.step()?;
            self.let_happen()?;
        }
        self.finish()
    }

    /// Lets the world go one step and takes what comes of it.
    fn step(&mut self) -> Result<(), Failure> {
        match self.world.step() {
            Step::Went => {}
            Step::Rang(alarm) => self.ring(alarm),
            Step::Quiet => self.must_be_idle()?,
        }
        if self.world.steps() > self.most_steps {
            return Err(Failure::Endless);
        }
        // What this step answered may have been decided before.
        let holds = self.settings.rests_on_one()
            && self.process.as_ref().is_some_and(Process::rests_on_write_mostly_members);
        self.take_completions()?;
        if holds {
            self.model.answers_hold();
        }
        self.take_answers()?;
        self.must_not_be_held()?;
        self.must_not_be_stuck()
    }

    /// Steps until `done`, without new requests.
    fn step_until(
        &mut self,
        what: &str,
        done: impl FnMut(&mut Self) -> bool,
    ) -> Result<(), Failure> {
        self.step_within(self.patience(), what, done)
    }

    fn step_within(
        &mut self,
        patience: Duration,
        what: &str,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> Result<(), Failure> {
        let deadline = self.world.now() + patience;
        while !done(self) {
            if self.world.now() > deadline {
                return Err(Failure::Stuck { what: what.to_owned() });
            }
            self.step()?;
        }
        Ok(())
    }

    /// Waits on the simulated clock.
    fn wait(&mut self, time: Duration) -> Result<(), Failure> {
        let until = self.world.now() + time;
        self.world.set_alarm(until, ALARM_WAKE);
        while self.world.now() < until {
            self.step()?;
        }
        Ok(())
    }

    /// The process ends, and with it what it came to.
    fn end_process(&mut self) {
        let Some(process) = self.process.take() else { return };
        self.disown_what_is_filled();
        for &point in Point::ALL.iter().filter(|point| process.times_reached(**point) > 0) {
            self.reached |= 1 << point as u32;
        }
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("the array is up")
    }

    /// Nothing is left to happen: then nothing may be waited for.
    fn must_be_idle(&self) -> Result<(), Failure> {
        match self.pending.oldest() {
            Some((tag, ask, _)) => Err(Failure::Stuck { what: format!("request {tag}, {ask}") }),
            None => Ok(()),
        }
    }

    fn must_not_be_stuck(&self) -> Result<(), Failure> {
        match self.pending.oldest() {
            Some((tag, ask, since))
                if self.world.now().since(since.max(self.last_hang)) > self.patience() =>
            {
                Err(Failure::Stuck { what: format!("request {tag}, {ask}") })
            }
            _ => Ok(()),
        }
    }

    /// Looks now and then at the writes that late ones hold back.
    fn must_not_be_held(&mut self) -> Result<(), Failure> {
        if !self.bearable() || self.settings.paths == 0 || self.world.now() < self.next_look_at_held
        {
            return Ok(());
        }
        self.next_look_at_held = self.world.now() + HELD_LOOK_EVERY;
        match self.world.held_longest() {
            Some(held) if held > HELD_LIMIT => Err(Failure::Held(held)),
            _ => Ok(()),
        }
    }

    fn patience(&self) -> Duration {
        let for_ever = |(_, value): &(&str, &str)| *value == "0";
        match self.bearable() {
            true if self.settings.redundancy() == 0 => PATIENCE,
            // It may meet members, one after another, whose paths are all lost.
            true if self.settings.tuning.iter().any(for_ever) && self.settings.paths > 0 => {
                PATIENCE + PATHS_GIVE_UP * self.settings.redundancy() as u32
            }
            true if self.settings.tuning.iter().any(for_ever) => PATIENCE,
            // So many writes may be behind, and no more.
            true if self.settings.stalls_by(SLOWER) => PATIENCE,
            // Before the first resync a late member may be the only one that knows the old block.
            true if self.settings.paths > 0 => PATIENCE_WITH_DEADLINES + PATHS_GIVE_UP,
            true => PATIENCE_WITH_DEADLINES,
            false => PATIENCE_BEYOND,
        }
    }

    fn bearable(&self) -> bool {
        self.settings.trouble == Trouble::Bearable
    }
}

/// An alarm that only moves the clock.
const ALARM_WAKE: u64 = 0;

fn fill_with_noise(world: &World, disk: DiskIndex, random: &mut Random) {
    world.change_disk(disk, |disk| {
        let mut bytes = vec![0; disk.spec.sectors as usize * 512];
        random.garble(&mut bytes);
        disk.store.overwrite(0, &bytes);
    });
}

fn grain(settings: &Settings, process: &Process) -> Grain {
    let chunk_sectors = u64::from(settings.chunk_sectors.max(8));
    Grain {
        array_sectors: process.sectors(),
        block_sectors: process.block_sectors(),
        chunk_sectors,
        row_sectors: chunk_sectors * u64::from(settings.slots),
    }
}
