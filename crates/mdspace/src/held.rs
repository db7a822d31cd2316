//! Which files and devices this process has as members, and which it has just let go.
//!
//! The kernel holds what was closed for a moment longer. Who opens it anew waits for that, and for nothing else.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mdspace_io::Identity;

/// How long the kernel may hold what was closed.
const LET_GO_WITHIN: Duration = Duration::from_secs(2);

/// None: it is open.
static KNOWN: Mutex<Vec<(Identity, Option<Instant>)>> = Mutex::new(Vec::new());

fn known() -> MutexGuard<'static, Vec<(Identity, Option<Instant>)>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says that a member is open.
pub(crate) fn opened(member: Identity) {
    enter(member, None);
}

/// Says that a member is closed.
pub(crate) fn closed(member: Identity) {
    enter(member, Some(Instant::now()));
}

fn enter(member: Identity, closed: Option<Instant>) {
    let mut known = known();
    let is_of_use = |closed: Option<Instant>| closed.is_none_or(|at| at.elapsed() < LET_GO_WITHIN);
    known.retain(|(other, closed)| *other != member && is_of_use(*closed));
    known.push((member, closed));
}

/// Until when a member that cannot be opened may be free of what this process had there. None: it waits for nothing.
pub(crate) fn free_by(member: Identity) -> Option<Instant> {
    let known = known();
    let (_, closed) = known.iter().find(|(other, _)| *other == member)?;
    closed.map(|at| at + LET_GO_WITHIN)
}
