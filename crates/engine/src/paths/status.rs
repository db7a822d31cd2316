//! What a multipath device says of itself.

use std::ops::Range;

/// The device as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathsStatus {
    /// dm's table line.
    pub table: String,
    /// dm's status line.
    pub status: String,
    /// What happens to requests while there is no path.
    pub queueing: String,
    /// Its groups, the best first.
    pub groups: Vec<GroupStatus>,
    /// Ranges of sectors where a write may still appear, and the path that it was sent over.
    pub unproved: Vec<(Range<u64>, String)>,
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
