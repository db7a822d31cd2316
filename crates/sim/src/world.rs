//! The world under a seed: disks, a clock, lanes, and one queue of events that orders them all.
//!
//! Everything runs in one thread. Time stands still while an event happens and then jumps to the next
//! one; events of one instant happen in random order. A lane's turn is an event too, so lanes and
//! disks interleave in every way that the seeds reach.
//!
//! Invariants: an I/O is either in flight or answered, its buffer with the disk or with the lane,
//! never both; a completion is delivered to the lane that submitted it, in one of its turns.

mod events;
mod flight;
mod lanes;
mod wires;

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use mdspace_engine::backend::{MemberId, MemberInfo};
use mdspace_engine::lane::{Lane, LaneId};
use mdspace_engine::time::Time;

use crate::disk::{Disk, DiskIndex, DiskSpec, Hang};
use crate::random::Random;
use crate::trace::Trace;

use events::{Event, EventQueue};
use flight::Flights;
use lanes::Lanes;
use wires::{Way, Wires};

pub use flight::Unlanded;
pub(crate) use wires::PATHS_GIVE_UP;
pub use wires::{Fences, Servers};

/// What one step of the world was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Something happened inside.
    Went,
    /// An alarm rang that was set with this number.
    Rang(u64),
    /// Nothing is left to happen.
    Quiet,
}

/// The world.
pub struct World {
    now: Cell<Time>,
    /// Seconds since 1970 at the clock's start; moves when the wall clock is set.
    wall_s: Cell<u64>,
    disks: RefCell<Vec<Disk>>,
    members: RefCell<Vec<OpenMember>>,
    flights: RefCell<Flights>,
    lanes: RefCell<Lanes>,
    wires: RefCell<Wires>,
    events: RefCell<EventQueue>,
    /// Decides order and durations.
    chance: RefCell<Random>,
    /// Gives the engine its identifiers.
    identifiers: RefCell<Random>,
    trace: RefCell<Trace>,
    lane_delay: Duration,
    watched: Cell<Option<(DiskIndex, u64)>>,
    steps: Cell<u64>,
}

/// A row in the table of open members.
#[derive(Clone, Debug)]
struct OpenMember {
    /// Empty once closed.
    disk: Option<DiskIndex>,
    generation: u16,
    way: Way,
}

/// 2026-01-01, so that times in superblocks look plausible.
const WALL_CLOCK_START_S: u64 = 1_767_225_600;

impl World {
    /// An empty world whose every decision follows from `random`.
    pub fn new(mut random: Random, trace: Trace) -> Rc<Self> {
        let lane_delay = *random.pick(&[100, 1_000, 10_000, 100_000]);
        Rc::new(Self {
            now: Cell::new(Time::ZERO),
            wall_s: Cell::new(WALL_CLOCK_START_S),
            disks: RefCell::default(),
            members: RefCell::default(),
            flights: RefCell::default(),
            lanes: RefCell::default(),
            wires: RefCell::default(),
            events: RefCell::default(),
            chance: RefCell::new(random.fork()),
            identifiers: RefCell::new(random.fork()),
            trace: RefCell::new(trace),
            lane_delay: Duration::from_nanos(lane_delay),
            watched: Cell::new(None),
            steps: Cell::new(0),
        })
    }

    /// The time.
    pub fn now(&self) -> Time {
        self.now.get()
    }

    /// Steps that it has gone.
    pub fn steps(&self) -> u64 {
        self.steps.get()
    }

    /// What calendars show, in seconds since 1970.
    pub fn unix_time_s(&self) -> u64 {
        self.wall_s.get() + self.now.get().as_nanos() / 1_000_000_000
    }

    /// Sets the wall clock, as operators and NTP do.
    pub fn set_wall_clock(&self, unix_time_s: u64) {
        self.wall_s.set(unix_time_s);
    }

    /// Tells the trace what a sector of a disk holds whenever somebody worked on it.
    pub fn watch(&self, disk: DiskIndex, sector: u64) {
        self.watched.set(Some((disk, sector)));
    }

