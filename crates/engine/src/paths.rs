//! One device behind several paths, as dm-multipath.
//!
//! ```text
//! table: what the user asks ── Paths: the owner of every path's state ── view ──▶ PathLane, one a lane
//!                                 ▲ events                                          │ requests
//!                              watch: is a path alive, and is it the same device?   ▼ paths (members)
//! ```
//!
//! A multipath device is a member made of members: a backend that is asked for an I/O of it hands it
//! to the lane's [`PathLane`], which asks one of the paths, on the same lane, through the same backend.
//! A request looks at the lane's view, chooses by the lane's own counters and writes nothing that
//! another lane reads or writes; whether the view is of today, one load tells. What goes wrong becomes
//! an event for [`Paths`], the one owner of the paths' states, and a task that asks another path.
//!
//! `late` holds the rule on writes that were sent and not answered; `watch` how paths come back.

mod group;
mod identity;
mod kept;
mod late;
mod message;
mod path_lane;
mod selector;
mod status;
pub mod table;
mod view;
mod watch;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{MemberId, MemberInfo};
use crate::lane::LaneId;
use crate::signal::Signal;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::time::Time;

use identity::Identity;
use late::{LateId, LateWrites};
use selector::LaneCounters;
use view::{Usable, View};

pub use path_lane::PathLane;
pub use status::{GroupStatus, PathEvent, PathStatus, PathsStatus};
pub use table::Table;

/// Events kept for those who ask later.
const EVENTS_KEPT: usize = 1000;

/// What the user wants beside the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How many checks long requests wait while there is no path. `None`: not at all.
    pub no_path_retry: Option<u32>,
    /// Time between two checks of a path.
    pub polling_interval: Duration,
    /// When a better group is used again.
    pub failback: Failback,
    /// How long a read may take over a path behind a network before another path is asked.
    pub read_deadline: Duration,
    /// As `read_deadline`, for writes and flushes.
    pub write_deadline: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            no_path_retry: Some(12),
            polling_interval: Duration::from_secs(5),
            failback: Failback::Manual,
            read_deadline: Duration::from_secs(5),
            write_deadline: Duration::from_secs(10),
        }
    }
}

/// When a better group that has a path again is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failback {
    /// When the operator says so.
    Manual,
    /// At once.
    Immediate,
    /// After it has had one for so long.
    After(Duration),
}

/// What only the outside can do for a device. Nothing here may wait: the answers come by
/// [`Paths::opened`] and [`Paths::fenced`], from any thread.
pub trait Host: Send + Sync {
    /// Connects a path anew, whose connection was lost; its old member may be closed.
    fn reopen(&self, paths: &Arc<Paths>, path: usize);

    /// Sees to it that nothing sent over a path can be done any more. False: it cannot.
    fn fence(&self, paths: &Arc<Paths>, path: usize) -> bool;

    /// Keeps the sectors where writes that were sent over a path may still appear, in the place of those
    /// kept before, for [`Paths::recall`] by a later process.
    fn keep(&self, _path: usize, _unproved: Vec<Range<u64>>) {}
}

/// A multipath device, shared by all lanes.
pub struct Paths {
    info: MemberInfo,
    table: Table,
    policy: Policy,
    /// Which group each path is in.
    group_of: Vec<usize>,
    /// Changes with each view.
    generation: AtomicU64,
    flags: AtomicU32,
    owner: Mutex<Owner>,
    /// A view was published, or the watch has something to do.
    changed: Signal,
    counters: Mutex<Vec<Arc<LaneCounters>>>,
    host: Box<dyn Host>,
}

/// Bits of `flags`.
mod flag {
    pub(super) const QUEUE_IF_NO_PATH: u32 = 1;
    pub(super) const CLOSED: u32 = 2;
    pub(super) const WATCHED: u32 = 4;
}

