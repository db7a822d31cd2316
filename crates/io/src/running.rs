//! An array on lanes: what a program that embeds mdspace holds.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use mdspace_engine::array::{Action, Array, ArrayLane, Command, CommandError, Reply};
use mdspace_engine::assembly::{self, Decided, LeftOut, Options, Refusal};
use mdspace_engine::backend::{
    IoErrorKind, IoOp, MemberId, MemberInfo, MemberIo, Patience, ReadInto,
};
use mdspace_engine::lane::{Lane, LaneId, Traffic};

use crate::lane_io::LaneIo;
use crate::lanes::Lanes;
use crate::workers::{GROUP_THREAD_CNT, SetError, WORKER_CPUS, WorkerCounts, Workers};

/// The lane on which an array's owner runs.
const HOME: LaneId = LaneId(0);

/// How long workers may take to end what they hold at a stop.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// How long a look at a device may take, with all of its reads: who stops the array waits for it.
const LOOK_PATIENCE: Duration = Duration::from_secs(10);

/// An array that runs on all lanes of a [`Lanes`].
pub struct RunningArray {
    lanes: Arc<Lanes>,
    pub(crate) array: Arc<Array>,
    pub(crate) workers: Workers,
    key: u64,
    left_out: Vec<LeftOut>,
    decided: Vec<Decided>,
    accepted_sectors: u64,
}

/// Why an array does not run.
#[derive(Debug, thiserror::Error)]
#[error("{refusal}")]
pub struct AssembleError {
    /// Why those of the members that are whole do not make an array that may start.
    #[source]
    pub refusal: Refusal,
    /// Devices that could not take part, and why.
    pub left_out: Vec<LeftOut>,
}

thread_local! {
    /// The arrays of this lane's thread, by key.
    static HERE: RefCell<BTreeMap<u64, Rc<ArrayLane>>> = const { RefCell::new(BTreeMap::new()) };
}

impl RunningArray {
    /// Assembles open members and starts the array on every lane. A member without a whole superblock
    /// counts as missing, and is named in [`left_out`](Self::left_out).
    pub fn assemble(
        lanes: Arc<Lanes>,
        members: Vec<(MemberId, MemberInfo)>,
        options: Options,
    ) -> Result<Self, AssembleError> {
        let assembly = lanes.call(HOME, async move |lane, _| {
            let (candidates, mut left_out) = assembly::read_all(&lane, members, options.uuid).await;
            match assembly::decide(candidates, &options) {
                Ok(mut assembly) => {
                    assembly.left_out.append(&mut left_out);
                    Ok(assembly)
                }
                Err(refusal) => Err(AssembleError { refusal, left_out }),
            }
        })?;
        static KEYS: AtomicU64 = AtomicU64::new(0);
        let key = KEYS.fetch_add(1, Ordering::Relaxed);
        let nodes = lanes.topology().nodes.len();
        let array = Array::with_nodes(&assembly.start, Workers::seats(&lanes), nodes);
        let (left_out, decided) = (assembly.left_out, assembly.decided);
        let accepted_sectors = assembly.accepted_sectors;
        let workers = Workers::default();
        let this = Self { lanes, array, workers, key, left_out, decided, accepted_sectors };
        for lane in this.lane_ids() {
            let (array, node) = (this.array.clone(), this.lanes.node_of(lane));
            this.lanes.call(lane, async move |lane, _| {
                let port = ArrayLane::attach_on(&array, &lane, node);
                HERE.with_borrow_mut(|here| here.insert(key, port));
            });
        }
        let (array, start) = (this.array.clone(), assembly.start);
        this.lanes.run_on(HOME, move |lane, _| {
            array.control(start, lane, &Self::here(key));
        });
        Ok(this)
    }

    /// Devices that take no part, and why.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// What [`prefer`](Options::prefer) has decided.
    pub fn decided(&self) -> &[Decided] {
        &self.decided
    }

    /// Sectors of each member in which missing blocks are computed from parity that a crash may have left
    /// half-written, because the user forced the start.
    pub fn accepted_sectors(&self) -> u64 {
        self.accepted_sectors
    }

    /// The lanes that it runs on.
    pub fn lanes(&self) -> &Arc<Lanes> {
        &self.lanes
    }

    /// Sends a command to the array's owner and waits for the answer. Not for a lane's thread.
    pub fn command(&self, action: Action) -> Result<Reply, CommandError> {
        let (sender, receiver) = channel();
        let reply = Box::new(move |result| {
            // The caller waits below: it is there to hear.
            let _ = sender.send(result);
        });
        self.array.command(Command { action, reply });
        receiver.recv().unwrap_or(Err(CommandError::Stopped))
    }

    /// Sends a command to the array's owner; `reply` is called once, on a lane's thread.
    pub fn order(
        &self,
        action: Action,
        reply: impl FnOnce(Result<Reply, CommandError>) + Send + 'static,
    ) {
        self.array.command(Command { action, reply: Box::new(reply) });
    }