    /// Plugs a new disk in.
    pub fn add_disk(&self, spec: DiskSpec) -> DiskIndex {
        self.plug_in(Disk::new(spec))
    }

    /// A disk that holds what `disk` holds now.
    fn add_copy(&self, disk: DiskIndex) -> DiskIndex {
        self.plug_in(self.disk(disk, Disk::copy))
    }

    fn plug_in(&self, disk: Disk) -> DiskIndex {
        let mut disks = self.disks.borrow_mut();
        disks.push(disk);
        DiskIndex(u16::try_from(disks.len() - 1).expect("fewer than 65536 disks"))
    }

    /// A world of its own, in which nothing is wrong with the disks and they hold what they hold here.
    pub fn copy(&self, random: Random) -> Rc<Self> {
        let world = Self::new(random, Trace::silent());
        let disks = self.disks.borrow();
        world.disks.borrow_mut().extend(disks.iter().map(Disk::copy));
        world
    }

    /// Disks that were ever plugged in.
    pub fn disk_count(&self) -> usize {
        self.disks.borrow().len()
    }

    /// Looks at a disk.
    pub fn disk<T>(&self, disk: DiskIndex, look: impl FnOnce(&Disk) -> T) -> T {
        look(&self.disks.borrow()[usize::from(disk.0)])
    }

    /// Breaks a disk, or mends it. What hung before and does not any more goes on.
    pub fn change_disk<T>(&self, disk: DiskIndex, change: impl FnOnce(&mut Disk) -> T) -> T {
        let result = change(&mut self.disks.borrow_mut()[usize::from(disk.0)]);
        self.resume_flights(disk);
        result
    }

    /// A disk starts anew by itself.
    pub fn reset(&self, disk: DiskIndex) {
        self.change_disk(disk, |disk| disk.reset(&mut self.chance.borrow_mut()));
    }

    /// Opens a disk as a member.
    pub fn open(&self, disk: DiskIndex) -> (MemberId, MemberInfo) {
        match self.wires_of(disk) {
            wires if wires.is_empty() => self.open_by(disk, Way::Direct),
            wires => self.open_over(disk, &wires),
        }
    }

    fn open_by(&self, disk: DiskIndex, way: Way) -> (MemberId, MemberInfo) {
        let info = self.disk(disk, |d| d.spec.info(disk));
        let mut members = self.members.borrow_mut();
        let free = members.iter().position(|member| member.disk.is_none());
        let index = free.unwrap_or_else(|| {
            members.push(OpenMember { disk: None, generation: 0, way: Way::Direct });
            members.len() - 1
        });
        let member = &mut members[index];
        member.disk = Some(disk);
        member.way = way;
        let index = u16::try_from(index).expect("fewer than 65536 members");
        (MemberId { index, generation: member.generation }, info)
    }

    /// Closes a member; I/O that names it from now on finds it gone.
    pub fn close(&self, member: MemberId) {
        let mut members = self.members.borrow_mut();
        let open = &mut members[usize::from(member.index)];
        assert_eq!(open.generation, member.generation, "a member is closed once");
        open.disk = None;
        open.generation += 1;
        let way = std::mem::replace(&mut open.way, Way::Direct);
        drop(members);
        if let Way::Paths(paths) = way {
            paths.close();
            paths.members().into_iter().for_each(|path| self.close(path));
        }
    }

    fn close_all(&self) {
        self.members.borrow_mut().iter_mut().for_each(OpenMember::close);
        self.forget_wishes();
    }

    /// The disk behind an open member.
    pub fn disk_of(&self, member: MemberId) -> Option<DiskIndex> {
        let members = self.members.borrow();
        let open = members.get(usize::from(member.index))?;
        open.disk.filter(|_| open.generation == member.generation)
    }

    /// Sets an alarm that [`step`](Self::step) will report with `number`.
    pub fn set_alarm(&self, when: Time, number: u64) {
        self.schedule(when, Event::Alarm(number));
    }

