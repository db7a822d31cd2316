//! One array in one thread: disks, lanes in turns, a clock that moves only when nothing else can.

mod backend;
mod disks;
mod random;

use std::cell::RefCell;
use std::future::Future;
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use mdspace_engine::array::{Action, Array, ArrayLane, Command, CommandError, Reply, Undecided};
use mdspace_engine::assembly::{self, LeftOut, Options, Reason, Refusal};
use mdspace_engine::backend::Backend;
use mdspace_engine::create::{self, CreateError, NewDevice};
use mdspace_engine::geometry::Shape as Map;
use mdspace_engine::lane::{Lane, LaneId, Notify, Turn};
use mdspace_engine::request::{Queue, Request, RequestError};
use mdspace_engine::status::{ArrayState, ArrayStatus, MemberState, SyncAction};
use mdspace_engine::time::Time;
use mdspace_format::Uuid;

use crate::shapes::Shape;

pub(crate) use backend::Answers;
use backend::{Clock, RamBackend};
pub(crate) use disks::{Disks, Images};
pub(crate) use random::Random;

pub(crate) const SECTOR: usize = 512;

/// More rounds than any test needs; one that does hangs.
const ROUNDS_MAX: usize = 200_000;

/// What to build.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) shape: Shape,
    pub(crate) seed: u64,
    pub(crate) answers: Answers,
    pub(crate) lanes: u16,
    /// Lanes beyond those, for workers; see [`World::hire`].
    pub(crate) workers: u16,
    /// Disks beyond those of the shape, without superblocks.
    pub(crate) more_disks: usize,
    /// Shards of the table of claims.
    pub(crate) hash_locks: u32,
}

impl Setup {
    /// One lane, every I/O answered at once.
    pub(crate) fn new(shape: Shape, seed: u64) -> Self {
        let (answers, lanes, workers) = (Answers::AtOnce, 1, 0);
        Self { shape, seed, answers, lanes, workers, more_disks: 3, hash_locks: 32 }
    }

    /// Several lanes, I/Os answered late and in any order.
    pub(crate) fn shuffled(shape: Shape, seed: u64) -> Self {
        Self { answers: Answers::Shuffled, lanes: 3, ..Self::new(shape, seed) }
    }
}

/// Disks, lanes, and the array on them while it runs.
pub(crate) struct World {
    pub(crate) disks: Rc<Disks>,
    pub(crate) random: Random,
    clock: Clock,
    /// The next time that anyone waits for, as of the last turn.
    next_alarm: Option<Time>,
    setup: Setup,
    lanes: Vec<(Rc<Lane>, Rc<RamBackend>)>,
    array: Option<(Arc<Array>, Vec<Rc<ArrayLane>>)>,
    /// A lane that gets no turn: its thread is not on a CPU.
    pub(crate) dozing: Option<usize>,
    /// What the array should hold, once [`World::learn`] has seen it.
    pub(crate) model: Vec<u8>,
}

/// Where a task leaves what it ends with.
type Slot<T> = Rc<RefCell<Option<T>>>;

struct NoDriver;

impl Notify for NoDriver {
    fn notify(&self) {}
}

impl Drop for World {
    fn drop(&mut self) {
        self.end_lanes();
    }
}

impl World {
    /// Disks full of random bytes, and lanes.
    pub(crate) fn new(setup: Setup) -> Self {
        let mut random = Random::new(setup.seed);
        let disks = Disks::new(&setup.shape, setup.more_disks, &mut random);
        let clock = Clock::default();
        clock.now.set(1);
        let mut world = Self {
            disks,
            random,
            clock,
            next_alarm: None,
            setup,
            lanes: Vec::new(),
            array: None,
            dozing: None,
            model: Vec::new(),
        };
        world.power_on();
        world
    }

