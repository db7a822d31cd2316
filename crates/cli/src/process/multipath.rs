//! The process that serves a multipath device that stands alone.

use std::io;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use mdspace_engine::backend::{IoOp, MemberId, MemberIo, Patience, ReadInto};
use mdspace_engine::lane::LaneId;
use mdspace_engine::paths::{Paths, Policy};
use mdspace_front::device::Device;
use mdspace_front::flushes::Flushes;
use mdspace_front::identity::Identity;
use mdspace_front::nbd::{BlockSizes, Export, Exports};
use mdspace_io::{Lanes, LanesConfig, MultipathSpec, OpenMode, read_text};

use super::descriptors::{self, Needs};
use super::ending::{self, Ending, Served};
use super::fronts::{Fronts, Next, Prepared};
use super::recorder::Recorder;
use super::{Seat, answers, array, keeper, state_dir};
use crate::args::{ArrayName, MultipathArgs};
use crate::control::client::no_array;
use crate::control::server::{Answer, Listener, Replies};
use crate::control::{Reply, Request};
use crate::events::Happened;
use crate::failure::Failure;
use crate::member_probe::{Purpose, once_free, refused};
use crate::report::DeviceReport;
use crate::run_dir::{NameLock, RunDir};

/// How long paths may take to prove what they lead to, before the device is served.
const PROOF_PATIENCE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Time between two looks for events.
const EVENTS_EVERY: Duration = Duration::from_millis(200);

/// Events that whoever starts the device is told at once.
const NOTED: [&str; 4] = ["PathUnproved", "PathTwice", "LateWritesRecalled", "PathNotFlushed"];

/// One device, served.
struct MultipathProcess {
    name: ArrayName,
    run_dir: RunDir,
    needs: Needs,
    /// The paths are opened to be read only.
    read_only: bool,
    paths: Arc<Paths>,
    device: Mutex<Option<Device>>,
    fronts: Fronts,
    recorder: Recorder,
    ending: Ending,
}

/// Serves until someone stops it.
pub(crate) fn serve(
    args: &MultipathArgs,
    seat: Seat,
    run_dir: &RunDir,
) -> Result<ExitCode, Failure> {
    let (name, what) = (&args.name, format!("cannot serve {}", args.name));
    let system = |error: io::Error| Failure::new(what.clone(), error, "see `mdspace doctor`");
    let Some(lock) = run_dir.try_lock(name).map_err(system)? else {
        let cure = format!("stop it with `mdspace stop {name}`, or choose another name");
        return Err(Failure::new(what, format!("{name} runs already"), cure));
    };
    let lock = Arc::new(lock);
    let served = seat.with_log(name, run_dir, |without_log| {
        serve_with_log(args, seat, run_dir, &lock, without_log)
    });
    ending::hold_to_the_end(lock, served.is_err());
    served
}

fn serve_with_log(
    args: &MultipathArgs,
    seat: Seat,
    run_dir: &RunDir,
    lock: &Arc<NameLock>,
    without_log: Option<String>,
) -> Result<ExitCode, Failure> {
    let (name, what) = (&args.name, format!("cannot serve {}", args.name));
    let system = |error: io::Error| Failure::new(what.clone(), error, "see `mdspace doctor`");
    let signals = ending::signals().map_err(system)?;
    let fronts = args
        .fronts()
        .map(|front| Prepared::new(&front, name, run_dir))
        .collect::<Result<Vec<_>, _>>()?;
    let (recorder, without_events) = Recorder::open(name, run_dir, false);
    let process = MultipathProcess::start(args, run_dir, recorder, &what)?;
    let mut notes = process.notes();
    notes.extend(without_log.into_iter().chain(without_events));
    let open_doors = || {
        for front in fronts {
            notes.push(process.open_front(front)?);
        }
        let listener = Listener::bind(&run_dir.socket(name)).map_err(system)?;
        listener.spawn(process.clone()).map_err(system)?;
        process.clone().watch_events().map_err(system)?;
        let listener = Arc::new(listener);
        keeper::spawn(process.clone(), lock, &listener).map_err(system)?;
        Ok(listener)
    };
    let _listener = match open_doors() {
        Ok(listener) => listener,
        Err(failure) => {
            process.end_early(lock)?;
            return Err(failure);
        }
    };
    notes.iter().for_each(|note| tracing::info!("{note}"));
    if let Err(error) = seat.say_ready(notes, Vec::new()) {
        tracing::warn!("nobody waits for {name} any more: {error}");
        process.end_early(lock)?;
        return Ok(ExitCode::FAILURE);
    }
    ending::stop_on(process.clone(), signals).map_err(system)?;
    process.ending.wait();
    process.ending.leave_name(lock);
    Ok(ExitCode::SUCCESS)
}

