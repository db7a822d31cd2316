//! What unmounts after a crash: a mount whose process is gone answers nothing, and hangs in the way.
//!
//! A second process waits at a pipe whose other end the serving process keeps. It ends when that end is
//! closed, however the serving process ended, and unmounts what is mounted still.

use std::env;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use mdspace_front::fuse::mount;

/// The hidden verb under which the second process starts.
const GUARD_VERB: &str = "__unmount-after";

/// The second process.
pub(super) struct MountGuard(Child);

impl MountGuard {
    /// Starts one for a mounted directory.
    pub(super) fn spawn(directory: &Path) -> io::Result<Self> {
        let number = mount::device_number(directory)?;
        let mut command = Command::new(env::current_exe()?);
        command.arg(GUARD_VERB).arg(directory).arg(number.to_string());
        command.current_dir("/").process_group(0).env_clear();
        // For the program that unmounts.
        command.envs(env::vars_os().filter(|(name, _)| name == "PATH"));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Self)
    }
}

impl Drop for MountGuard {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // It ends by itself now.
        let _ = self.0.wait();
    }
}

/// The second process: waits until the first is gone.
pub(crate) fn run(directory: &Path, number: u64) -> ExitCode {
    let mut nothing = [0; 64];
    while matches!(io::stdin().read(&mut nothing), Ok(1..)) {}
    mount::unmount_left(directory, number);
    ExitCode::SUCCESS
}