/// What changes, and who may change it: whoever holds the lock.
struct Owner {
    view: Arc<View>,
    paths: Vec<OwnedPath>,
    disabled: Vec<bool>,
    current: Option<usize>,
    /// The group to use next, if it can be.
    wanted: Option<usize>,
    late: LateWrites,
    /// What the host keeps of these, by path.
    kept: Vec<Vec<Range<u64>>>,
    /// What the device's last proved path said.
    known: Option<Identity>,
    no_path_since: Option<Time>,
    /// Waiting has taken too long: requests fail until a path is back.
    gave_up: bool,
    failback_at: Option<Time>,
    events: VecDeque<PathEvent>,
    last_event: u64,
}

struct OwnedPath {
    member: Option<(MemberId, MemberInfo)>,
    remote: bool,
    health: Health,
    reason: String,
    failures: u32,
    /// Its connection is lost: it needs a new one.
    lost: bool,
    /// The answer to the latest wish for one.
    reopened: Option<Result<(), String>>,
    checking: bool,
    /// To be checked at once.
    urgent: bool,
    fencing: bool,
}

/// How a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    /// Not known yet to lead to the device.
    Joining,
    Active,
    Failed,
    /// Failed by the operator, who alone can bring it back.
    FailedByWord,
    /// It leads to another device.
    Refused,
}

impl Health {
    fn word(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Active => "active",
            Self::Failed | Self::FailedByWord => "failed",
            Self::Refused => "refused",
        }
    }
}

/// Why a device cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathsError {
    /// The paths lead to devices of different sizes.
    #[error("{one} has {one_sectors} sectors and {other} {other_sectors}: they are not one device")]
    Sizes {
        /// A path.
        one: String,
        /// Its device's size.
        one_sectors: u64,
        /// Another path.
        other: String,
        /// Its device's size.
        other_sectors: u64,
    },
    /// The table asks for more than there is.
    #[error("the table says {table} sectors, the paths' device has {device}")]
    TooSmall {
        /// Sectors of the table.
        table: u64,
        /// Sectors of the device.
        device: u64,
    },
    /// No path could be opened.
    #[error("no path can be opened: {0}")]
    NoPath(String),
}

impl Paths {
    /// A device of `table`, whose paths are open or could not be opened, in the table's order. Each
    /// waits for its identity to be proved.
    pub fn new(
        name: &str,
        table: Table,
        policy: Policy,
        opened: Vec<Result<(MemberId, MemberInfo), String>>,
        remote: &[bool],
        host: Box<dyn Host>,
    ) -> Result<Arc<Self>, PathsError> {
        let info = common_info(name, &table, &opened)?;
        let group_of: Vec<usize> = table.paths().map(|(group, _)| group).collect();
        let own = |(opened, &remote): (Result<_, String>, &bool)| OwnedPath::new(opened, remote);
        let paths: Vec<OwnedPath> = opened.into_iter().zip(remote).map(own).collect();
        assert_eq!(paths.len(), group_of.len(), "one answer a path");
        let queueing = table.features.queue_if_no_path;
        let owner = Owner {
            view: Arc::new(View::closed()),
            paths,
            disabled: vec![false; table.groups.len()],
            current: None,
            wanted: Some(table.initial_group - 1),
            late: LateWrites::default(),
            kept: vec![Vec::new(); group_of.len()],
            known: None,
            no_path_since: None,
            gave_up: false,
            failback_at: None,
            events: VecDeque::new(),
            last_event: 0,
        };
        let this = Arc::new(Self {
            info,
            table,
            policy,
            group_of,
            generation: AtomicU64::new(0),
            flags: AtomicU32::new(if queueing { flag::QUEUE_IF_NO_PATH } else { 0 }),
            owner: Mutex::new(owner),
            changed: Signal::default(),
            counters: Mutex::default(),
            host,
        });
        this.publish(&mut this.owner.lock(), Time::ZERO);
        Ok(this)
    }

