//! The lanes of a process: one thread each, with a driver and the engine's executor.

mod cpus;
mod event_fd;
mod local;
mod mailbox;
mod run;
mod topology;

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mdspace_engine::array::Array;
use mdspace_engine::backend::MemberId;
use mdspace_engine::lane::{Lane, LaneId};
use mdspace_engine::sync::Mutex;

use crate::lane_io::LaneIo;
use crate::member::{MemberTable, NotConnected};
use crate::queue::IoChoice;

use cpus::Place;
use mailbox::Mailbox;
use run::LaneEnd;

#[cfg(test)]
pub(crate) use cpus::allowed;
pub(crate) use event_fd::EventFd;
pub use local::LocalLane;
pub use run::is_lane_thread;
pub use topology::Topology;
pub(crate) use topology::cpu_list;

/// How many lanes, and where.
#[derive(Clone)]
pub struct LanesConfig {
    /// Lanes to start, at least one.
    pub count: usize,
    /// CPUs to pin them to, in turn. Empty: not pinned, but each lane stays on one NUMA node.
    pub cpus: Vec<usize>,
    /// Which way the system calls take.
    pub io: IoChoice,
    /// The members that the lanes reach.
    pub members: Arc<MemberTable>,
    /// How long a lane with nothing to do looks for work before it sleeps.
    pub spin: Duration,
    /// The NUMA nodes to run on; `None` for those of this machine.
    pub topology: Option<Topology>,
}

impl Default for LanesConfig {
    /// One lane, on the way that `MDSPACE_IO` names.
    fn default() -> Self {
        Self {
            count: 1,
            cpus: Vec::new(),
            io: IoChoice::from_env().unwrap_or_default(),
            members: MemberTable::new(),
            spin: Duration::from_micros(50),
            topology: None,
        }
    }
}

/// Why lanes cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A lane cannot run there.
    #[error("CPU {cpu} is not one this process may run on; name others, or none")]
    Cpu {
        /// The CPU asked for.
        cpu: usize,
    },
    /// A member bears one lane only, or none more.
    #[error(transparent)]
    NotConnected(#[from] NotConnected),
    /// The system refused a thread, its wake-up, or its ring.
    #[error("cannot start a lane: {0}; MDSPACE_IO=preadv does without io_uring")]
    System(#[from] io::Error),
}

/// Lanes that still had something to do when patience ran out.
#[derive(Debug, thiserror::Error)]
#[error("{lanes} lanes are still busy: tasks have not ended, or a device has not answered")]
pub struct StillBusy {
    /// How many.
    pub lanes: usize,
}

/// Running lanes.
pub struct Lanes {
    lanes: Vec<Handle>,
    config: LanesConfig,
    topology: Topology,
    /// Hears from every lane that ends.
    ended: Mutex<Receiver<LaneEnd>>,
}

struct Handle {
    node: usize,
    mailbox: Arc<Mailbox>,
    thread: JoinHandle<()>,
}

/// How long a lane is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Term {
    /// As long as the others: what all of them use may be looked after there, and ends with it.
    WithTheOthers,
    /// It may end before the others, as a worker does.
    OfItsOwn,
}

impl Handle {
    fn start(
        id: LaneId,
        term: Term,
        place: Place,
        config: &LanesConfig,
        array: Option<&Array>,
        ended: Sender<LaneEnd>,
    ) -> Result<Self, StartError> {
        let counted = config.members.count_on(id, array)?;
        let mailbox = Arc::new(Mailbox::new()?);
        let (started_sender, started) = channel();
        let (theirs, config, node) = (mailbox.clone(), config.clone(), place.node);
        let thread = std::thread::Builder::new().name(format!("lane-{}", id.0));
        let thread = thread.spawn(move || {
            place.apply();
            let end = run::run(id, term, &config, &theirs, &started_sender);
            theirs.close();
            drop(counted);
            // Nobody listens after `stop` has lost its patience.
            let _ = ended.send(end);
        })?;
        started.recv().map_err(|_| io::Error::other("the lane's thread ended"))??;
        Ok(Self { node, mailbox, thread })
    }
}

impl Lanes {
    /// Starts the lanes, each with its connections to the members that are open; they sleep until something is run on them.
    pub fn start(config: LanesConfig) -> Result<Self, StartError> {
        let topology = match &config.topology {
            Some(topology) => topology.clone(),
            None => Topology::of_this_machine()?,
        };
        let places = cpus::places(config.count.max(1), &config.cpus, &topology)?;
        let (ended_sender, ended) = channel();
        let ended = Mutex::new(ended);
        let mut lanes = Self { lanes: Vec::new(), config, topology, ended };
        for (index, place) in places.into_iter().enumerate() {
            let id = LaneId(u16::try_from(index).expect("fewer than 65536 lanes"));
            lanes.lanes.push(Handle::start(
                id,
                Term::WithTheOthers,
                place,
                &lanes.config,
                None,
                ended_sender.clone(),
            )?);
        }
        Ok(lanes)
    }

    /// Starts one more lane beside these, with its connections to the members that `array` uses, on some CPUs of a node,
    /// and begins its `work` there. The lane ends when that has ended; until then it keeps its connections to members.
    pub(crate) fn start_worker<Work>(
        &self,
        array: &Array,
        id: LaneId,
        node: usize,
        cpus: Vec<usize>,
        work: impl FnOnce(&Rc<Lane>) -> Work + Send + 'static,
    ) -> Result<WorkerThread, StartError>
    where
        Work: Future<Output = ()> + 'static,
    {
        let (ended_sender, ended) = channel();
        let place = Place::some_of(node, cpus);
        let handle =
            Handle::start(id, Term::OfItsOwn, place, &self.config, Some(array), ended_sender)?;
        let mailbox = handle.mailbox.clone();
        let thread = WorkerThread { handle, ended: Mutex::new(ended) };
        let begun = thread.call(move |lane, _| {
            let work = work(lane);
            lane.spawn(async move {
                work.await;
                mailbox.request_stop();
            });
        });
        begun.expect("a lane ends only when it is asked to");
        Ok(thread)
    }

