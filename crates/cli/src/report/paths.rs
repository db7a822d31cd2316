//! A multipath device in JSON.

use mdspace_engine::paths::{GroupStatus, PathStatus, PathsStatus};
use serde::{Deserialize, Serialize};

use super::{FrontReport, Report, SCHEMA, VERSION};

/// What one process serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServedReport {
    Array(Box<Report>),
    Device(Box<DeviceReport>),
}

/// A multipath device that stands alone, and the process that serves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceReport {
    /// Version of this object.
    pub(crate) schema: u32,
    /// What the device is called on this host.
    pub(crate) name: String,
    pub(crate) size_bytes: u64,
    pub(crate) multipath: PathsReport,
    /// Where it is served.
    pub(crate) fronts: Vec<FrontReport>,
    /// The serving process.
    pub(crate) pid: u32,
    /// Of the program that it runs; older ones do not say it.
    #[serde(default)]
    pub(crate) version: String,
}

/// Its paths, or those of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PathsReport {
    /// The member that it is; its own name where it stands alone.
    pub(crate) member: String,
    /// dm's lines.
    pub(crate) table: String,
    pub(crate) status: String,
    /// What happens to requests without a path.
    pub(crate) queueing: String,
    /// Which requests fail since writes that were answered may be lost, and until when.
    pub(crate) loss: Option<String>,
    pub(crate) groups: Vec<GroupReport>,
    /// Where a write that was sent and not answered may still appear.
    pub(crate) unproved: Vec<UnprovedReport>,
    /// Writes that wait for the proof that these are over.
    pub(crate) held: Option<HeldReport>,
}

/// Writes that are held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HeldReport {
    pub(crate) writes: u64,
    /// How long the first of them has waited.
    pub(crate) waited_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GroupReport {
    /// `active`, `enabled` or `disabled`.
    pub(crate) state: String,
    pub(crate) selector: String,
    pub(crate) paths: Vec<PathReport>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PathReport {
    pub(crate) member: String,
    /// `active`, `failed`, `joining` or `refused`.
    pub(crate) state: String,
    /// Why it is not active.
    pub(crate) reason: String,
    pub(crate) failures: u32,
    pub(crate) ios: u64,
    pub(crate) bytes: u64,
    pub(crate) in_flight: u64,
}

/// A range of sectors, up to the one behind its last, and the path that the write went over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UnprovedReport {
    pub(crate) first_sector: u64,
    pub(crate) end_sector: u64,
    pub(crate) path: String,
}

impl DeviceReport {
    pub(crate) fn new(
        name: &str,
        size_bytes: u64,
        status: PathsStatus,
        fronts: Vec<FrontReport>,
    ) -> Self {
        Self {
            schema: SCHEMA,
            name: name.to_owned(),
            size_bytes,
            multipath: PathsReport::new(name, status),
            fronts,
            pid: std::process::id(),
            version: VERSION.to_owned(),
        }
    }

    /// Whether any path can serve, and whether all do.
    pub(crate) fn health(&self) -> (bool, bool) {
        let mut paths = self.multipath.groups.iter().flat_map(|group| &group.paths);
        let all = paths.clone().all(PathReport::is_active);
        (paths.any(PathReport::is_active), all)
    }
}

impl PathReport {
    pub(crate) fn is_active(&self) -> bool {
        self.state == "active"
    }
}

impl PathsReport {
    pub(crate) fn new(member: &str, status: PathsStatus) -> Self {
        let unproved = |(range, path): (std::ops::Range<u64>, String)| UnprovedReport {
            first_sector: range.start,
            end_sector: range.end,
            path,
        };
        Self {
            member: member.to_owned(),
            table: status.table,
            status: status.status,
            queueing: status.queueing,
            loss: status.loss.map(str::to_owned),
            groups: status.groups.into_iter().map(GroupReport::from).collect(),
            unproved: status.unproved.into_iter().map(unproved).collect(),
            held: status.held.map(|held| HeldReport {
                writes: held.writes,
                waited_ms: mdspace_io::now().since(held.since).as_millis() as u64,
            }),
        }
    }
}

impl From<GroupStatus> for GroupReport {
    fn from(group: GroupStatus) -> Self {
        Self {
            state: group.state.to_owned(),
            selector: group.selector.to_owned(),
            paths: group.paths.into_iter().map(PathReport::from).collect(),
        }
    }
}

impl From<PathStatus> for PathReport {
    fn from(path: PathStatus) -> Self {
        Self {
            member: path.member,
            state: path.state.to_owned(),
            reason: path.reason,
            failures: path.failures,
            ios: path.ios,
            bytes: path.bytes,
            in_flight: path.in_flight,
        }
    }
}
