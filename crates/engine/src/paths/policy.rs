//! What the user wants of a device beside its table.

use std::time::Duration;

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
    /// Where written bytes lie until a flush.
    pub cache: Cache,
}

/// Where written bytes lie until a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// In a cache that each path behind a network has for itself, as far as anybody knows.
    OfEachPath,
    /// In one of the device: a flush over any path covers all, and the loss of a path loses nothing. The
    /// operator's word.
    Shared,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            no_path_retry: Some(12),
            polling_interval: Duration::from_secs(5),
            failback: Failback::Manual,
            read_deadline: Duration::from_secs(5),
            write_deadline: Duration::from_secs(10),
            cache: Cache::OfEachPath,
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