    /// Every key that the array can be tuned by, with its value.
    pub fn setting_values(&self) -> Vec<(&'static str, String)> {
        let mut values = self.array.setting_values();
        if self.array.has_parity() {
            values.push((WORKER_CPUS, self.workers.cpus()));
        }
        values
    }

    /// Sets one of those keys. The array runs on, whatever the value. Not for a lane's thread.
    pub fn set(&self, key: &str, value: &str) -> Result<(), SetError> {
        if key == WORKER_CPUS && self.array.has_parity() {
            return self.workers.set_cpus(value, &self.lanes, &self.array);
        }
        self.array.set(key, value)?;
        match self.workers.adjust(&self.lanes, &self.array) {
            // They were missing before, and no other key brings them.
            Err(missing) if key != GROUP_THREAD_CNT => {
                tracing::warn!("not all workers serve: {missing}");
                Ok(())
            }
            adjusted => Ok(adjusted?),
        }
    }

    /// Memory that the stripe cache's blocks take, in bytes.
    pub fn stripe_cache_bytes(&self) -> usize {
        self.array.stripe_cache_bytes()
    }

    /// Worker threads asked for and running.
    pub fn worker_counts(&self) -> WorkerCounts {
        self.workers.counts(&self.array)
    }

    /// What each worker has done since it started.
    pub fn worker_traffic(&self) -> Vec<(LaneId, Traffic)> {
        self.workers.ask(Lane::traffic)
    }

    /// Whether a member may still do something that it was asked and has not answered, on any lane.
    pub fn owes_answers(&self, member: MemberId) -> bool {
        let owed =
            move |lane: &Lane| lane.backend().in_flight(member) + lane.backend().unanswered(member);
        self.lanes.owe_answers(member)
            || self.workers.ask(owed).iter().map(|(_, owed)| owed).sum::<usize>() > 0
    }

    /// Whether an open device that is no member yet leads to the array itself, as far as reads of it show at
    /// the fronts ([`Lineage`](crate::Lineage)) while they run. One that does not answer is not known to. Not
    /// for a lane's thread.
    pub fn leads_back(&self, device: MemberId, info: &MemberInfo) -> bool {
        let lineage = self.lanes.members().lineage();
        let until = Instant::now() + LOOK_PATIENCE;
        lineage.comes_back(info.sectors * 512, |bytes| {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let read = async move |lane: Rc<Lane>, _| {
                let len = (bytes.end - bytes.start) as usize;
                let into = ReadInto::Buffer(lane.backend().allocate(len), 0..len);
                let op = IoOp::Read { sector: bytes.start / 512, into };
                let patience = Patience::of(left);
                let done = lane.io(MemberIo { member: device, op, patience }).await;
                done.buffer.into_iter().for_each(|buffer| lane.backend().recycle(buffer));
                !done.result.is_err_and(|error| error.kind == IoErrorKind::Deadline)
            };
            self.lanes.call(HOME, read)
        })
    }

    /// Runs `setup` on a lane with the array's part there; it may spawn tasks and submit requests.
    pub fn run_on(
        &self,
        lane: LaneId,
        setup: impl FnOnce(&Rc<ArrayLane>, &Rc<Lane>, &LaneIo) + Send + 'static,
    ) {
        let key = self.key;
        self.lanes.run_on(lane, move |lane, io| setup(&Self::here(key), lane, io));
    }

    /// Marks the array clean and ends it. Requests after that are refused.
    pub fn stop(self) -> Result<(), CommandError> {
        self.end(false)?;
        self.let_go();
        Ok(())
    }

    /// Ends the array, and leaves it where other orders find it until then: what it waits for may be a
    /// member that is to be failed. By force it ends within seconds, also where members have not answered;
    /// it is not marked clean then, and their names are given. Not for a lane's thread.
    pub fn end(&self, force: bool) -> Result<Vec<String>, CommandError> {
        let order = if force { Action::StopByForce } else { Action::Stop };
        match self.command(order)? {
            Reply::Stopped { unanswered } => Ok(unanswered),
            _ => Ok(Vec::new()),
        }
    }

    /// Takes an array that has ended off its lanes.
    pub fn let_go(self) {
        if !self.workers.end(&self.array, STOP_PATIENCE) {
            tracing::warn!("a worker is still busy: a device has not answered");
        }
        let key = self.key;
        for lane in self.lane_ids() {
            self.lanes.call(lane, async move |_, _| {
                HERE.with_borrow_mut(|here| here.remove(&key));
            });
        }
    }

    fn lane_ids(&self) -> impl Iterator<Item = LaneId> + use<> {
        (0..u16::try_from(self.lanes.count()).expect("fewer than 65536 lanes")).map(LaneId)
    }

    fn here(key: u64) -> Rc<ArrayLane> {
        HERE.with_borrow(|here| here.get(&key).cloned())
            .expect("the array is attached to its lanes")
    }
}
