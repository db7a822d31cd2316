//! Waiting for a condition, never for a duration.

use std::thread;
use std::time::{Duration, Instant};

/// Far beyond what any condition needs, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// Returns as soon as the condition holds; panics when it never does.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} in vain until {what}");
        thread::sleep(PAUSE);
    }
}
