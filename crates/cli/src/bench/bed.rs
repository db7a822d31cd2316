//! An array made for measuring, and the loads that run on it.

mod setup;

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use mdspace_engine::array::{Action, Reply};
use mdspace_engine::assembly::Options;
use mdspace_engine::backend::MemberId;
use mdspace_engine::lane::{LaneId, Traffic};
use mdspace_engine::status::ArrayStatus;
use mdspace_io::{Lanes, LanesConfig, MemberTable, OpenMode, RunningArray};

use crate::args::BenchRunArgs;
use crate::failure::Failure;

use super::load::Pattern;
use super::measure::{Load, Outcome, RawMember, Until, array_load, raw_load};
use super::workload::{Side, Subject};
use super::{failed, machine, stop_lanes};

pub(super) use setup::refuse_other;
use setup::{create_array, member_names, raw_members, split_settings};

/// Requests after which an array counts as warm: every stripe of the largest stripe cache of the tables
/// was written to a few times by then.
const WARM_REQUESTS_MAX: u64 = 1 << 16;

/// An array made for measuring, on its own lanes.
pub(super) struct Bed {
    array: RunningArray,
    raw_members: Vec<RawMember>,
    ids: Vec<MemberId>,
    /// The members answer at times of a model, also while nobody has the CPU.
    modelled: bool,
}

/// A load that was started on every lane.
pub(super) struct Running {
    lanes: Receiver<Outcome>,
    left: Cell<usize>,
    sum: RefCell<Outcome>,
}

impl Bed {
    pub(super) fn new(args: &BenchRunArgs) -> Result<Self, Failure> {
        let members = MemberTable::new();
        let names = member_names(args)?;
        let mode = OpenMode { buffered: args.direct == 0, ..OpenMode::RUN };
        let mut devices = Vec::new();
        for name in &names {
            let opened = members.open(name, mode);
            let opened = opened.map_err(|error| failed("open a member", error))?;
            refuse_other(args, &members, name, opened.0)?;
            devices.push(opened);
        }
        let modelled = devices.iter().any(|(id, _)| members.is_modelled(*id));
        let config = LanesConfig {
            count: args.lanes.into(),
            cpus: machine::pinned(args.lanes.into()),
            members,
            ..LanesConfig::default()
        };
        let lanes = Lanes::start(config).map_err(|error| failed("start lanes", error))?;
        create_array(args, &lanes, &devices)?;
        let ids = devices.iter().map(|(id, _)| *id).collect();
        let (settings, live) = split_settings(&args.set)?;
        let options = Options { run: true, settings, ..Options::default() };
        let infos = devices.clone();
        let array = RunningArray::assemble(Arc::new(lanes), devices, options);
        let array = array.map_err(|error| failed("start the array", error))?;
        for (key, value) in live {
            array.set(key, value).map_err(|error| failed("set a key", error))?;
        }
        let mut bed = Self { array, raw_members: Vec::new(), ids, modelled };
        let status = bed.status()?;
        bed.raw_members = raw_members(&status, &infos);
        Ok(bed)
    }

    /// An array that is filled and has lost what it shall lose.
    pub(super) fn ready(args: &BenchRunArgs) -> Result<Self, Failure> {
        let bed = Self::new(args)?;
        bed.fill()?;
        bed.fail_members(&args.fail)?;
        Ok(bed)
    }

    pub(super) fn status(&self) -> Result<ArrayStatus, Failure> {
        match self.order(Action::Status)? {
            Reply::Status(status) => Ok(*status),
            _ => Err(failed("ask for the status", "the answer was not a status")),
        }
    }

    /// Writes the whole array once, so that no load meets memory or files that were never touched.
    pub(super) fn fill(&self) -> Result<(), Failure> {
        let pattern = Pattern::write(false);
        let block_bytes = 1 << 20;
        let blocks = self.status()?.size_sectors * 512 / block_bytes as u64;
        let (sender, receiver) = std::sync::mpsc::channel();
        let load = Load {
            pattern,
            block_bytes,
            depth: 8,
            lane: 0,
            lanes: 1,
            until: Until::Requests(blocks),
            area_bytes: None,
        };
        self.array.run_on(LaneId(0), move |port, lane, io| {
            let (port, lane, io) = (port.clone(), lane.clone(), io.clone());
            lane.clone().spawn(async move {
                let outcome = array_load(port, lane, io, load).await;
                // The caller waits below: it is there to hear.
                let _ = sender.send(outcome.errors);
            });
        });
        match receiver.recv() {
            Ok(0) => Ok(()),
            Ok(errors) => Err(failed("fill the array", format!("{errors} writes failed"))),
            Err(error) => Err(failed("fill the array", error)),
        }
    }

