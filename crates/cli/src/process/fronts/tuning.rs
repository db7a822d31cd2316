//! A second process that tells the kernel what suits a new device of the ublk or nbd driver.
//!
//! The kernel first waits until all that is under way on the device has ended. The process that serves the device must not:
//! if it was killed it would wait for itself.

use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use mdspace_front::driver_device;

use super::mount_guard::{self, End};
use crate::process::launch;

/// The hidden verb under which it starts.
const TUNER_VERB: &str = "__tune-device";

/// How long a start waits for it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Starts one for a new device. Where that fails the device works all the same.
pub(super) fn tune(device: &Path) {
    let mut command = launch::second_process(TUNER_VERB);
    command.arg(device).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let begin = Instant::now();
    let is_late = || begin.elapsed() >= PATIENCE;
    let ended = command.spawn().map(|mut child| mount_guard::wait(&mut child, is_late));
    if !matches!(ended, Ok(End::Written)) {
        let device = device.display();
        tracing::warn!(
            "the kernel keeps its own limits for {device}: long discards of nbd may not end, and ublk goes on late after a crash"
        );
    }
}

/// The second process.
pub(crate) fn run(device: &Path) -> ExitCode {
    match driver_device::tune(device) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