    /// A running array, made by `create` and assembled; nothing is waited for.
    pub(crate) fn created(setup: Setup) -> Self {
        let mut world = Self::new(setup);
        world.create(|_| true);
        world.assemble_all().unwrap();
        world
    }

    /// A running array whose redundancy is right and whose content is known.
    pub(crate) fn synced(setup: Setup) -> Self {
        let mut world = Self::created(setup);
        world.wait_idle();
        world.learn();
        world
    }

    pub(crate) fn shape(&self) -> &Shape {
        &self.setup.shape
    }

    fn power_on(&mut self) {
        self.end_lanes();
        let random = &mut self.random;
        let lane = |id| {
            let (disks, clock) = (self.disks.clone(), self.clock.clone());
            let backend = RamBackend::new(id, disks, clock, self.setup.answers, random.fork());
            let lane = Lane::new(LaneId(id), backend.clone(), Arc::new(NoDriver));
            (lane, backend)
        };
        self.lanes = (0..self.setup.lanes + self.setup.workers).map(lane).collect();
    }

    /// Their tasks hold the lanes that hold them.
    fn end_lanes(&mut self) {
        self.lanes.drain(..).for_each(|(lane, _)| lane.end());
    }

    /// Everything in memory is gone, I/Os under way among it.
    pub(crate) fn crash(&mut self) {
        self.array = None;
        for (_, backend) in &self.lanes {
            backend.forget();
        }
        self.power_on();
    }

    /// A crash in which these disks lose what they were not told to flush.
    pub(crate) fn power_cut(&mut self, disks: impl IntoIterator<Item = usize>) {
        self.crash();
        disks.into_iter().for_each(|disk| self.disks.disk(disk).lose_cache());
    }

    /// Writes a new array over the first disks, without those for which `is_there` says no.
    pub(crate) fn create(&mut self, is_there: impl Fn(usize) -> bool) {
        let creating = self.creating(is_there);
        self.finish("create", &creating).unwrap();
    }

    /// As [`World::create`] with every disk, and gives how that went.
    pub(crate) fn try_to_create(&mut self) -> Result<(), CreateError> {
        let creating = self.creating(|_| true);
        self.finish("create", &creating)
    }

    /// As [`World::create`], but without waiting for its end.
    pub(crate) fn begin_to_create(&mut self) {
        self.creating(|_| true);
    }

    fn creating(&mut self, is_there: impl Fn(usize) -> bool) -> Slot<Result<(), CreateError>> {
        let shape = self.setup.shape;
        let places = (0..usize::from(shape.disks)).map(|index| {
            is_there(index).then(|| NewDevice {
                id: self.disks.id(index),
                info: self.disks.info(index),
                flags: shape.flags(index),
            })
        });
        let random = &mut self.random;
        let plan = create::plan(&shape.creation(), places.collect(), 1000, || {
            Uuid(std::array::from_fn(|_| random.next() as u8))
        });
        let plan = plan.unwrap();
        let lane = self.lanes[0].0.clone();
        self.spawn(0, async move { create::write(&lane, &plan).await })
    }

    /// Assembles every disk that has a superblock.
    pub(crate) fn assemble_all(&mut self) -> Result<Vec<LeftOut>, Refusal> {
        let all: Vec<usize> = (0..self.disks.count()).collect();
        self.assemble(&all, &Options { run: true, ..Options::default() })
    }

    /// As [`World::assemble_all`], but a dirty and degraded array starts too.
    pub(crate) fn assemble_with_force(&mut self) -> Result<Vec<LeftOut>, Refusal> {
        let all: Vec<usize> = (0..self.disks.count()).collect();
        self.assemble(&all, &Options { run: true, force: true, ..Options::default() })
    }