    pub(super) fn array(&self) -> &RunningArray {
        &self.array
    }

    /// Orders something of the array.
    pub(super) fn order(&self, action: Action) -> Result<Reply, Failure> {
        self.array.command(action).map_err(|error| failed("order something of the array", error))
    }

    /// Sets a key of the array.
    pub(super) fn set(&self, key: &str, value: &str) -> Result<(), Failure> {
        self.array.set(key, value).map_err(|error| failed("set a key", error))
    }

    /// Fails a member and lets go of it.
    pub(super) fn lose_member(&self, slot: usize) -> Result<(), Failure> {
        self.fail_members(&[slot])?;
        let member = self.ids[slot];
        self.order(Action::Remove { member })?;
        self.array.lanes().members().close(member);
        Ok(())
    }

    /// Gives an empty slot a new member; its rebuild begins.
    pub(super) fn add_member(&mut self, slot: usize, name: &str) -> Result<(), Failure> {
        let opened = self.array.lanes().members().open(name, OpenMode::RUN);
        let (member, info) = opened.map_err(|error| failed("open a member", error))?;
        self.ids[slot] = member;
        self.order(Action::Add { member, info, only_back: false }).map(drop)
    }

    /// How long the lane of sync tasks has waited for a CPU, ever.
    pub(super) fn run_delay(&self) -> Result<Duration, Failure> {
        let (sender, receiver) = std::sync::mpsc::channel();
        self.array.run_on(LaneId(0), move |_, _, _| {
            // The caller waits below: it is there to hear.
            let _ = sender.send(machine::run_delay());
        });
        receiver.recv().map_err(|error| failed("ask a lane for its times", error))
    }

    /// Of this time, in which it had to wait so long, what counts: members in memory did nothing
    /// meanwhile.
    pub(super) fn counted(&self, whole: Duration, delayed: Duration) -> Duration {
        match self.modelled {
            true => whole,
            false => whole.saturating_sub(delayed),
        }
    }

    pub(super) fn fail_members(&self, slots: &[usize]) -> Result<(), Failure> {
        for slot in slots {
            let member = *self
                .ids
                .get(*slot)
                .ok_or_else(|| failed("fail a member", "the array has no such slot"))?;
            let action = Action::Fail { member, force: false };
            self.array.command(action).map_err(|error| failed("fail a member", error))?;
        }
        Ok(())
    }

    /// Runs one load on every lane at once.
    pub(super) fn measure(
        &self,
        pattern: Pattern,
        block_bytes: usize,
        depth: usize,
        until: Until,
        side: Side,
    ) -> Outcome {
        let before = self.worker_traffic();
        let running = self.start_load(pattern, block_bytes, depth, until, side);
        let mut sum = Outcome::default();
        running.iter().for_each(|outcome| sum.add(outcome));
        let after = self.worker_traffic();
        sum.traffic.member_ios += after.member_ios - before.member_ios;
        sum.traffic.member_bytes += after.member_bytes - before.member_bytes;
        sum.traffic.copied_bytes += after.copied_bytes - before.copied_bytes;
        if self.modelled {
            sum.count_whole();
        }
        sum
    }

    /// Starts what `args` ask of the array, and does not wait for its end.
    pub(super) fn begin(&self, args: &BenchRunArgs, until: Until) -> Running {
        let (block_bytes, depth) = (args.bs.bytes(), args.iodepth.into());
        let lanes = self.start_load(args.pattern(), block_bytes, depth, until, Side::Array);
        Running { lanes, left: Cell::new(self.array.lanes().count()), sum: RefCell::default() }
    }

    /// What a load gave that was started, once all lanes are through.
    pub(super) fn ended(&self, running: &Running) -> Option<Outcome> {
        for outcome in running.lanes.try_iter() {
            running.left.set(running.left.get() - 1);
            running.sum.borrow_mut().add(outcome);
        }
        (running.left.get() == 0).then(|| {
            let mut sum = running.sum.take();
            if self.modelled {
                sum.count_whole();
            }
            sum
        })
    }