/// What the command line, or the file that it names, describes.
fn spec(args: &MultipathArgs, what: &str) -> Result<MultipathSpec, Failure> {
    let wrong = |why: String| Failure::new(what, why, "docs/admin.md has an example of each");
    if let Some(file) = &args.file {
        let name = file.display();
        let text = read_text(file).map_err(|error| wrong(format!("{name}: {error}")))?;
        return MultipathSpec::parse(&text).map_err(|why| wrong(format!("{name}: {why}")));
    }
    let usual = Policy::default();
    let policy = Policy {
        no_path_retry: match args.no_path_retry {
            None => usual.no_path_retry,
            checks => checks.filter(|checks| *checks > 0),
        },
        polling_interval: args.polling_interval.unwrap_or(usual.polling_interval),
        failback: args.failback.unwrap_or(usual.failback),
        read_deadline: args.read_deadline.unwrap_or(usual.read_deadline),
        write_deadline: args.write_deadline.unwrap_or(usual.write_deadline),
        cache: args.cache.unwrap_or(usual.cache),
    };
    let table = args.dm_table.clone().expect("one of the two is required");
    let mut spec = MultipathSpec::new(table, policy);
    spec.fences.fill(args.fence.clone());
    Ok(spec)
}

impl MultipathProcess {
    fn start(
        args: &MultipathArgs,
        run_dir: &RunDir,
        recorder: Recorder,
        what: &str,
    ) -> Result<Arc<Self>, Failure> {
        let spec = spec(args, what)?;
        let paths = descriptors::names(&spec);
        let paths = paths.iter().map(String::as_str);
        let needs = Needs::new(args.lanes, paths, args.fronts().count());
        needs.provide(what)?;
        let config = LanesConfig { count: args.lanes.into(), ..LanesConfig::default() };
        let members = config.members.clone();
        let lanes = Lanes::start(config)
            .map_err(|error| Failure::new(what, error, "see `mdspace doctor`"))?;
        members.keep_unproved(state_dir::unproved());
        members.share_exports();
        let mode = OpenMode { read_only: args.readonly, ..OpenMode::RUN };
        let opened = once_free(|| members.open_multipath(args.name.as_str(), &spec, mode));
        let (member, paths) = opened.map_err(|error| refused(error, &Purpose::known(what)))?;
        let info = paths.info().clone();
        let device = Device { lanes: Arc::new(lanes), member, info, flushes: Flushes::default() };
        let process = Arc::new(Self {
            name: args.name.clone(),
            run_dir: run_dir.clone(),
            needs,
            read_only: args.readonly,
            paths,
            device: Mutex::new(Some(device)),
            fronts: Fronts::default(),
            recorder,
            ending: Ending::default(),
        });
        process.wait_for_proofs(member, what)?;
        Ok(process)
    }

    /// Waits until each path has been looked at. One that leads elsewhere is a mistake to be told now.
    fn wait_for_proofs(&self, member: MemberId, what: &str) -> Result<(), Failure> {
        if let Some(device) = &*self.device() {
            let bytes = device.info.logical_block_bytes as usize;
            // The first I/O makes a lane look after the paths. No flush: what it is told is told once, and is for
            // the device's users.
            device.lanes.run_on(LaneId(0), move |lane, _| {
                let into = ReadInto::Buffer(lane.backend().allocate(bytes), 0..bytes);
                let op = IoOp::Read { sector: 0, into };
                let io = MemberIo { member, op, patience: Patience::FOREVER };
                let first = lane.clone();
                lane.spawn(async move { drop(first.io(io).await) });
            });
        }
        let until = Instant::now() + PROOF_PATIENCE;
        while !self.paths.is_settled() && Instant::now() < until {
            thread::sleep(LOOK_EVERY);
        }
        let status = self.paths.status();
        let mut paths = status.groups.iter().flat_map(|group| &group.paths);
        match paths.find(|path| path.state == "refused") {
            None => Ok(()),
            Some(path) => {
                let why = format!("{}: {}", path.member, path.reason);
                self.stop(true, Next::Stopped)?;
                Err(Failure::new(what, why, "list only paths to one device"))
            }
        }
    }

    fn notes(&self) -> Vec<String> {
        let status = self.paths.status();
        let paths: Vec<_> = status.groups.iter().flat_map(|group| &group.paths).collect();
        let active = paths.iter().filter(|path| path.state == "active").count();
        let started = format!("{}: started with {active} of {} paths", self.name, paths.len());
        std::iter::once(started).chain(told_at_once(&self.paths)).collect()
    }

