//! A second process that has the nbd driver ask for short discards.
//!
//! The kernel first waits until all that is under way on the device has ended. The process that serves the device must not:
//! if it was killed it would wait for itself.

use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use mdspace_front::nbd_device::{self, Index};

use super::mount_guard::{self, End};
use crate::process::launch;

/// The hidden verb under which it starts.
const SHORTENER_VERB: &str = "__shorten-discards";

/// How long a start waits for it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Starts one for a new device. Where that fails the device works all the same.
pub(super) fn shorten(device: &Path) {
    let mut command = launch::second_process(SHORTENER_VERB);
    command.arg(device).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let begin = Instant::now();
    let is_late = || begin.elapsed() >= PATIENCE;
    let ended = command.spawn().map(|mut child| mount_guard::wait(&mut child, is_late));
    if !matches!(ended, Ok(End::Written)) {
        let device = device.display();
        tracing::warn!("the kernel does not shorten discards of {device}: long ones may not end");
    }
}

/// The second process.
pub(crate) fn run(device: &Path) -> ExitCode {
    match Index::of(device).map(nbd_device::shorten_discards) {
        Some(Ok(())) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