    fn start_load(
        &self,
        pattern: Pattern,
        block_bytes: usize,
        depth: usize,
        until: Until,
        side: Side,
    ) -> Receiver<Outcome> {
        let lanes = self.array.lanes().count();
        let (sender, receiver) = std::sync::mpsc::channel();
        for lane in 0..lanes {
            let load = Load {
                pattern,
                block_bytes,
                depth,
                lane: lane as u64,
                lanes: lanes as u64,
                until,
                area_bytes: None,
            };
            let (sender, members) = (sender.clone(), self.raw_members.clone());
            self.array.run_on(LaneId(lane as u16), move |port, lane, io| {
                let (port, lane, io) = (port.clone(), lane.clone(), io.clone());
                lane.clone().spawn(async move {
                    let outcome = match side {
                        Side::Array => array_load(port, lane, io, load).await,
                        Side::Raw => raw_load(members, lane, io, load).await,
                    };
                    // Who gave up waiting is not there to hear.
                    let _ = sender.send(outcome);
                });
            });
        }
        receiver
    }

    /// Runs one load straight to some members at once, each with a depth of its own, on one lane.
    pub(super) fn measure_members(
        &self,
        parts: &[(usize, usize)],
        pattern: Pattern,
        block_bytes: usize,
        until: Until,
    ) -> Outcome {
        let (sender, receiver) = std::sync::mpsc::channel();
        let (lane, lanes, area_bytes) = (0, 1, None);
        let loads = parts.iter().map(|&(member, depth)| {
            let load = Load { pattern, block_bytes, depth, lane, lanes, until, area_bytes };
            (self.raw_members[member], load)
        });
        let loads: Vec<_> = loads.collect();
        self.array.run_on(LaneId(0), move |_, lane, io| {
            for (member, load) in loads {
                let (sender, lane, io) = (sender.clone(), lane.clone(), io.clone());
                lane.clone().spawn(async move {
                    // The caller waits below: it is there to hear.
                    let _ = sender.send(raw_load(vec![member], lane, io, load).await);
                });
            }
        });
        let mut sum = Outcome::default();
        receiver.iter().for_each(|outcome| sum.add(outcome));
        if self.modelled {
            sum.count_whole();
        }
        sum
    }

    fn worker_traffic(&self) -> Traffic {
        let mut sum = Traffic::default();
        for (_, traffic) in self.array.worker_traffic() {
            sum.member_ios += traffic.member_ios;
            sum.member_bytes += traffic.member_bytes;
            sum.copied_bytes += traffic.copied_bytes;
        }
        sum
    }

    /// Runs a load until it has touched much of the array, so that no repetition is the one that finds
    /// the stripe cache empty.
    pub(super) fn warm(&self, args: &BenchRunArgs) -> Result<(), Failure> {
        let blocks = self.status()?.size_sectors * 512 / args.bs.bytes() as u64;
        let requests = blocks.min(WARM_REQUESTS_MAX) / u64::from(args.lanes);
        match self.load(args, Until::Requests(requests.max(1)), Side::Array).errors {
            0 => Ok(()),
            errors => Err(failed("warm the array up", format!("{errors} requests failed"))),
        }
    }

    /// Checks the array; gives the sectors that differ.
    pub(super) fn check(&self) -> Result<u64, Failure> {
        self.order(Action::Check)?;
        self.wait_for_sync()?;
        Ok(self.status()?.mismatch_sectors)
    }

    /// Waits until a task that was just ordered has run to its end on a whole array.
    pub(super) fn wait_for_sync(&self) -> Result<(), Failure> {
        let (mut seen, ordered) = (false, Instant::now());
        loop {
            let status = self.status()?;
            let runs = status.sync.action.runs();
            if seen && !runs && status.degraded() == 0 {
                return Ok(());
            }
            seen |= runs;
            if !seen && ordered.elapsed() > Duration::from_secs(5) {
                return Err(failed("measure a sync task", "it does not start"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Subject for Bed {
    fn load(&self, args: &BenchRunArgs, until: Until, side: Side) -> Outcome {
        self.measure(args.pattern(), args.bs.bytes(), args.iodepth.into(), until, side)
    }

    fn stop(self) -> Result<(), Failure> {
        let lanes = self.array.lanes().clone();
        self.array.stop().map_err(|error| failed("stop the array", error))?;
        Arc::into_inner(lanes).map_or(Ok(()), stop_lanes)
    }
}