    /// Lets the next event happen.
    pub fn step(&self) -> Step {
        self.steps.set(self.steps.get() + 1);
        self.take_wishes();
        self.schedule_woken_lanes();
        let Some((when, event)) = self.events.borrow_mut().next() else {
            return Step::Quiet;
        };
        self.now.set(self.now.get().max(when));
        match event {
            Event::Alarm(number) => return Step::Rang(number),
            Event::Turn(lane) => self.turn(lane),
            Event::Effect(flight) => self.effect(flight),
            Event::Finish(flight) => self.finish(flight),
            Event::Deadline(flight) => self.pass_deadline(flight),
            Event::Wish(wish) => self.grant(wish),
            Event::Thaw(wire) => self.thaw(wire),
        }
        Step::Went
    }

    /// Steps until `done` says so; false when nothing is left to happen before that. Alarms that ring
    /// meanwhile ring again afterwards.
    pub fn run_until(&self, mut done: impl FnMut() -> bool) -> bool {
        let mut rung = Vec::new();
        while !done() {
            match self.step() {
                Step::Went => {}
                Step::Rang(number) => rung.push(number),
                Step::Quiet => break,
            }
        }
        rung.into_iter().for_each(|number| self.set_alarm(self.now.get(), number));
        done()
    }

    /// Starts `count` lanes, each with its own backend. None run yet.
    pub fn start_lanes(self: &Rc<Self>, count: u16) -> Vec<Rc<Lane>> {
        (0..count).map(|id| self.start_lane(LaneId(id))).collect()
    }

    /// Kills the process: its lanes stop where they are. I/O in flight may still have been done.
    pub fn kill(&self) {
        self.note(format_args!("-- the process is killed"));
        self.end_lanes();
        self.land_flights();
        self.close_all();
    }

    /// Takes the power away from process and disks.
    pub fn cut_power(&self) {
        self.note(format_args!("-- power cut"));
        self.end_lanes();
        self.land_flights();
        self.close_all();
        for (index, disk) in self.disks.borrow_mut().iter_mut().enumerate() {
            let before = disk.store.volatile_sectors();
            disk.cut_power(&mut self.chance.borrow_mut());
            self.note(format_args!("-- d{index} had {before} sectors at risk"));
        }
    }

    /// Writes a line into the trace.
    pub fn note(&self, line: std::fmt::Arguments<'_>) {
        self.trace.borrow_mut().add(self.now.get(), line);
    }

    /// The hash of everything that happened.
    pub fn trace_hash(&self) -> u64 {
        self.trace.borrow().hash()
    }

    /// Lines of the trace so far.
    pub fn trace_lines(&self) -> u64 {
        self.trace.borrow().lines()
    }

    /// A number for an identifier.
    pub(crate) fn identifier(&self) -> u64 {
        self.identifiers.borrow_mut().next()
    }

    fn schedule(&self, when: Time, event: Event) {
        let tie = self.chance.borrow_mut().next();
        self.events.borrow_mut().add(when.max(self.now.get()), tie, event);
    }

    /// Lets what waited for a hung disk end, unless the disk hangs still.
    fn resume_flights(&self, disk: DiskIndex) {
        let hangs = self.disk(disk, |d| d.faults.hang == Some(Hang::ForEver) && !d.faults.gone);
        if hangs {
            return;
        }
        let parked = self.flights.borrow_mut().take_parked(disk);
        for flight in parked {
            let delay = Duration::from_nanos(self.chance.borrow_mut().below(10_000));
            self.schedule(self.now.get() + delay, Event::Finish(flight));
        }
    }
}

impl OpenMember {
    fn close(&mut self) {
        if self.disk.take().is_some() {
            self.generation += 1;
        }
        if let Way::Paths(paths) = std::mem::replace(&mut self.way, Way::Direct) {
            paths.close();
        }
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "World at {:?}", self.now.get())
    }
}
