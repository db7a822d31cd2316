//! What a multipath device says of itself.

use std::ops::Range;
use std::sync::Arc;

use crate::time::Time;

use super::late::Late;
use super::selector::{Count, LaneCounters, PathCounters, STALE};
use super::table::{Group, PathSpec, Selector};
use super::{Paths, flag};

/// The device as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathsStatus {
    /// dm's table line.
    pub table: String,
    /// dm's status line.
    pub status: String,
    /// What happens to requests while there is no path.
    pub queueing: String,
    /// Which of its requests fail since writes that were answered may be lost, and until when.
    pub loss: Option<&'static str>,
    /// Its groups, the best first.
    pub groups: Vec<GroupStatus>,
    /// Ranges of sectors where a write may still appear, and the path that it was sent over.
    pub unproved: Vec<(Range<u64>, String)>,
    /// Writes that wait for that proof, if any do.
    pub held: Option<Held>,
}

/// Writes held back, since what was sent before may still appear where they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// How many.
    pub writes: u64,
    /// Since when the first of them waits, on the lanes' clock.
    pub since: Time,
}

/// One group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStatus {
    /// `active`, `enabled` or `disabled`.
    pub state: &'static str,
    /// Its selector's name.
    pub selector: &'static str,
    /// Its paths.
    pub paths: Vec<PathStatus>,
}

/// One path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathStatus {
    /// Its member.
    pub member: String,
    /// `active`, `failed`, `joining` or `refused`.
    pub state: &'static str,
    /// Why it is not active.
    pub reason: String,
    /// How often it failed.
    pub failures: u32,
    /// Requests that it has taken.
    pub ios: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Requests under way.
    pub in_flight: u64,
    /// Bytes of these.
    pub in_flight_bytes: u64,
    /// Mean time of an I/O in ns, where `historical-service-time` measures it: the longest of any lane's.
    pub service_nanos: u64,
    /// Until when that is believed, in ns of the lanes' clock; 0 where nothing was measured.
    pub stale_nanos: u64,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathEvent {
    /// Its number, from 1.
    pub sequence: u64,
    /// In a word: `PathFailed`, `PathReinstated`, ...
    pub event: &'static str,
    /// The path that it is about.
    pub member: Option<String>,
    /// More, for people.
    pub note: String,
}

impl Paths {
    /// Writes held back now, if any are.
    pub fn held(&self) -> Option<Held> {
        held(&self.counters.lock())
    }

    /// How it is now.
    pub fn status(&self) -> PathsStatus {
        let owner = self.owner.lock();
        let lanes = self.counters.lock();
        let path_status = |path: usize| {
            let sum = |of: fn(&PathCounters) -> &Count| {
                lanes.iter().map(|lane| of(&lane.paths[path]).get()).sum()
            };
            let most = |of: fn(&PathCounters) -> &Count| {
                lanes.iter().map(|lane| of(&lane.paths[path]).get()).max().unwrap_or(0)
            };
            let own = &owner.paths[path];
            PathStatus {
                member: self.name_of(path).to_owned(),
                state: own.health.word(),
                reason: own.reason.clone(),
                failures: own.failures,
                ios: sum(|counters| &counters.ios),
                bytes: sum(|counters| &counters.bytes),
                in_flight: sum(|counters| &counters.in_flight),
                in_flight_bytes: sum(|counters| &counters.in_flight_bytes),
                service_nanos: most(|counters| &counters.service_nanos),
                stale_nanos: match most(|counters| &counters.measured_nanos) {
                    0 => 0,
                    measured => measured + STALE.as_nanos() as u64,
                },
            }
        };
        let group_status = |(at, group): (usize, &Group)| GroupStatus {
            state: match owner.disabled[at] {
                true => "disabled",
                false if owner.current == Some(at) => "active",
                false => "enabled",
            },
            selector: group.selector.name(),
            paths: (0..self.group_of.len())
                .filter(|path| self.group_of[*path] == at)
                .map(path_status)
                .collect(),
        };
        let groups: Vec<GroupStatus> =
            self.table.groups.iter().enumerate().map(group_status).collect();
        let unproved = |late: &Late| (late.range.clone(), self.name_of(late.path).to_owned());
        let mut table = self.table.clone();
        table.features.queue_if_no_path = self.has(flag::QUEUE_IF_NO_PATH);
        PathsStatus {
            table: table.to_string(),
            status: self.status_line(&groups, owner.current),
            queueing: self.queueing(&owner),
            loss: self.loss(&owner),
            unproved: owner.late.iter().map(unproved).collect(),
            held: held(&lanes),
            groups,
        }
    }

    /// dm's status line.
    fn status_line(&self, groups: &[GroupStatus], current: Option<usize>) -> String {
        let used = current.map_or(1, |group| group + 1);
        let mut line =
            format!("0 {} multipath 2 0 0 0 {} {used}", self.table.sectors, groups.len());
        for (group, status) in self.table.groups.iter().zip(groups) {
            let letter = match status.state {
                "disabled" => 'D',
                "active" => 'A',
                _ => 'E',
            };
            let (selector_args, paths) = (group.selector.args_words(), status.paths.len());
            line += &format!(" {letter} {selector_args} {paths} {}", info_args(group.selector));
            for (path, spec) in status.paths.iter().zip(&group.paths) {
                let state = if path.state == "active" { 'A' } else { 'F' };
                line += &format!(" {} {state} {}", path.member, path.failures);
                line += &path_info(group.selector, path, spec);
            }
        }
        line
    }
}

/// How many words a selector says of each path.
fn info_args(selector: Selector) -> usize {
    match selector {
        Selector::RoundRobin | Selector::Expected => 0,
        Selector::QueueLength | Selector::IoAffinity => 1,
        Selector::ServiceTime => 2,
        Selector::HistoricalServiceTime { .. } => 3,
    }
}

/// These words, each with a blank before it.
fn path_info(selector: Selector, path: &PathStatus, spec: &PathSpec) -> String {
    match selector {
        Selector::RoundRobin | Selector::Expected => String::new(),
        Selector::QueueLength => format!(" {}", path.in_flight),
        // dm counts requests of CPUs that no path is for: a lane is never without one here.
        Selector::IoAffinity => " 0".into(),
        Selector::ServiceTime => {
            format!(" {} {}", path.in_flight_bytes, spec.relative_throughput)
        }
        Selector::HistoricalServiceTime { .. } => {
            format!(" {} {} {}", path.service_nanos, path.in_flight, path.stale_nanos)
        }
    }
}

/// Sums what lanes hold back.
fn held(lanes: &[Arc<LaneCounters>]) -> Option<Held> {
    let holding = || lanes.iter().filter(|lane| lane.held.get() > 0);
    let since = holding().map(|lane| lane.held_since_nanos.get()).min()?;
    let writes = holding().map(|lane| lane.held.get()).sum();
    Some(Held { writes, since: Time::from_nanos(since) })
}
