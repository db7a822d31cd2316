//! A second process that has a device of the ublk or nbd driver open, for the process that serves it: that may not.
//!
//! Who opens the device may read from it, and who closes it last writes what the kernel holds back. The serving process
//! would wait for itself there, if it was killed. So this one opens the device, alone if it can, says so, and waits at a
//! pipe. When it is told to, it takes the device away. When the pipe closes it only ends.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use mdspace_front::identity::Identity;
use mdspace_front::{driver_device, host_device};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use super::block_device::{Link, is_of, take_away};
use super::mount_guard::{self, End};
use crate::process::launch;

/// The hidden verb under which it starts.
const OPENER_VERB: &str = "__open-device";

/// How long it may take to open the device, and to close it.
const PATIENCE: Duration = Duration::from_secs(2);

/// What it says first.
const ALONE: u8 = b'a';
const WITH_OTHERS: u8 = b'o';
const NOT_AT_ALL: u8 = b'n';

/// What it is told.
const TAKE_AWAY: u8 = b't';

/// The process, which has the device open or not. It ends when this is dropped.
pub(super) struct Opener {
    child: Option<Child>,
    said: Option<u8>,
    turn: Arc<()>,
}

/// Counts the processes of a device that have not ended.
#[derive(Default)]
pub(super) struct Openers(Arc<()>);

impl Openers {
    /// Whether one has not ended: a device that does not answer is not asked again.
    pub(super) fn are_under_way(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

impl Opener {
    /// Starts one for a device and its name. It leaves a device alone that is of another `identity`.
    pub(super) fn start(
        [name, device]: [PathBuf; 2],
        identity: &Identity,
        openers: &Openers,
    ) -> io::Result<Self> {
        let mut command = launch::second_process(OPENER_VERB);
        command.arg(name).arg(device).arg(identity.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let said = first_byte(&mut child);
        Ok(Self { child: Some(child), said, turn: openers.0.clone() })
    }

    /// Whether this process alone has claimed the device, so that no other one can.
    pub(super) fn is_alone(&self) -> bool {
        self.said == Some(ALONE)
    }

    /// Whether another program has claimed the device.
    pub(super) fn is_beside_others(&self) -> bool {
        self.said == Some(WITH_OTHERS)
    }

    /// Whether there is nothing to open any more.
    pub(super) fn finds_nothing(&self) -> bool {
        self.said == Some(NOT_AT_ALL)
    }

    /// Has the device written back and taken away, and waits for that unless it `is_late`.
    pub(super) fn take_away(mut self, is_late: impl Fn() -> bool) -> End {
        let Some(mut child) = self.child.take() else { return End::Killed };
        // The pipe stays open: its end says that this process is gone.
        let Some(mut pipe) = child.stdin.take() else { return End::Killed };
        match pipe.write_all(&[TAKE_AWAY]) {
            Ok(()) => {
                let end = mount_guard::wait(&mut child, is_late);
                reap_later(child, self.turn.clone());
                end
            }
            Err(_) => End::Killed,
        }
    }
}

/// Waits, on a thread of its own, for a process whose device may not answer.
fn reap_later(mut child: Child, turn: Arc<()>) {
    if matches!(child.try_wait(), Ok(None)) {
        // Without a thread it stays until this process ends.
        drop(thread::Builder::new().name("reaper".into()).spawn(move || {
            drop(child.wait());
            drop(turn);
        }));
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        drop(child.stdin.take());
        // Who looks for users of the device finds it no more then.
        let begin = Instant::now();
        mount_guard::wait(&mut child, || begin.elapsed() >= PATIENCE);
        reap_later(child, self.turn.clone());
    }
}

/// Whether the process that gave the order lives.
fn is_still_told() -> bool {
    let stdin = io::stdin();
    let mut asked = [PollFd::new(&stdin, PollFlags::empty())];
    let told = rustix::io::retry_on_intr(|| poll(&mut asked, Some(&Timespec::default())));
    told.is_ok() && !asked[0].revents().contains(PollFlags::HUP)
}

/// What it says, if it does so in time: a device may not answer.
fn first_byte(child: &mut Child) -> Option<u8> {
    let mut said = child.stdout.take()?;
    let patience = Timespec::try_from(PATIENCE).ok()?;
    let mut asked = [PollFd::new(&said, PollFlags::IN)];
    let ready = rustix::io::retry_on_intr(|| poll(&mut asked, Some(&patience))).ok()?;
    let mut byte = [0];
    (ready > 0 && said.read_exact(&mut byte).is_ok()).then_some(byte[0])
}

/// The second process.
pub(crate) fn run(name: PathBuf, device: &Path, identity: &Identity) -> ExitCode {
    // A service manager signals all processes of a service at once. This one may still have work then.
    let _signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM]);
    let claimed = host_device::claim(device);
    let is_alone = claimed.is_ok();
    let opened = match claimed {
        Err(error) if host_device::is_claimed(&error) => File::open(device),
        claimed => claimed,
    };
    // As long as it is open its number is no other device's.
    let is_it = is_of(device, identity);
    let opened = opened.ok().filter(|_| is_it);
    let said = match (&opened, is_alone) {
        (Some(_), true) => ALONE,
        (Some(_), false) => WITH_OTHERS,
        (None, _) => NOT_AT_ALL,
    };
    let told = io::stdout().write_all(&[said]).and_then(|()| io::stdout().flush());
    let mut order = [0];
    let is_told =
        told.is_ok() && io::stdin().read_exact(&mut order).is_ok() && order[0] == TAKE_AWAY;
    match (is_told, opened) {
        (true, Some(opened)) => {
            let link = Link::known(name, device.to_owned());
            take_away(&opened, is_alone, link, || match is_still_told() {
                true => driver_device::stop(device),
                // The next process may serve the device by now: it is that one's.
                false => Err(io::Error::other("who ordered it is gone")),
            })
        }
        (true, None) if is_it => ExitCode::FAILURE,
        // It has gone already.
        _ => ExitCode::SUCCESS,
    }
}

#[cfg(test)]
mod tests;
