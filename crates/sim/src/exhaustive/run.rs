//! One sequence of operations on one array, and every moment at which it may crash.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use mdspace_engine::array::{Action, CommandError, Undecided};
use mdspace_engine::request::{Request, RequestError};
use mdspace_engine::time::Time;

use crate::disk::DiskIndex;
use crate::lent::LentSource;
use crate::model::{Asked, Certainty, Model};
use crate::process::{Answer, Process, StartError, create};
use crate::random::Random;
use crate::stamp::Version;
use crate::trace::Trace;
use crate::world::{Step as WorldStep, World};

use super::Scenario;
use super::sequence::{Operation, Sequence};
use super::shape::{Shape, disk};

/// A sequence on an array, under way.
pub(super) struct Run<'a> {
    shape: Shape,
    world: Rc<World>,
    /// Empty only while the array is down.
    process: Option<Process>,
    model: Model,
    /// Disks in the machine.
    disks: Vec<DiskIndex>,
    pending: BTreeMap<u64, Pending>,
    /// The order to fail a member, while it is not answered.
    order: Option<Answer>,
    requests: u64,
    versions: u64,
    /// Whether a crash comes now or later: moments before the last operation are those of shorter sequences.
    looks: bool,
    moments: u64,
    lines_seen: u64,
    visit: Visit<'a>,
}

/// Looks at a moment. False: it has seen enough.
type Visit<'a> = &'a mut dyn FnMut(&Moment<'_>) -> bool;

/// A moment of a run.
pub(super) struct Moment<'a> {
    /// Moments before it.
    pub(super) number: u64,
    pub(super) world: &'a World,
    /// What the array may hold.
    pub(super) model: &'a Model,
}

/// A request that is not answered yet.
enum Pending {
    Write(Asked, Certainty),
    Flush(Asked),
}

