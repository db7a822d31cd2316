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
//! `late` holds the rule on writes that were sent and not answered; `owed` what a flush may rest on; `watch` how paths come back;
//! `proof` which of them lead to the device;
//! `given` what the device may say of itself by then;
//! `owner` what is known of them.

mod device;
mod given;
mod group;
mod health;
mod identity;
mod kept;
mod late;
mod message;
mod owed;
mod owner;
mod path_lane;
mod policy;
mod proof;
mod selector;
mod status;
pub mod table;
mod view;
mod watch;

#[cfg(test)]
mod bed;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use mdspace_format::SuperblockPlace;

use crate::backend::{MemberId, MemberInfo};
use crate::signal::Signal;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::time::Time;

use device::common_info;
use given::Given;
use late::LateWrites;
use owed::Owed;
use owner::{Health, OwnedPath, Owner};
use selector::LaneCounters;
use view::View;

pub use device::PathsError;
pub use identity::{Compared, Identity};
pub use late::FenceId;
pub use path_lane::PathLane;
pub use policy::{Cache, Failback, Policy};
pub use status::{GroupStatus, Held, PathEvent, PathStatus, PathsStatus};
pub use table::Table;

/// Events kept for those who ask later.
const EVENTS_KEPT: usize = 1000;

/// What only the outside can do for a device. Nothing here may wait: the answers come by
/// [`Paths::opened`] and [`Paths::fenced`], from any thread.
pub trait Host: Send + Sync {
    /// Connects a path anew, whose connection was lost; its old member may be closed. Asked of a path to a device of
    /// this host that does not do what it is asked, it opens what has the path's name now, if that is another device and
    /// the paths [let go](Paths::let_go) of the old one.
    fn reopen(&self, paths: &Arc<Paths>, path: usize);

    /// Sees to it that nothing sent over a path until now can be done any more: what was kept of that for
    /// [`Paths::recall`] can be forgotten then. False: it cannot.
    fn fence(&self, paths: &Arc<Paths>, path: usize, fence: FenceId) -> bool;

    /// By the operator's word nothing sent over a path until now can be done any more.
    fn fenced_by_word(&self, _path: usize) {}
}

/// A multipath device, shared by all lanes.
pub struct Paths {
    info: MemberInfo,
    /// Where superblocks lie on it.
    superblock_places: Vec<SuperblockPlace>,
    table: Table,
    policy: Policy,
    /// Whether a path may have a cache of its own.
    has_own_caches: bool,
    /// Whether a device that was away may have lost what it was not told to flush.
    loses_when_away: bool,
    /// Which group each path is in.
    group_of: Vec<usize>,
    /// Changes with each view.
    generation: AtomicU64,
    flags: AtomicU32,
    owner: Mutex<Owner>,
    /// A view was published, or the watch has something to do.
    changed: Signal,
    counters: Mutex<Vec<Arc<LaneCounters>>>,
    /// Writes of this process that the device had answered when its last good flush was sent, where its paths have no
    /// caches of their own.
    flushed: AtomicU64,
    host: Box<dyn Host>,
}

/// Bits of `flags`.
mod flag {
    pub(super) const QUEUE_IF_NO_PATH: u32 = 1;
    pub(super) const CLOSED: u32 = 2;
    pub(super) const WATCHED: u32 = 4;
    /// The device may have lost writes that it has answered. Its requests fail until a flush has told that.
    pub(super) const LOSS_UNTOLD: u32 = 8;
    /// This device of the host may have lost writes that an earlier process has left in its cache. What was read since is
    /// as old, and the next flush alone fails.
    pub(super) const EARLIER_LOST: u32 = 16;
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
        let open: Vec<bool> = opened.iter().map(Result::is_ok).collect();
        let paths: Vec<OwnedPath> = opened.into_iter().zip(remote).map(own).collect();
        assert_eq!(paths.len(), group_of.len(), "one answer a path");
        let has_own_caches = policy.cache == Cache::OfEachPath && remote.contains(&true);
        let loses_when_away = policy.cache == Cache::OfEachPath && !remote.contains(&true);
        let queueing = if table.features.queue_if_no_path { flag::QUEUE_IF_NO_PATH } else { 0 };
        let owner = Owner {
            view: Arc::new(View::closed()),
            paths,
            disabled: vec![false; table.groups.len()],
            current: None,
            wanted: Some(table.initial_group - 1),
            late: LateWrites::default(),
            owed: Owed::new(open.into_iter()),
            last_fence: FenceId::default(),
            known: None,
            given: Given::default(),
            superblocks: 0,
            unplugs: 0,
            back_since: 0,
            blank_over: None,
            may_be_written: false,
            no_path_since: None,
            gave_up: false,
            failback_at: None,
            events: VecDeque::new(),
            last_event: 0,
        };
        let this = Arc::new(Self {
            superblock_places: given::places(info.sectors),
            info,
            table,
            has_own_caches,
            loses_when_away,
            policy,
            group_of,
            generation: AtomicU64::new(0),
            flags: AtomicU32::new(queueing),
            owner: Mutex::new(owner),
            changed: Signal::default(),
            counters: Mutex::default(),
            flushed: AtomicU64::new(0),
            host,
        });
        this.tell_doubles(&mut this.owner.lock());
        this.publish(&mut this.owner.lock(), Time::ZERO);
        Ok(this)
    }

    /// Tells of paths that go over the same member as an earlier one.
    fn tell_doubles(&self, owner: &mut Owner) {
        let members: Vec<Option<MemberId>> =
            owner.paths.iter().map(|path| path.member.as_ref().map(|(id, _)| *id)).collect();
        for (path, member) in members.iter().enumerate() {
            let first =
                members[..path].iter().position(|other| member.is_some() && other == member);
            if let Some(first) = first {
                let note = format!(
                    "is the same device as {}, listed twice: it is no spare for itself",
                    self.name_of(first)
                );
                self.tell(owner, "PathTwice", Some(path), note);
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

    fn tell(&self, owner: &mut Owner, event: &'static str, path: Option<usize>, note: String) {
        owner.last_event += 1;
        let member = path.map(|path| self.name_of(path).to_owned());
        owner.events.push_back(PathEvent { sequence: owner.last_event, event, member, note });
        if owner.events.len() > EVENTS_KEPT {
            owner.events.pop_front();
        }
    }

    /// Tells that another process uses what a path leads to. It is told once, until the path has another event.
    pub fn tell_in_use(&self, path: usize, note: String) {
        let mut owner = self.owner.lock();
        let name = self.name_of(path);
        let mut events = owner.events.iter().rev();
        let last = events.find(|event| event.member.as_deref() == Some(name));
        if !last.is_some_and(|last| last.event == "PathInUse" && last.note == note) {
            self.tell(&mut owner, "PathInUse", Some(path), note);
        }
    }

    /// Events after `sequence` that are still kept.
    pub fn events_after(&self, sequence: u64) -> Vec<PathEvent> {
        let owner = self.owner.lock();
        owner.events.iter().filter(|event| event.sequence > sequence).cloned().collect()
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

impl std::fmt::Debug for Paths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Paths({})", self.info.name)
    }
}
