//! A multipath device made for measuring, beside the member that its paths lead to.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mdspace_engine::backend::{IoOp, MemberId, MemberIo, Patience};
use mdspace_engine::lane::LaneId;
use mdspace_engine::paths::{Paths, Policy, Table};
use mdspace_io::{Lanes, LanesConfig, MemberTable, MultipathSpec, OpenMode};

use crate::args::BenchRunArgs;
use crate::failure::Failure;

use super::bed::refuse_other;
use super::load::Pattern;
use super::measure::{Load, Outcome, RawMember, Until, raw_load_behind};
use super::workload::{Side, Subject};
use super::{failed, machine, stop_lanes};

/// How long paths may take to prove what they lead to.
const PROOF_PATIENCE: Duration = Duration::from_secs(10);

/// How the member is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Without paths.
    Raw,
    /// Over the paths, each lane by itself.
    Paths,
    /// Over the paths, each request handed over behind one lock of all lanes.
    PathsBehindLock,
}

/// A multipath device on its own lanes. All its paths are the same member, so that what it costs is
/// the choosing alone.
pub(super) struct PathsBed {
    lanes: Lanes,
    paths: Arc<Paths>,
    device: RawMember,
    member: RawMember,
    lock: Arc<Mutex<()>>,
    modelled: bool,
}

impl PathsBed {
    /// A device as `args` ask for, on pinned lanes; the member is written once.
    pub(super) fn new(args: &BenchRunArgs) -> Result<Self, Failure> {
        Self::on(args, machine::pinned(args.lanes.into()))
    }

    /// The same on these CPUs, or wherever the kernel puts the lanes where there are none.
    pub(super) fn on(args: &BenchRunArgs, cpus: Vec<usize>) -> Result<Self, Failure> {
        let [member] = args.member.as_slice() else {
            return Err(failed("make paths", "all paths lead to one member"));
        };
        let selector = args.multipath.as_deref().unwrap_or("service-time");
        let spec = spec(selector, member, args.paths)?;
        let members = MemberTable::new();
        let config = LanesConfig {
            count: args.lanes.into(),
            cpus,
            members: members.clone(),
            ..LanesConfig::default()
        };
        let lanes = Lanes::start(config).map_err(|error| failed("start lanes", error))?;
        let mode = OpenMode { buffered: args.direct == 0, ..OpenMode::RUN };
        let opened = members.open_multipath("bench", &spec, mode);
        let (device, paths) = opened.map_err(|error| failed("open the paths", error))?;
        let id = paths.members()[0];
        refuse_other(args, &members, member, id)?;
        let sectors = paths.info().sectors;
        let whole = |id: MemberId| RawMember { id, first_sector: 0, sectors };
        let modelled = members.is_modelled(id);
        let (device, member) = (whole(device), whole(id));
        let bed = Self { lanes, paths, device, member, lock: Arc::default(), modelled };
        bed.fill()?;
        bed.wait_for_proofs()?;
        Ok(bed)
    }

    /// Writes the whole member once: memory that was never touched is no member.
    fn fill(&self) -> Result<(), Failure> {
        let block_bytes = 1 << 20;
        let until = Until::Requests((self.member.sectors * 512 / block_bytes as u64).max(1));
        let load = self.load_of(Pattern::write(false), block_bytes, 8, until);
        match self.measure(load, 1, Way::Raw).errors {
            0 => Ok(()),
            errors => Err(failed("fill the member", format!("{errors} writes failed"))),
        }
    }

    /// The first I/O makes a lane look after the paths; requests before the end of that would wait.
    fn wait_for_proofs(&self) -> Result<(), Failure> {
        let member = self.device.id;
        self.lanes.run_on(LaneId(0), move |lane, _| {
            let io = MemberIo { member, op: IoOp::Flush, patience: Patience::FOREVER };
            let first = lane.clone();
            lane.spawn(async move { drop(first.io(io).await) });
        });
        let until = Instant::now() + PROOF_PATIENCE;
        while !self.paths.is_settled() {
            if Instant::now() > until {
                return Err(failed("prove the paths", "they do not answer"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn load_of(&self, pattern: Pattern, block_bytes: usize, depth: usize, until: Until) -> Load {
        Load { pattern, block_bytes, depth, lane: 0, lanes: 1, until, area_bytes: None }
    }

    /// One repetition of what `args` ask for, on every lane at once.
    pub(super) fn run(&self, args: &BenchRunArgs, until: Until, way: Way) -> Outcome {
        let load = self.load_of(args.pattern(), args.bs.bytes(), args.iodepth.into(), until);
        self.measure(load, self.lanes.count(), way)
    }

    fn measure(&self, load: Load, lanes: usize, way: Way) -> Outcome {
        let (sender, receiver) = channel();
        let member = if way == Way::Raw { self.member } else { self.device };
        for lane in 0..lanes {
            let load = Load { lane: lane as u64, lanes: lanes as u64, ..load };
            let lock = (way == Way::PathsBehindLock).then(|| self.lock.clone());
            let sender = sender.clone();
            self.lanes.run_on(LaneId(lane as u16), move |lane, io| {
                let (lane, io) = (lane.clone(), io.clone());
                lane.clone().spawn(async move {
                    let outcome = raw_load_behind(lock, vec![member], lane, io, load).await;
                    // The caller waits below: it is there to hear.
                    let _ = sender.send(outcome);
                });
            });
        }
        drop(sender);
        let mut sum = Outcome::default();
        receiver.iter().for_each(|outcome| sum.add(outcome));
        if self.modelled {
            sum.count_whole();
        }
        sum
    }
}

impl Subject for PathsBed {
    fn load(&self, args: &BenchRunArgs, until: Until, side: Side) -> Outcome {
        let way = match side {
            Side::Raw => Way::Raw,
            Side::Array => Way::Paths,
        };
        self.run(args, until, way)
    }

    fn stop(self) -> Result<(), Failure> {
        self.lanes.members().close(self.device.id);
        stop_lanes(self.lanes)
    }
}

/// One group of paths, each of them to the same member.
fn spec(selector: &str, member: &str, paths: u8) -> Result<MultipathSpec, Failure> {
    let list = vec![member; paths.into()].join(" ");
    let line = format!("0 1 multipath 0 0 1 1 {selector} 0 {paths} 0 {list}");
    let table = line.parse::<Table>().map_err(|error| failed("make paths", error))?;
    // As large as the member.
    let table = Table { sectors: 0, ..table };
    Ok(MultipathSpec::new(table, Policy::default()))
}
