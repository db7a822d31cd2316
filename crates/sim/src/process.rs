//! The process that serves the array: lanes, an assembled array, and a user's queue on each lane.
//!
//! It is all that a kill or a power cut takes away; the disks stay in the world.

mod create;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use mdspace_engine::array::{Action, Array, ArrayLane, Command, CommandError, Point, Reply};
use mdspace_engine::assembly::{self, Assembly, Options, Refusal};
use mdspace_engine::backend::{MemberId, MemberInfo};
use mdspace_engine::lane::{Lane, LaneId};
use mdspace_engine::request::{Completion, Queue, Request};

use crate::disk::DiskIndex;
use crate::world::World;

pub use create::create;

/// An array that is served.
pub struct Process {
    world: Rc<World>,
    array: Arc<Array>,
    ports: Vec<Rc<ArrayLane>>,
    queues: Vec<Rc<Queue>>,
    members: BTreeMap<DiskIndex, MemberId>,
    /// Names of disks that it was given and started without.
    left_out: Vec<String>,
}

/// The answer to a command, once it has come.
#[derive(Clone)]
pub struct Answer(Arc<Mutex<Option<Result<Reply, CommandError>>>>);

/// Why a process serves no array.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The engine refuses.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It goes on for ever.
    #[error("assembly does not end")]
    Stuck,
    /// Members are there that others went on without, and those are not.
    #[error("the members that are there have {found} events, others have {newest}")]
    Outdated {
        /// Events of the freshest member that is there.
        found: u64,
        /// Events of the freshest of all.
        newest: u64,
    },
}

impl StartError {
    /// Whether the engine thinks that parts of the array ran apart.
    pub fn is_split_brain(&self) -> bool {
        matches!(self, Self::Refused(Refusal::SplitBrain { .. }))
    }
}

impl Process {
    /// Assembles the array on `disks` and serves it on `lanes` lanes, beside which workers run. The operator knows that it came
    /// to `newest` events, and does not start an older state of it: nothing on members that others went
    /// on without says so.
    pub fn start(
        world: &Rc<World>,
        disks: &[DiskIndex],
        lanes: u16,
        workers: u16,
        (options, tuning): (&Options, &[(&str, &str)]),
        newest: u64,
    ) -> Result<Self, StartError> {
        let mut lanes = world.start_lanes(lanes + workers);
        let opened: Vec<_> = disks.iter().map(|&disk| (disk, world.open(disk))).collect();
        let members = opened.iter().map(|&(disk, (member, _))| (disk, member)).collect();
        let devices = opened.into_iter().map(|(_, device)| device).collect();
        let assembly = assemble(world, &lanes[0], devices, options)?;
        let found = assembly.start.events;
        if found < newest {
            return Err(StartError::Outdated { found, newest });
        }
        for left_out in &assembly.left_out {
            world.note(format_args!("-- {} {}", left_out.member, left_out.reason));
        }
        let left_out = assembly.left_out.into_iter().map(|left_out| left_out.member).collect();
        let array = Array::new(&assembly.start, lanes.len());
        lanes.iter().for_each(|lane| world.poke(lane.id()));
        for worker in lanes.split_off(lanes.len() - usize::from(workers)) {
            worker.spawn(ArrayLane::attach(&array, &worker).work());
        }
        let ports: Vec<_> = lanes.iter().map(|lane| ArrayLane::attach(&array, lane)).collect();
        array.control(assembly.start, &lanes[0], &ports[0]);
        for (key, value) in tuning {
            array.set(key, value).expect("values are drawn from what the keys take");
        }
        let queues = lanes.iter().map(|_| Queue::new()).collect();
        Ok(Self { world: world.clone(), array, ports, queues, members, left_out })
    }

    /// Lanes.
    pub fn lanes(&self) -> u16 {
        self.ports.len() as u16
    }

    /// Sectors of the array.
    pub fn sectors(&self) -> u64 {
        self.ports[0].sectors()
    }

