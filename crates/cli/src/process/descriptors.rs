//! Descriptors that the process will need, counted before anything is promised.

use std::fmt;

use mdspace_front::nbd::ServerLimits;
use mdspace_io::{MultipathSpec, is_remote, path_of_name, read_text};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::control::server::CONNECTIONS_MAX;
use crate::failure::Failure;

/// Logs, events, locks, signals, workers, and programs that are asked.
const OF_PROCESS: usize = 64;

/// A connection is read by one and written by another.
const OF_CONTROL: usize = 2 * CONNECTIONS_MAX;

/// Its queue, and what wakes it.
const OF_LANE: usize = 2;

/// A file or device, the locks of what lies below it, and its next opening while this one ends.
const OF_MEMBER: usize = 4;

/// Where an export's server is, now and while it is opened next.
const OF_EXPORT: usize = 2;

/// A client's connection, and what disconnects it.
const OF_CLIENT: usize = 2;

/// A front itself.
const OF_FRONT: usize = 4;

/// More than this is used by nothing, and programs that are started may close them one by one.
const ENOUGH: u64 = 65_536;

/// What an array or a device needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Needs {
    lanes: usize,
    /// Members and paths.
    members: usize,
    /// Those of them to which every lane has a connection of its own.
    remote: usize,
    fronts: usize,
}

impl Needs {
    pub(super) fn new<'a>(
        lanes: u16,
        members: impl IntoIterator<Item = &'a str>,
        fronts: usize,
    ) -> Self {
        let none = Self { lanes: lanes.into(), members: 0, remote: 0, fronts };
        members.into_iter().fold(none, Self::with)
    }

    /// The same with so many fronts.
    pub(super) fn with_fronts(self, fronts: usize) -> Self {
        Self { fronts, ..self }
    }

    fn with(self, member: &str) -> Self {
        match paths_of(member) {
            Some(paths) => paths.iter().fold(self, |needs, path| needs.with_one(path)),
            None => self.with_one(member),
        }
    }

    fn with_one(self, member: &str) -> Self {
        let remote = self.remote + usize::from(is_remote(member));
        Self { members: self.members + 1, remote, ..self }
    }

    fn of_clients(self) -> usize {
        // As many may be at their handshakes as have places.
        self.fronts * (OF_FRONT + OF_CLIENT * 2 * ServerLimits::default().clients)
    }

    fn of_members(self) -> usize {
        self.members * OF_MEMBER + self.remote * (self.lanes + OF_EXPORT)
    }

    fn count(self) -> usize {
        OF_PROCESS + OF_CONTROL + self.lanes * OF_LANE + self.of_members() + self.of_clients()
    }

    /// Raises this process' limit to what it needs and more, as far as the system allows; refuses where that
    /// is too little.
    pub(super) fn provide(self, what: &str) -> Result<(), Failure> {
        let limit = getrlimit(Resource::Nofile);
        let wanted = match raised(limit, self.count() as u64) {
            Ok(wanted) => wanted,
            Err(allowed) => {
                let cure = format!(
                    "allow it more, as with `ulimit -n {}` (LimitNOFILE in a systemd unit), or use fewer \
                     lanes or fronts",
                    self.count()
                );
                let why = format!("it needs {self}; the limit is {allowed}");
                return Err(Failure::new(what, why, cure));
            }
        };
        setrlimit(Resource::Nofile, Rlimit { current: wanted, ..limit }).map_err(|error| {
            let why = format!("the limit on descriptors cannot be raised: {error}");
            Failure::new(what, why, "raise it with `ulimit -n`")
        })
    }
}

impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} descriptors: {} of its own, {} for lanes ({}), {} for members and paths ({}), {} for \
             fronts ({}) and their clients",
            self.count(),
            OF_PROCESS + OF_CONTROL,
            self.lanes * OF_LANE,
            self.lanes,
            self.of_members(),
            self.members,
            self.of_clients(),
            self.fronts,
        )
    }
}

/// The soft limit to set, or the hard one that is too low.
fn raised(limit: Rlimit, needed: u64) -> Result<Option<u64>, u64> {
    match (limit.current, limit.maximum) {
        (_, Some(most)) if most < needed => Err(most),
        (None, _) => Ok(None),
        (Some(now), most) => Ok(Some(most.unwrap_or(u64::MAX).min(ENOUGH.max(needed)).max(now))),
    }
}

/// The paths of a member that is made of some. A file that cannot be read is refused when it is opened.
pub(crate) fn paths_of(member: &str) -> Option<Vec<String>> {
    let file = member.strip_prefix("multipath:")?;
    let text = read_text(&path_of_name(file)).unwrap_or_default();
    let spec = MultipathSpec::parse(&text);
    Some(spec.map_or_else(|_| Vec::new(), |spec| names(&spec)))
}

/// The members that are paths of a device.
pub(super) fn names(spec: &MultipathSpec) -> Vec<String> {
    spec.table.paths().map(|(_, path)| path.member.clone()).collect()
}

#[cfg(test)]
mod tests;