    /// Assembles some disks and starts the array on every lane. Gives what was left out.
    pub(crate) fn assemble(
        &mut self,
        disks: &[usize],
        options: &Options,
    ) -> Result<Vec<LeftOut>, Refusal> {
        assert!(self.array.is_none(), "one array at a time");
        let members: Vec<_> =
            disks.iter().map(|&index| (self.disks.id(index), self.disks.info(index))).collect();
        let (lane, wanted) = (self.lanes[0].0.clone(), options.uuid);
        let (candidates, mut left_out) =
            self.run(async move { assembly::read_all(&lane, members, wanted).await });
        // Disks that wait for their use are not worth a word.
        left_out.retain(|device| device.reason != Reason::NoSuperblock);
        let mut assembly = assembly::decide(candidates, options)?;
        let hash_locks = self.setup.hash_locks.to_string();
        assembly.start.settings.set("stripe_hash_locks", &hash_locks).unwrap();
        let array = Array::new(&assembly.start, self.lanes.len());
        let lanes = self.lanes[..usize::from(self.setup.lanes)].iter();
        let ports: Vec<_> = lanes.map(|(lane, _)| ArrayLane::attach(&array, lane)).collect();
        array.control(assembly.start, &self.lanes[0].0, &ports[0]);
        self.array = Some((array, ports));
        left_out.extend(assembly.left_out);
        Ok(left_out)
    }

    /// Lets every lane take a turn and some I/Os end, or time pass. False when nothing moved.
    fn step(&mut self) -> bool {
        self.turn_all() || self.pass_time()
    }

    /// Lets every lane take a turn and some I/Os end. False when nothing is left to move.
    fn turn_all(&mut self) -> bool {
        let mut moved = false;
        let mut alarms = Vec::new();
        let dozing = self.dozing;
        let awake = || {
            let here = self.lanes.iter().enumerate().filter(|(index, _)| dozing != Some(*index));
            here.map(|(_, lane)| lane)
        };
        for (lane, backend) in awake() {
            match lane.turn() {
                Turn::Busy => moved = true,
                Turn::Idle(alarm) => alarms.extend(alarm),
            }
            moved |= backend.answer(lane);
            alarms.extend(backend.next_deadline());
        }
        self.next_alarm = alarms.into_iter().min();
        // Lanes wake each other, also those that had their turn already.
        moved | awake().any(|(lane, _)| !lane.remote().try_sleep())
    }

    /// Sets the clock to the next time that anyone waits for.
    fn pass_time(&mut self) -> bool {
        let Some(alarm) = self.next_alarm else { return false };
        self.clock.now.set(self.clock.now.get().max(alarm.as_nanos()));
        true
    }