    /// Smallest unit of a request, in sectors.
    pub fn block_sectors(&self) -> u64 {
        u64::from(self.ports[0].block_bytes()) / 512
    }

    /// A user's request on a lane.
    pub fn submit(&self, lane: u16, tag: u64, request: Request) {
        let lane = usize::from(lane);
        self.ports[lane].submit(&self.queues[lane], tag, request);
        self.world.poke(LaneId(lane as u16));
    }

    /// A request that ended, on whatever lane.
    pub fn pop(&self) -> Option<(u16, Completion)> {
        let queues = (0..).zip(&self.queues);
        queues.into_iter().find_map(|(lane, queue)| Some((lane, queue.pop()?)))
    }

    /// Gives the controller an order.
    pub fn command(&self, action: Action) -> Answer {
        let answer = Answer(Arc::default());
        let slot = answer.0.clone();
        let reply = Box::new(move |result| {
            *slot.lock().expect("one thread only") = Some(result);
        });
        self.array.command(Command { action, reply });
        answer
    }

    /// Has the next check or repair begin at the first sector, wherever one was cut short.
    pub fn check_from_the_start(&self) {
        self.array.set("sync_min", "0").expect("every array has a first sector");
    }

    /// Sets a key. Says whether the array takes the value.
    pub fn set(&self, key: &str, value: &str) -> bool {
        self.array.set(key, value).is_ok()
    }

    /// Has sync tasks run as fast as they can.
    pub fn sync_at_full_speed(&self) {
        self.array.set("sync_speed_max", "none").expect("no limit is a speed");
    }

    /// How often the engine came to a point, since the process runs.
    pub fn times_reached(&self, point: Point) -> u64 {
        self.array.times_reached(point)
    }

    /// Whether the array has come to rest on write-mostly members alone.
    pub fn rests_on_write_mostly_members(&self) -> bool {
        self.array.rests_on_write_mostly_members()
    }

    /// The member that a disk is, while it is open.
    pub fn member(&self, disk: DiskIndex) -> Option<MemberId> {
        self.members.get(&disk).copied()
    }

    /// Whether the array was started without a disk that was there.
    pub fn left_out(&self, disk: DiskIndex) -> bool {
        self.left_out.contains(&disk.to_string())
    }

    /// Opens a disk, to add it.
    pub fn open(&mut self, disk: DiskIndex) -> (MemberId, MemberInfo) {
        self.close(disk);
        let (member, info) = self.world.open(disk);
        self.members.insert(disk, member);
        (member, info)
    }

    /// Closes a disk, after its removal.
    pub fn close(&mut self, disk: DiskIndex) {
        if let Some(member) = self.members.remove(&disk) {
            self.world.close(member);
        }
    }
}

impl Answer {
    /// Takes the answer if it has come.
    pub fn take(&self) -> Option<Result<Reply, CommandError>> {
        self.0.lock().expect("one thread only").take()
    }
}

fn assemble(
    world: &Rc<World>,
    lane: &Rc<Lane>,
    devices: Vec<(MemberId, MemberInfo)>,
    options: &Options,
) -> Result<Assembly, StartError> {
    let found = Rc::new(RefCell::new(None));
    let (slot, task_lane, wanted) = (found.clone(), lane.clone(), options.uuid);
    lane.spawn(async move {
        *slot.borrow_mut() = Some(assembly::read_all(&task_lane, devices, wanted).await);
    });
    world.poke(lane.id());
    if !world.run_until(|| found.borrow().is_some()) {
        return Err(StartError::Stuck);
    }
    let (candidates, mut left_out) = found.take().expect("the task has ended");
    let mut assembly = assembly::decide(candidates, options)?;
    assembly.left_out.append(&mut left_out);
    Ok(assembly)
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Process on {} lanes", self.ports.len())
    }
}

#[cfg(test)]
mod tests;