    fn open_front(&self, front: Prepared) -> Result<String, Failure> {
        let Some(device) = self.device().clone() else {
            return Err(Failure::new("no front opens", "the device is stopped", "start it again"));
        };
        let failed = |error| Failure::new("cannot export the device", error, "report it");
        let block = device.info.logical_block_bytes;
        let export = Export {
            name: self.name.to_string(),
            description: format!("multipath {}", self.name),
            size_bytes: device.info.sectors * 512,
            block_sizes: BlockSizes::new(block, block.max(4096)).map_err(failed)?,
            read_only: self.read_only,
            rotational: device.info.rotational,
            trim: true,
            fast_zero: false,
        };
        let exports = Exports::new(vec![export]).map_err(failed)?;
        let exports = exports.with_lineage(device.lanes.members().lineage());
        let identity = Identity::of_multipath(self.name.as_str());
        self.fronts.serve(front, &self.name, identity, exports, &device)
    }

    fn report(&self, claims: bool) -> DeviceReport {
        let size_bytes = self.paths.info().sectors * 512;
        let fronts = self.fronts.report(claims);
        DeviceReport::new(self.name.as_str(), size_bytes, self.paths.status(), fronts)
    }

    fn watch_events(self: Arc<Self>) -> io::Result<()> {
        thread::Builder::new().name("events".into()).spawn(move || {
            let mut last = 0;
            loop {
                last = self.record_events(last);
                if !self.recorder.pause(EVENTS_EVERY) {
                    return;
                }
            }
        })?;
        Ok(())
    }

    fn record_events(&self, after: u64) -> u64 {
        let events = self.paths.events_after(after);
        let last = events.last().map_or(after, |event| event.sequence);
        self.recorder.record(events.into_iter().map(Happened::from).collect());
        last
    }

    fn act(&self, request: Request) -> Result<Reply, Failure> {
        if !matches!(request, Request::Detail { .. }) {
            tracing::info!("ordered: {request:?}");
        }
        match request {
            Request::Detail { claims } => {
                Ok(Reply::Device { report: Box::new(self.report(claims)) })
            }
            Request::Message { words, .. } => {
                answers::message(&self.paths, &words).map(|()| Reply::done())
            }
            Request::Serve { front } => {
                let what = format!("cannot serve {} at {front}", self.name);
                self.needs.with_fronts(self.fronts.addresses().len() + 1).provide(&what)?;
                let front = Prepared::new(&answers::address(&front)?, &self.name, &self.run_dir)?;
                Ok(Reply::Done { notes: vec![self.open_front(front)?] })
            }
            Request::Unserve { front, force } => self
                .fronts
                .close(&answers::address(&front)?, &self.name, force)
                .map(|()| Reply::done()),
            _ => Err(no_array(&self.name)),
        }
    }

    fn device(&self) -> MutexGuard<'_, Option<Device>> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What has happened to paths so far, as far as whoever starts the device is to know it.
pub(super) fn told_at_once(paths: &Paths) -> impl Iterator<Item = String> {
    let noted = paths.events_after(0).into_iter().filter(|event| NOTED.contains(&event.event));
    noted.map(|event| format!("{}: {}", event.member.unwrap_or_default(), event.note))
}

impl Served for MultipathProcess {
    fn name(&self) -> &ArrayName {
        &self.name
    }

    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn ending(&self) -> &Ending {
        &self.ending
    }

    fn fronts(&self) -> &Fronts {
        &self.fronts
    }

    fn stop_served(&self, _: bool) -> Vec<String> {
        let note = |(range, path): (Range<u64>, String)| {
            format!("a write to sectors {range:?}, sent over {path}, may still appear")
        };
        let notes = self.paths.status().unproved.into_iter().map(note).collect();
        if let Some(device) = self.device().take() {
            let members = device.lanes.members().clone();
            members.close(device.member);
            array::end_lanes(device.lanes);
            self.ending.note_members(&members);
        }
        notes
    }
}

impl Answer for MultipathProcess {
    fn answer(&self, request: Request, replies: &mut Replies<'_>) -> io::Result<()> {
        match request {
            Request::Events { follow } => self.recorder.tell(follow, replies),
            Request::Stop { force, .. } => self.stop_and_tell(force, replies),
            other => replies.send(&answers::reply(self.act(other))),
        }
    }

    fn sign_of_life(&self, given: Box<dyn FnOnce() + Send>) {
        // It is held for long by a stop alone.
        let device = self.device.try_lock();
        match device.as_deref() {
            Ok(Some(device)) => device.lanes.when_all_turn(given),
            _ => given(),
        }
    }
}