/// How a run ended early.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// Enough was seen.
    #[error("enough was seen")]
    Enough,
    /// The array refuses an operation, as it may.
    #[error("refused: {0}")]
    Refused(#[from] CommandError),
    /// A request failed; no disk has a fault.
    #[error("a request failed: {0}")]
    Failed(#[from] RequestError),
    /// An array that was stopped does not start.
    #[error("the array does not start: {0}")]
    NoStart(#[from] StartError),
    /// Something is not answered.
    #[error("{0} does not end")]
    Stuck(&'static str),
}

/// In this time everything is answered: no disk takes longer than 0.1 ms.
const PATIENCE: Duration = Duration::from_secs(20);

/// In this time an array is marked clean, and two passes clear its bitmap.
const REST: Duration = Duration::from_secs(12);

/// An array to which nothing was written for 200 ms is marked clean.
const BETWEEN_WRITES: Duration = Duration::from_millis(150);

const LANES: u16 = 2;

impl<'a> Run<'a> {
    /// A new array with data, served and quiet.
    pub(super) fn new(scenario: &Scenario, verbose: bool, visit: Visit<'a>) -> Result<Self, Ended> {
        let shape = scenario.shape;
        let settings = shape.settings();
        let world = World::new(Random::new(scenario.schedule), Trace::new(verbose));
        let disks: Vec<_> =
            settings.disks.iter().map(|spec| world.add_disk(spec.clone())).collect();
        create(&world, &settings, &disks);
        let mut run = Self {
            shape,
            world,
            process: None,
            model: Model::zeroes(0),
            disks,
            pending: BTreeMap::new(),
            order: None,
            requests: 0,
            versions: 0,
            looks: false,
            moments: 0,
            lines_seen: 0,
            visit,
        };
        run.start()?;
        run.model = Model::zeroes(run.process().sectors());
        run.fill()?;
        Ok(run)
    }

    /// The array is not empty: what is lost of its first row, and of one sector of its second, reads otherwise.
    fn fill(&mut self) -> Result<(), Ended> {
        let row = self.shape.row_sectors();
        self.write(0..row, false);
        self.write(row + 3..row + 4, false);
        self.until("a write", |run| run.pending.is_empty())?;
        self.begin(Operation::Flush)?;
        self.until("a flush", |run| run.pending.is_empty())?;
        self.rest()
    }

    /// Runs the sequence, and rests. The moments of its last operation and of the rest are looked at.
    pub(super) fn run(&mut self, sequence: &Sequence) -> Result<(), Ended> {
        let steps = &sequence.0;
        for (index, step) in steps.iter().enumerate() {
            // What overlaps with the last one is new with it.
            let rest = &steps[index..];
            let overlapping = rest.iter().rev().skip(1).all(|step| step.overlaps);
            self.looks |= rest.len() == 1 || overlapping;
            self.begin(step.operation)?;
            if !step.overlaps {
                self.until("an operation", Self::is_idle)?;
            }
        }
        self.looks = true;
        self.rest()
    }

    fn begin(&mut self, operation: Operation) -> Result<(), Ended> {
        self.world.note(format_args!("-- {operation:?}"));
        let row = self.shape.row_sectors();
        let failing = DiskIndex(self.shape.failing_slot());
        match operation {
            Operation::Write => self.write(2..3, false),
            Operation::Part => self.write(row - 1..row + 1, false),
            Operation::Row => self.write(0..row, false),
            Operation::Fua => self.write(2..3, true),
            Operation::Zeroes => self.zero(0..row),
            Operation::Flush => {
                let asked = self.model.begin_flush();
                self.submit(Pending::Flush(asked), Request::Flush);
            }
            Operation::Rest => self.rest()?,
            Operation::Trickle => self.trickle(row + 3)?,
            Operation::Fail => self.fail(failing)?,
            Operation::Add => drop(self.add()?),
            Operation::Return => self.bring_back(failing)?,
            Operation::Replace => self.replace(DiskIndex(failing.0 + 1))?,
            Operation::Check => self.command(Action::Check)?,
            Operation::Repair => self.command(Action::Repair(Undecided::Leave))?,
            Operation::Restart => self.restart()?,
        }
        Ok(())
    }

    fn write(&mut self, range: Range<u64>, fua: bool) {
        self.versions += 1;
        self.write_version(range, Version(self.versions), fua);
    }

    fn write_version(&mut self, range: Range<u64>, version: Version, fua: bool) {
        let asked = self.model.begin_write(range.clone(), &[version]);
        let certainty = if fua { Certainty::Durable } else { Certainty::Done };
        let from = Rc::new(LentSource::new(range.start, range.end - range.start, version));
        let request = Request::Write { sector: range.start, from, fua };
        self.submit(Pending::Write(asked, certainty), request);
    }

    fn zero(&mut self, range: Range<u64>) {
        let asked = self.model.begin_write(range.clone(), &[Version::default()]);
        let sectors = range.end - range.start;
        let request = Request::WriteZeroes { sector: range.start, sectors, fua: false };
        self.submit(Pending::Write(asked, Certainty::Done), request);
    }

    fn submit(&mut self, pending: Pending, request: Request) {
        self.requests += 1;
        let lane = (self.requests % u64::from(LANES)) as u16;
        self.pending.insert(self.requests, pending);
        self.process().submit(lane, self.requests, request);
    }

    fn fail(&mut self, disk: DiskIndex) -> Result<(), Ended> {
        let member = self.process().member(disk).ok_or(CommandError::NotAMember)?;
        self.order = Some(self.process().command(Action::Fail { member, force: false }));
        Ok(())
    }

    fn is_idle(&mut self) -> bool {
        self.pending.is_empty() && self.order.is_none()
    }

    fn add(&mut self) -> Result<DiskIndex, Ended> {
        let new = self.world.add_disk(disk(false));
        self.disks.push(new);
        self.take_in(new)?;
        Ok(new)
    }

    fn take_in(&mut self, disk: DiskIndex) -> Result<(), Ended> {
        let process = self.process.as_mut().expect("the array is up");
        let (member, info) = process.open(disk);
        self.command(Action::Add { member, info, only_back: false })
    }

    fn bring_back(&mut self, disk: DiskIndex) -> Result<(), Ended> {
        let process = self.process.as_mut().expect("the array is up");
        if let Some(member) = process.member(disk) {
            // After a restart it takes no part.
            match self.command(Action::Remove { member }) {
                Ok(()) | Err(Ended::Refused(CommandError::NotAMember)) => {}
                Err(other) => return Err(other),
            }
        }
        self.take_in(disk)
    }

    fn replace(&mut self, disk: DiskIndex) -> Result<(), Ended> {
        let new = self.add()?;
        let member = self.process().member(disk).ok_or(CommandError::NotAMember)?;
        let with = self.process().member(new);
        self.command(Action::Replace { member, with })
    }

    fn command(&mut self, action: Action) -> Result<(), Ended> {
        let answer = self.process().command(action);
        let mut taken = None;
        self.until("a command", |_| {
            taken = taken.take().or_else(|| answer.take());
            taken.is_some()
        })?;
        taken.expect("it was waited for").map(drop).map_err(Ended::from)
    }

    /// Stops the array and starts it with every disk in the machine.
    fn restart(&mut self) -> Result<(), Ended> {
        self.command(Action::Stop)?;
        self.process = None;
        self.world.kill();
        self.model.kill();
        self.start()
    }

    fn start(&mut self) -> Result<(), Ended> {
        let options = self.shape.settings().options();
        let process = Process::start(&self.world, &self.disks, LANES, 0, (&options, &[]), 0)?;
        self.process = Some(process);
        Ok(())
    }

    fn rest(&mut self) -> Result<(), Ended> {
        self.wait(REST)
    }

    /// Writes the same to a sector again and again: after the first time no disk changes.
    fn trickle(&mut self, sector: u64) -> Result<(), Ended> {
        self.versions += 1;
        let version = Version(self.versions);
        let end = self.world.now() + REST;
        while self.world.now() < end {
            self.write_version(sector..sector + 1, version, false);
            self.until("a write", |run| run.pending.is_empty())?;
            self.wait(BETWEEN_WRITES)?;
        }
        Ok(())
    }

    fn wait(&mut self, span: Duration) -> Result<(), Ended> {
        let until = self.world.now() + span;
        self.world.set_alarm(until, 0);
        while self.world.now() < until {
            self.step()?;
        }
        Ok(())
    }

    fn until(
        &mut self,
        what: &'static str,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> Result<(), Ended> {
        let deadline = self.world.now() + PATIENCE;
        while !done(self) {
            let went = self.step()?;
            if !went || self.world.now() > deadline {
                return Err(Ended::Stuck(what));
            }
        }
        Ok(())
    }

    /// Lets the world go one step. False when nothing is left to happen.
    fn step(&mut self) -> Result<bool, Ended> {
        self.look()?;
        let step = self.world.step();
        self.take_completions()?;
        if let Some(answer) = self.order.as_ref().and_then(Answer::take) {
            self.order = None;
            answer?;
        }
        if self.world.now() > Time::ZERO + Duration::from_secs(3600) {
            return Err(Ended::Stuck("the run"));
        }
        Ok(step != WorldStep::Quiet)
    }

    fn take_completions(&mut self) -> Result<(), Ended> {
        while let Some((lane, completion)) = self.process.as_ref().and_then(Process::pop) {
            self.world.note(format_args!("Q{lane} < #{}", completion.tag));
            let pending = self.pending.remove(&completion.tag).expect("it is answered once");
            completion.result?;
            match pending {
                Pending::Write(asked, certainty) => self.model.end_write(asked, certainty),
                Pending::Flush(asked) => self.model.end_flush(asked),
            }
        }
        Ok(())
    }

    /// Shows the moment, where anything happened since the last one.
    fn look(&mut self) -> Result<(), Ended> {
        let lines = self.world.trace_lines();
        if std::mem::replace(&mut self.lines_seen, lines) == lines || !self.looks {
            return Ok(());
        }
        let moment = Moment { number: self.moments, world: &self.world, model: &self.model };
        self.moments += 1;
        if (self.visit)(&moment) { Ok(()) } else { Err(Ended::Enough) }
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("the array is up")
    }
}