    /// Turns until `done` says so.
    pub(crate) fn until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        for _ in 0..ROUNDS_MAX {
            if done(self) {
                return;
            }
            let moved = self.turn_all() || done(self) || self.pass_time();
            assert!(moved || done(self), "{what}: nothing moves any more ({self})");
        }
        panic!("{what}: does not come about ({self})");
    }

    /// Turns a number of rounds, or until nothing moves.
    pub(crate) fn rounds(&mut self, count: usize) {
        for _ in 0..count {
            if !self.step() {
                return;
            }
        }
    }

    /// Turns a number of rounds in which no time passes.
    pub(crate) fn turns(&mut self, count: usize) {
        for _ in 0..count {
            self.turn_all();
        }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.now.get() / 1_000_000
    }

    /// The shape, as geometry takes it.
    pub(crate) fn map(&self) -> Map {
        let shape = self.shape();
        Map {
            level: shape.level,
            layout: shape.layout,
            raid_disks: shape.disks,
            chunk_sectors: shape.chunk_sectors,
            member_sectors: self.disks.superblock(0).expect("a member").size_sectors,
            member_sizes: Vec::new(),
        }
    }

    /// Lets so much time pass on the clock.
    pub(crate) fn sleep_ms(&mut self, ms: u64) {
        let lane = self.lanes[0].0.clone();
        let until = lane.backend().now() + std::time::Duration::from_millis(ms);
        self.run(async move { lane.sleep_until(until).await });
    }

    /// Stops all lanes for so long, as a process is stopped or a machine paused.
    pub(crate) fn stand_still_ms(&mut self, ms: u64) {
        for clock in [&self.clock.now, &self.clock.stood_still] {
            clock.set(clock.get() + ms * 1_000_000);
        }
    }

    /// Starts a read whose bytes nobody looks at.
    pub(crate) fn start_read(&self, sector: u64, sectors: u64) -> Pending {
        let into = Rc::new(RefCell::new(vec![0; sectors as usize * SECTOR]));
        self.start(0, Request::Read { sector, into })
    }

    /// Runs a task of lane 0 to its end.
    pub(crate) fn run<T: 'static>(&mut self, task: impl Future<Output = T> + 'static) -> T {
        let running = self.spawn(0, task);
        self.finish("a task", &running)
    }

    /// Whether an array runs.
    pub(crate) fn runs(&self) -> bool {
        self.array.is_some()
    }

    pub(crate) fn array(&self) -> &Arc<Array> {
        &self.array.as_ref().expect("an array runs").0
    }

    /// Bytes that lanes copied in memory.
    pub(crate) fn copied_bytes(&self) -> u64 {
        self.lanes.iter().map(|(lane, _)| lane.traffic().copied_bytes).sum()
    }

    /// Fails a member, if none has failed yet.
    pub(crate) fn fail_if_whole(&mut self, disk: usize) {
        if self.status().degraded() == 0 {
            self.fail(disk);
        }
    }

    pub(crate) fn lane(&self, lane: usize) -> Rc<Lane> {
        self.lanes[lane].0.clone()
    }

    /// Starts a task of a lane; its end is the caller's to see.
    pub(crate) fn spawn_on(&self, lane: usize, task: impl Future<Output = ()> + 'static) {
        self.lanes[lane].0.spawn(task);
    }

    fn spawn<T: 'static>(&self, lane: usize, task: impl Future<Output = T> + 'static) -> Slot<T> {
        let slot = Rc::new(RefCell::new(None));
        let filled = slot.clone();
        self.lanes[lane].0.spawn(async move {
            let value = task.await;
            *filled.borrow_mut() = Some(value);
        });
        slot
    }

    fn finish<T>(&mut self, what: &str, slot: &Slot<T>) -> T {
        self.until(what, |_| slot.borrow().is_some());
        slot.borrow_mut().take().unwrap()
    }

    /// Starts a request on a lane; its end is awaited by [`World::end`].
    pub(crate) fn start(&self, lane: usize, request: Request) -> Pending {
        let port = self.port(lane);
        Pending(self.spawn(lane, async move { port.serve(request).await }))
    }

    /// Starts a request on a lane the way front ends do, so that workers may share in it.
    pub(crate) fn submit(&self, lane: usize, request: Request) -> Pending {
        let queue = Queue::new();
        self.port(lane).submit(&queue, 7, request);
        Pending(self.spawn(lane, async move { queue.next().await.result }))
    }

    /// Makes one of the lanes beyond those of users a worker, until it is dismissed and has left.
    pub(crate) fn hire(&self, worker: usize) -> Worker {
        let lane = usize::from(self.setup.lanes) + worker;
        let (array, _) = self.array.as_ref().expect("an array runs");
        let port = ArrayLane::attach(array, &self.lanes[lane].0);
        Worker { lane, left: self.spawn(lane, port.work()) }
    }

    /// Dismisses a worker, and does not wait until it has left.
    pub(crate) fn dismiss(&self, worker: &Worker) {
        let (array, _) = self.array.as_ref().expect("an array runs");
        array.dismiss(LaneId(worker.lane as u16));
    }

    pub(crate) fn has_left(&self, worker: &Worker) -> bool {
        worker.left.borrow().is_some()
    }

    /// I/Os of a worker that a disk still holds.
    pub(crate) fn held_of(&self, worker: &Worker, disk: usize) -> usize {
        self.lanes[worker.lane].1.in_flight(self.disks.id(disk))
    }

    /// A disk answers no write of a worker any more.
    pub(crate) fn hang_writes_of(&self, worker: &Worker, disk: usize) {
        self.disks.disk(disk).writes_hang_on = Some(worker.lane as u16);
    }

    pub(crate) fn hired(&self) -> usize {
        self.array.as_ref().expect("an array runs").0.workers_on(0)
    }

    /// I/Os that lanes beyond those of users have made.
    pub(crate) fn worker_ios(&self) -> u64 {
        let workers = self.lanes[usize::from(self.setup.lanes)..].iter();
        workers.map(|(lane, _)| lane.traffic().member_ios).sum()
    }

    /// Sets a key of the array.
    pub(crate) fn set(&self, key: &str, value: &str) {
        self.array.as_ref().expect("an array runs").0.set(key, value).unwrap();
    }

    pub(crate) fn port(&self, lane: usize) -> Rc<ArrayLane> {
        self.array.as_ref().expect("an array runs").1[lane].clone()
    }

    pub(crate) fn end(&mut self, pending: &Pending) -> Result<(), RequestError> {
        self.finish("a request", &pending.0)
    }

    pub(crate) fn serve(&mut self, lane: usize, request: Request) -> Result<(), RequestError> {
        let pending = self.start(lane, request);
        self.end(&pending)
    }

    pub(crate) fn sectors(&self) -> u64 {
        self.port(0).sectors()
    }

    pub(crate) fn some_lane(&mut self) -> usize {
        self.random.below(u64::from(self.setup.lanes)) as usize
    }

    /// Reads through a queue, the way front ends do, on some lane.
    pub(crate) fn read(&mut self, sector: u64, sectors: u64) -> Result<Vec<u8>, RequestError> {
        let lane = self.some_lane();
        let port = self.port(lane);
        let into = Rc::new(RefCell::new(vec![0xa5; sectors as usize * SECTOR]));
        let sink = into.clone();
        let reading = self.spawn(lane, async move {
            let queue = Queue::new();
            port.submit(&queue, 7, Request::Read { sector, into: sink });
            queue.next().await
        });
        let ended = self.finish("a read", &reading);
        assert_eq!(ended.tag, 7);
        ended.result.map(|()| into.take())
    }

    pub(crate) fn write(&mut self, sector: u64, bytes: Vec<u8>) -> Result<(), RequestError> {
        let lane = self.some_lane();
        self.serve(lane, Request::Write { sector, from: Rc::new(bytes), fua: false })
    }

    /// Takes the array's content for right.
    pub(crate) fn learn(&mut self) {
        self.model = self.read(0, self.sectors()).unwrap();
    }

    /// Writes random bytes and keeps them in mind.
    pub(crate) fn write_random(&mut self, sector: u64, sectors: u64) {
        let bytes = self.random.bytes(sectors as usize * SECTOR);
        self.remember(sector, &bytes);
        self.write(sector, bytes).unwrap_or_else(|error| {
            panic!("write of {sectors} sectors at {sector}: {error} ({self})")
        });
    }

    pub(crate) fn remember(&mut self, sector: u64, bytes: &[u8]) {
        let at = sector as usize * SECTOR;
        self.model[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// A range of whole blocks inside the array, mostly short.
    pub(crate) fn random_range(&mut self) -> (u64, u64) {
        let block = u64::from(self.setup.shape.block_bytes) / SECTOR as u64;
        let total = self.sectors() / block;
        let most = if self.random.one_in(8) { total } else { 40.min(total) };
        let blocks = 1 + self.random.below(most);
        (self.random.below(total - blocks + 1) * block, blocks * block)
    }

    /// Writes `count` random ranges, a few at a time where they do not overlap.
    pub(crate) fn write_many(&mut self, count: usize) {
        let mut left = count;
        while left > 0 {
            let batch = self.disjoint_ranges(left.min(6));
            left -= batch.len();
            let started: Vec<_> = batch
                .into_iter()
                .map(|(sector, sectors)| {
                    let bytes = self.random.bytes(sectors as usize * SECTOR);
                    self.remember(sector, &bytes);
                    let lane = self.some_lane();
                    let from = Rc::new(bytes);
                    self.start(lane, Request::Write { sector, from, fua: false })
                })
                .collect();
            for pending in started {
                self.end(&pending).unwrap_or_else(|error| panic!("a write: {error} ({self})"));
            }
        }
    }

    pub(crate) fn disjoint_ranges(&mut self, most: usize) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for _ in 0..most {
            let (sector, sectors) = self.random_range();
            let apart = |&(other, length): &(u64, u64)| {
                sector + sectors <= other || other + length <= sector
            };
            if ranges.iter().all(apart) {
                ranges.push((sector, sectors));
            }
        }
        ranges
    }

    /// Reads everything and some ranges, and compares.
    pub(crate) fn verify(&mut self) {
        let all = self.read(0, self.sectors());
        let all = all.unwrap_or_else(|error| panic!("reading all: {error} ({self})"));
        self.compare(0, &all);
        for _ in 0..10 {
            let (sector, sectors) = self.random_range();
            let bytes = self.read(sector, sectors);
            let bytes = bytes.unwrap_or_else(|error| panic!("reading: {error} ({self})"));
            self.compare(sector, &bytes);
        }
    }

    /// Reads sectors one by one, and compares.
    pub(crate) fn verify_each(&mut self, sectors: Range<u64>) {
        for sector in sectors {
            let found = self.read(sector, 1).unwrap();
            self.compare(sector, &found);
        }
    }

    pub(crate) fn compare(&self, sector: u64, bytes: &[u8]) {
        let at = sector as usize * SECTOR;
        let wanted = &self.model[at..at + bytes.len()];
        if let Some(byte) = (0..bytes.len()).find(|&byte| bytes[byte] != wanted[byte]) {
            let wrong = sector + (byte / SECTOR) as u64;
            panic!("sector {wrong} is wrong ({self})");
        }
    }

    /// Orders the controller.
    pub(crate) fn command(&mut self, action: Action) -> Result<Reply, CommandError> {
        let answer = Arc::new(Mutex::new(None));
        let told = answer.clone();
        let reply = Box::new(move |result| *told.lock().unwrap() = Some(result));
        self.array.as_ref().expect("an array runs").0.command(Command { action, reply });
        self.until("an answer", |_| answer.lock().unwrap().is_some());
        answer.lock().unwrap().take().unwrap()
    }

    /// Orders the controller, and does not wait for its answer.
    pub(crate) fn order(&self, action: Action) {
        self.order_with(action, drop);
    }

    /// As [`World::order`]; `reply` takes the answer.
    pub(crate) fn order_with(
        &self,
        action: Action,
        reply: impl FnOnce(Result<Reply, CommandError>) + Send + 'static,
    ) {
        let reply = Box::new(reply);
        self.array.as_ref().expect("an array runs").0.command(Command { action, reply });
    }

    pub(crate) fn status(&mut self) -> ArrayStatus {
        match self.command(Action::Status) {
            Ok(Reply::Status(status)) => *status,
            other => panic!("a status, not {other:?}"),
        }
    }

    pub(crate) fn member_state(&mut self, disk: usize) -> Option<MemberState> {
        let name = self.disks.info(disk).name;
        let status = self.status();
        status.members.iter().find(|member| member.name == name).map(|member| member.state)
    }

    /// Waits until no sync task runs and none is about to.
    pub(crate) fn wait_idle(&mut self) {
        self.wait_status("no sync task", |status| {
            let recovering = |state| matches!(state, MemberState::Recovering);
            status.sync.action == SyncAction::Idle
                && !status.members.iter().any(|member| recovering(member.state))
        });
    }

    /// Waits until the superblocks say that no write is under way.
    pub(crate) fn wait_clean(&mut self) {
        self.wait_status("a clean array", |status| status.state == ArrayState::Clean);
    }

    /// The disk that a sector of the array is read from.
    pub(crate) fn disk_of(&mut self, sector: u64) -> usize {
        self.disks.reset_counts();
        self.read(sector, 8).unwrap();
        let mut disks = 0..self.disks.count();
        disks.find(|&disk| self.disks.disk(disk).sectors_read() > 0).expect("one is read")
    }

    /// A sector of a disk that holds data or parity.
    pub(crate) fn data_sector(&mut self) -> u64 {
        let data = self.disks.data();
        data.start + self.random.below(data.end - data.start)
    }

    pub(crate) fn wait_status(&mut self, what: &str, done: impl Fn(&ArrayStatus) -> bool) {
        for _ in 0..20_000 {
            if done(&self.status()) {
                return;
            }
            self.rounds(3);
        }
        panic!("{what}: does not come about ({self}): {:?}", self.status());
    }

    /// Fails a member, whatever it holds alone.
    pub(crate) fn fail(&mut self, disk: usize) {
        let member = self.disks.id(disk);
        self.command(Action::Fail { member, force: true }).unwrap();
    }

    pub(crate) fn remove(&mut self, disk: usize) {
        let member = self.disks.id(disk);
        self.command(Action::Remove { member }).unwrap();
    }

    pub(crate) fn add(&mut self, disk: usize) -> Result<Reply, CommandError> {
        self.add_as(disk, false)
    }

    pub(crate) fn add_as(&mut self, disk: usize, only_back: bool) -> Result<Reply, CommandError> {
        self.disks.reopen(disk);
        let (member, info) = (self.disks.id(disk), self.disks.info(disk));
        self.command(Action::Add { member, info, only_back })
    }

    /// Runs a check to its end; gives the sectors that did not agree.
    pub(crate) fn check(&mut self) -> u64 {
        self.check_or_repair(Action::Check, SyncAction::Check)
    }

    pub(crate) fn repair(&mut self) -> u64 {
        self.check_or_repair(Action::Repair(Undecided::Leave), SyncAction::Repair)
    }

    pub(crate) fn repair_by(&mut self, undecided: Undecided) -> u64 {
        self.check_or_repair(Action::Repair(undecided), SyncAction::Repair)
    }

    fn check_or_repair(&mut self, action: Action, word: SyncAction) -> u64 {
        self.command(action).unwrap();
        self.wait_status("the end of a check", |status| {
            status.sync.action == SyncAction::Idle && status.sync.last_action == word
        });
        self.status().mismatch_sectors
    }

    pub(crate) fn stop(&mut self) {
        self.command(Action::Stop).unwrap();
        self.array = None;
    }

    /// After an order to stop: the array's memory goes.
    pub(crate) fn forget_array(&mut self) {
        self.array = None;
    }

    /// Stops and assembles again.
    pub(crate) fn restart(&mut self) {
        self.stop();
        self.assemble_all().unwrap();
    }
}

impl std::fmt::Display for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Setup { shape, seed, lanes, .. } = &self.setup;
        write!(f, "{shape}, seed {seed}, {lanes} lanes, {:?}", self.setup.answers)
    }
}

/// A worker that was hired.
pub(crate) struct Worker {
    lane: usize,
    left: Slot<()>,
}

/// A request under way.
pub(crate) struct Pending(Slot<Result<(), RequestError>>);

impl Pending {
    pub(crate) fn has_ended(&self) -> bool {
        self.result().is_some()
    }

    pub(crate) fn result(&self) -> Option<Result<(), RequestError>> {
        *self.0.borrow()
    }
}