    /// Takes up what the host kept of a path, before the first request: what an earlier process sent over
    /// it may still appear.
    pub fn recall(&self, path: usize, unproved: Vec<Range<u64>>) {
        if unproved.is_empty() {
            return;
        }
        let mut owner = self.owner.lock();
        unproved.iter().for_each(|range| owner.late.recall(path, range.clone()));
        let note = format!("{} writes of an earlier process may still appear", unproved.len());
        owner.kept[path] = unproved;
        self.tell(&mut owner, "LateWritesRecalled", Some(path), note);
        self.publish(&mut owner, Time::ZERO);
    }

    /// Has the host keep which writes may still appear, where that has changed.
    fn keep_late_writes(&self, owner: &mut Owner) {
        for (path, kept) in owner.kept.iter_mut().enumerate() {
            let now = owner.late.ranges(path);
            if *kept != now {
                kept.clone_from(&now);
                self.host.keep(path, now);
            }
        }
    }

    /// What it can do.
    pub fn info(&self) -> &MemberInfo {
        &self.info
    }

    /// The members of its paths that are open.
    pub fn members(&self) -> Vec<MemberId> {
        let owner = self.owner.lock();
        owner.paths.iter().filter_map(|path| path.member.as_ref().map(|(id, _)| *id)).collect()
    }

    /// The member of a path, and what its user calls it.
    pub fn path(&self, path: usize) -> (Option<MemberId>, String) {
        let member = self.owner.lock().paths[path].member.as_ref().map(|(id, _)| *id);
        (member, self.name_of(path).to_owned())
    }

    /// Ends it: requests that wait end as gone, and nothing is checked any more.
    pub fn close(&self) {
        self.flags.fetch_or(flag::CLOSED, Ordering::AcqRel);
        self.publish(&mut self.owner.lock(), Time::ZERO);
    }

    /// Whether it has ended.
    pub fn is_closed(&self) -> bool {
        self.has(flag::CLOSED)
    }

    fn has(&self, flag: u32) -> bool {
        self.flags.load(Ordering::Acquire) & flag != 0
    }

    /// Whether every path's identity has been looked at once.
    pub fn is_settled(&self) -> bool {
        let owner = self.owner.lock();
        owner.paths.iter().all(|path| path.health != Health::Joining)
    }

    fn name_of(&self, path: usize) -> &str {
        &self.spec(path).member
    }

    fn spec(&self, path: usize) -> &table::PathSpec {
        self.table.paths().nth(path).expect("a path of the table").1
    }

    fn find(&self, member: &str) -> Option<usize> {
        self.table.paths().position(|(_, path)| path.member == member)
    }

    /// The answer to [`Host::reopen`]. False: the device is closed meanwhile, and what was opened is to
    /// be closed too.
    #[must_use]
    pub fn opened(&self, path: usize, opened: Result<(MemberId, MemberInfo), String>) -> bool {
        let mut owner = self.owner.lock();
        if self.is_closed() {
            return false;
        }
        let own = &mut owner.paths[path];
        own.reopened = Some(opened.map(|member| {
            own.member = Some(member);
            own.lost = false;
        }));
        drop(owner);
        self.changed.notify();
        true
    }

    /// The answer to [`Host::fence`], or the operator's word: nothing that was sent over a path can be
    /// done any more. Its connection is not used again either.
    pub fn fenced(&self, path: usize, done: Result<(), String>, now: Time) {
        let mut owner = self.owner.lock();
        let own = &mut owner.paths[path];
        own.fencing = false;
        match done {
            Ok(()) => {
                own.lost |= own.remote;
                if own.health == Health::Active && own.remote {
                    own.health = Health::Failed;
                    own.reason = "to be connected anew".into();
                }
                let proved = owner.late.fenced(path);
                let note = format!("{proved} writes can no longer appear");
                self.tell(&mut owner, "PathFenced", Some(path), note);
            }
            Err(why) => self.tell(&mut owner, "FenceFailed", Some(path), why),
        }
        self.publish(&mut owner, now);
    }