    /// The NUMA nodes that lanes run on.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The NUMA node of a lane.
    pub fn node_of(&self, lane: LaneId) -> usize {
        self.lanes[usize::from(lane.0)].node
    }

    /// How many lanes there are.
    pub fn count(&self) -> usize {
        self.lanes.len()
    }

    /// The members that the lanes reach.
    pub fn members(&self) -> &Arc<MemberTable> {
        &self.config.members
    }

    /// Runs `setup` on a lane's thread, between two turns; it may spawn tasks.
    pub fn run_on(&self, lane: LaneId, setup: impl FnOnce(&Rc<Lane>, &LaneIo) + Send + 'static) {
        self.lanes[usize::from(lane.0)].mailbox.post(Box::new(setup));
    }

    /// Has `told` called, on any lane, when every lane has gone on to another turn. One that stands still keeps
    /// it from being called.
    pub fn when_all_turn(&self, told: impl FnOnce() + Send + 'static) {
        let last = Arc::new(LastTurn(Mutex::new(Some(Box::new(told)))));
        for lane in &self.lanes {
            let last = last.clone();
            lane.mailbox.post(Box::new(move |_, _| drop(last)));
        }
    }

    /// Runs a task on a lane and waits for its end. Not to be called on a lane's thread.
    pub fn call<T, F, Task>(&self, lane: LaneId, task: F) -> T
    where
        T: Send + 'static,
        F: FnOnce(Rc<Lane>, LaneIo) -> Task + Send + 'static,
        Task: Future<Output = T> + 'static,
    {
        let (sender, receiver) = channel();
        self.run_on(lane, move |lane, io| {
            let task = task(lane.clone(), io.clone());
            lane.spawn(async move {
                // The caller waits below: it is there to hear.
                let _ = sender.send(task.await);
            });
        });
        receiver.recv().expect("a lane aborts the process rather than drop a task")
    }

    /// Whether a member may still do something that a lane was asked and has not answered. Not to be called
    /// on a lane's thread.
    pub fn owe_answers(&self, member: MemberId) -> bool {
        let owed =
            move |lane: &Lane| lane.backend().in_flight(member) + lane.backend().unanswered(member);
        let ids = (0..u16::try_from(self.count()).expect("fewer than 65536 lanes")).map(LaneId);
        ids.map(|id| self.call(id, async move |lane, _| owed(&lane))).sum::<usize>() > 0
    }

    /// Asks every lane to end ([`LaneIo::stop_requested`] tells its tasks) and waits until their
    /// tasks have ended and nobody waits for an I/O, but no longer than `patience`: a lane that is busy
    /// after that is left to itself. What was answered at its deadline and has not ended keeps its member
    /// and its memory.
    pub fn stop(mut self, patience: Duration) -> Result<(), StillBusy> {
        self.lanes.iter().for_each(|lane| lane.mailbox.request_stop());
        let until = Instant::now() + patience;
        let mut running = self.lanes.len();
        let mut threads_end = true;
        while running > 0 {
            let left = until.saturating_duration_since(Instant::now());
            match self.ended.lock().recv_timeout(left) {
                Ok(end) => threads_end &= end == LaneEnd::Clear,
                Err(_) => return Err(StillBusy { lanes: running }),
            }
            running -= 1;
        }
        for lane in self.lanes.drain(..).filter(|_| threads_end) {
            // A lane that panics aborts the process, so there is nothing to hand on.
            drop(lane.thread.join());
        }
        Ok(())
    }
}

/// What is called when the last of those who share it lets go.
struct LastTurn(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Drop for LastTurn {
    fn drop(&mut self) {
        let told = self.0.lock().take();
        told.into_iter().for_each(|told| told());
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        self.lanes.iter().for_each(|lane| lane.mailbox.request_stop());
    }
}

/// A lane's thread outside of [`Lanes`].
pub(crate) struct WorkerThread {
    handle: Handle,
    ended: Mutex<Receiver<LaneEnd>>,
}

impl WorkerThread {
    /// Runs `errand` on the thread, between two turns, and waits for its result. `None`: the thread has ended.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        errand: impl FnOnce(&Rc<Lane>, &LaneIo) -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, receiver) = channel();
        self.handle.mailbox.post(Box::new(move |lane, io| {
            // The caller waits below: it is there to hear.
            let _ = sender.send(errand(lane, io));
        }));
        // A lane that ends drops what it was still to run, and the sender with it.
        receiver.recv().ok()
    }

    /// Moves it to these CPUs, of its node. `None`: the thread has ended.
    pub(crate) fn move_to(&self, cpus: Vec<usize>) -> Option<()> {
        let place = Place::some_of(self.handle.node, cpus);
        self.call(move |_, _| place.apply())
    }

    /// Waits for the end of the thread, but no longer than `patience`. Says whether it has come.
    pub(crate) fn has_ended(&self, patience: Duration) -> bool {
        use std::sync::mpsc::RecvTimeoutError;
        // A thread that is gone has dropped its end of the channel.
        !matches!(self.ended.lock().recv_timeout(patience), Err(RecvTimeoutError::Timeout))
    }
}

impl std::fmt::Debug for Lanes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lanes({})", self.lanes.len())
    }
}
