//! A second process, which outlives the serving one for a moment: it keeps the block device, and unmounts after a
//! crash. A mount whose process is gone answers nothing, and hangs in the way.
//!
//! It waits at a pipe whose other end the serving process keeps. It goes on when that end is closed, however the
//! serving process ended: takes the device's name away, writes back the file systems on the device and the device
//! itself, lets go of it, and unmounts what is mounted still.
//!
//! Who closes a block device last writes what the kernel holds back of it. The serving process cannot: when it is
//! killed it would wait for its own answer, and neither it nor its locks on the members would ever go. Nor may it let
//! go of the device, which waits for what is under way there.

use std::env;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::{Child, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

use mdspace_front::fuse::mount::{self, Mount};
use mdspace_front::{host_device, loop_device};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use super::block_device::{ATTACHED, Link, take_away};
use crate::process::launch;

/// The hidden verb under which the second process starts.
const GUARD_VERB: &str = "__unmount-after";

/// Between two looks whether it has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The second process.
pub(super) struct MountGuard {
    child: Child,
}

/// What came of the second process, and of what the kernel held back of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// All of it is written.
    Written,
    /// The array, or the kernel, has refused some of it at some time.
    Unwritten,
    /// All of it is written, and the device does not go.
    Attached,
    /// It is waited for no more.
    Late,
    /// The process was killed, and what it had to do is not done.
    Killed,
}

impl MountGuard {
    /// Starts one for a mounted directory, and for the block device over its file, if there is one.
    pub(super) fn spawn(
        mount: &Mount,
        device: Option<File>,
        link: Option<[PathBuf; 2]>,
    ) -> io::Result<Self> {
        let mut command = launch::second_process(GUARD_VERB);
        command.arg(mount.directory()).arg(mount.id().to_string());
        command.args(link.into_iter().flatten());
        // For the program that unmounts.
        command.envs(env::vars_os().filter(|(name, _)| name == "PATH"));
        command.stdin(Stdio::piped()).stderr(Stdio::null());
        command.stdout(device.map_or_else(Stdio::null, Stdio::from));
        command.spawn().map(|child| Self { child })
    }

    /// Its number.
    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Has the device closed and the directory unmounted, and waits for that unless it `is_late`.
    pub(super) fn end(mut self, is_late: impl Fn() -> bool) -> End {
        drop(self.child.stdin.take());
        wait(&mut self.child, is_late)
    }
}

/// Waits for the end of a process that takes a device away, unless it `is_late`.
pub(super) fn wait(child: &mut Child, is_late: impl Fn() -> bool) -> End {
    loop {
        match child.try_wait().map(|ended| ended.map(|status| status.code())) {
            Ok(None) if is_late() => return End::Late,
            Ok(None) => thread::sleep(LOOK_EVERY),
            Ok(Some(Some(0))) => return End::Written,
            Ok(Some(Some(code))) if code == i32::from(ATTACHED) => return End::Attached,
            Ok(Some(Some(_))) => return End::Unwritten,
            Ok(Some(None)) | Err(_) => return End::Killed,
        }
    }
}

/// The second process: waits until the first is gone, or says so.
pub(crate) fn run(directory: PathBuf, id: u64, link: &[PathBuf]) -> ExitCode {
    // A service manager signals all processes of a service at once. This one still has work then.
    let _signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM]);
    let _ = io::copy(&mut io::stdin(), &mut io::sink());
    let mut ended = ExitCode::SUCCESS;
    let mut claimed = None;
    if let [path, target] = link {
        // The claim keeps mounts away while the device is written. There is none where a stop by force finds a mount.
        claimed = host_device::claim_open(io::stdout());
        let link = Link::known(path.clone(), target.clone());
        ended = take_away(&io::stdout(), claimed.is_some(), link, || match &claimed {
            Some(claimed) => loop_device::let_go(claimed),
            None => loop_device::let_go(io::stdout()),
        });
    }
    if let Ok(nothing) = File::open("/dev/null") {
        // What takes the place of the device closes it.
        let _ = rustix::stdio::dup2_stdout(&nothing);
    }
    drop(claimed);
    mount::unmount_left(&directory, id);
    ended
}