    /// A path did not do what it was asked. `lost`: its connection is of no more use.
    fn fail(&self, path: usize, member: Option<MemberId>, why: &str, lost: bool, now: Time) {
        let mut owner = self.owner.lock();
        let own = &mut owner.paths[path];
        let is_this = |id: MemberId| own.member.as_ref().is_none_or(|(known, _)| *known == id);
        if !member.is_none_or(is_this) {
            // News of a connection that has been replaced.
            return;
        }
        own.lost |= lost && own.remote;
        if own.health == Health::Active || own.health == Health::Joining {
            own.health = Health::Failed;
            own.failures += 1;
            own.reason = why.into();
            self.tell(&mut owner, "PathFailed", Some(path), why.into());
            self.publish(&mut owner, now);
        }
    }

    /// A write was sent over a path and not answered.
    fn add_late(
        self: &Arc<Self>,
        path: usize,
        member: MemberId,
        lane: LaneId,
        range: Range<u64>,
        lost: bool,
        now: Time,
    ) -> LateId {
        let mut owner = self.owner.lock();
        let id = owner.late.add(path, member, lane, range, lost);
        let fence = !std::mem::replace(&mut owner.paths[path].fencing, true);
        self.publish(&mut owner, now);
        drop(owner);
        if fence && !self.host.fence(self, path) {
            self.owner.lock().paths[path].fencing = false;
        }
        id
    }

    /// All that a lane sent over a connection was answered, or it is `lost`.
    fn settle_late(&self, member: MemberId, lane: LaneId, lost: bool, now: Time) {
        let mut owner = self.owner.lock();
        if lost {
            owner.late.lost(member, lane);
        } else if owner.late.answered(member, lane) {
            let note = "late writes were answered after all".to_owned();
            self.tell(&mut owner, "LateWritesProved", None, note);
        }
        self.publish(&mut owner, now);
    }

    fn reinstate(&self, path: usize, note: &str, now: Time) {
        let mut owner = self.owner.lock();
        let own = &mut owner.paths[path];
        let joined = own.health == Health::Joining;
        own.health = Health::Active;
        own.reason.clear();
        if !joined {
            self.tell(&mut owner, "PathReinstated", Some(path), note.into());
        }
        self.publish(&mut owner, now);
    }

    fn refuse(&self, path: usize, why: String, now: Time) {
        let mut owner = self.owner.lock();
        let own = &mut owner.paths[path];
        // What leads elsewhere today may lead here tomorrow, over a connection of its own.
        own.lost |= own.remote;
        if own.health != Health::Refused || own.reason != why {
            own.health = Health::Refused;
            own.reason.clone_from(&why);
            self.tell(&mut owner, "PathRefused", Some(path), why);
        }
        self.publish(&mut owner, now);
    }

    fn tell(&self, owner: &mut Owner, event: &'static str, path: Option<usize>, note: String) {
        owner.last_event += 1;
        let member = path.map(|path| self.name_of(path).to_owned());
        owner.events.push_back(PathEvent { sequence: owner.last_event, event, member, note });
        if owner.events.len() > EVENTS_KEPT {
            owner.events.pop_front();
        }
    }

    /// Events after `sequence` that are still kept.
    pub fn events_after(&self, sequence: u64) -> Vec<PathEvent> {
        let owner = self.owner.lock();
        owner.events.iter().filter(|event| event.sequence > sequence).cloned().collect()
    }

    /// Chooses the group to use, and shows lanes how things are now.
    fn publish(&self, owner: &mut Owner, now: Time) {
        self.choose_group(owner, now);
        self.keep_late_writes(owner);
        let usable = |group: Option<usize>| {
            let here = move |path: &usize| Some(self.group_of[*path]) == group;
            let paths = (0..owner.paths.len()).filter(here);
            paths.filter_map(|path| self.usable(owner, path)).collect::<Vec<_>>()
        };
        let others = (0..self.table.groups.len()).filter(|group| Some(*group) != owner.current);
        let others = others.flat_map(|group| usable(Some(group))).collect();
        let selector = &self.table.groups[owner.current.unwrap_or(0)].selector;
        let generation = owner.view.generation + 1;
        owner.view = Arc::new(View {
            generation,
            selector: *selector,
            usable: usable(owner.current),
            others,
            late: owner.late.iter().map(|late| (late.id, late.range.clone())).collect(),
            waits: self.has(flag::QUEUE_IF_NO_PATH)
                && self.policy.no_path_retry.is_some()
                && !owner.gave_up,
            closed: self.is_closed(),
        });
        // After the view is there: whoever sees the number finds the view.
        self.generation.store(generation, Ordering::Release);
        self.changed.notify();
    }

    fn usable(&self, owner: &Owner, path: usize) -> Option<Usable> {
        let own = &owner.paths[path];
        let (member, _) = own.member.as_ref().filter(|_| own.health == Health::Active)?;
        let spec = self.spec(path);
        Some(Usable {
            path,
            member: *member,
            remote: own.remote,
            relative_throughput: spec.relative_throughput,
            lanes: spec.lanes,
        })
    }

    /// What happens to requests without a path, in words.
    fn queueing(&self, owner: &Owner) -> String {
        match self.policy.no_path_retry.filter(|_| self.has(flag::QUEUE_IF_NO_PATH)) {
            None => "requests fail while there is no path".into(),
            Some(_) if owner.gave_up => {
                "requests fail: they have waited for a path long enough".into()
            }
            Some(_) => {
                let span = self.wait_max().as_secs_f64();
                format!("requests wait for a path, {span} s at most")
            }
        }
    }

    /// How long requests wait for a path, or for the proof of an earlier write.
    fn wait_max(&self) -> Duration {
        self.policy.polling_interval * self.policy.no_path_retry.unwrap_or(0)
    }

    fn add_lane(&self) -> Arc<LaneCounters> {
        let counters = Arc::new(LaneCounters::new(self.group_of.len()));
        self.counters.lock().push(counters.clone());
        counters
    }
}

impl OwnedPath {
    fn new(opened: Result<(MemberId, MemberInfo), String>, remote: bool) -> Self {
        let (member, health, reason) = match opened {
            Ok(member) => (Some(member), Health::Joining, String::new()),
            Err(why) => (None, Health::Failed, why),
        };
        Self {
            lost: member.is_none(),
            member,
            remote,
            health,
            reason,
            failures: 0,
            reopened: None,
            checking: false,
            urgent: false,
            fencing: false,
        }
    }
}

impl View {
    fn closed() -> Self {
        Self {
            generation: 0,
            selector: table::Selector::RoundRobin,
            usable: Vec::new(),
            others: Vec::new(),
            late: Vec::new(),
            waits: false,
            closed: true,
        }
    }
}

/// What all paths that are open can do. The device is as large as the table says.
fn common_info(
    name: &str,
    table: &Table,
    opened: &[Result<(MemberId, MemberInfo), String>],
) -> Result<MemberInfo, PathsError> {
    let infos: Vec<&MemberInfo> = opened.iter().flatten().map(|(_, info)| info).collect();
    let Some(&first) = infos.first() else {
        let why: Vec<&str> =
            opened.iter().filter_map(|path| path.as_ref().err()).map(String::as_str).collect();
        return Err(PathsError::NoPath(why.join("; ")));
    };
    if let Some(other) = infos.iter().find(|info| info.sectors != first.sectors) {
        return Err(PathsError::Sizes {
            one: first.name.clone(),
            one_sectors: first.sectors,
            other: other.name.clone(),
            other_sectors: other.sectors,
        });
    }
    if table.sectors > first.sectors {
        return Err(PathsError::TooSmall { table: table.sectors, device: first.sectors });
    }
    let blocks = infos.iter().map(|info| info.logical_block_bytes);
    Ok(MemberInfo {
        name: name.to_owned(),
        sectors: table.sectors,
        logical_block_bytes: blocks.max().unwrap_or(first.logical_block_bytes),
        rotational: infos.iter().any(|info| info.rotational),
        discard_zeroes: infos.iter().all(|info| info.discard_zeroes),
    })
}

impl std::fmt::Debug for Paths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Paths({})", self.info.name)
    }
}
