//! The command under test, with a run directory of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use tempfile::TempDir;

use super::{Nbd, until};

/// How a check or repair ends that found what nobody can decide.
pub(crate) const UNDECIDABLE: i32 = 3;

/// Runs `mdspace`; every array process that it leaves behind dies with this value.
pub(crate) struct Mdspace {
    run_dir: TempDir,
}

/// How one `mdspace` command ended.
#[derive(Debug)]
pub(crate) struct Done {
    /// Its exit status; -1 for a signal.
    pub(crate) status: i32,
    /// Its standard output.
    pub(crate) out: String,
    /// Its standard error.
    pub(crate) err: String,
}

impl Mdspace {
    /// A fresh run directory, with a path short enough for socket addresses.
    pub(crate) fn new() -> Self {
        let run_dir = TempDir::with_prefix("mdspace-").expect("the temporary folder is writable");
        Self { run_dir }
    }

    /// `MDSPACE_RUN_DIR` of its arrays.
    pub(crate) fn run_dir(&self) -> &Path {
        self.run_dir.path()
    }

    /// Runs one command to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Done {
        let output = Command::new(env!("CARGO_BIN_EXE_mdspace"))
            .args(arguments)
            .env("MDSPACE_RUN_DIR", self.run_dir.path())
            .env("MDSPACE_CONFIG_DIR", self.run_dir.path().join("etc"))
            .stdin(Stdio::null())
            .output()
            .expect("mdspace starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let status = output.status.code().unwrap_or(-1);
        Done { status, out: text(&output.stdout), err: text(&output.stderr) }
    }

    /// Runs one command, which must succeed, and returns its output.
    pub(crate) fn succeed(&self, arguments: &[&str]) -> String {
        let done = self.run(arguments);
        assert!(done.status == 0, "mdspace {} failed: {done:#?}", arguments.join(" "));
        done.out
    }

    /// The socket of an array's NBD front.
    pub(crate) fn socket(&self, name: &str) -> PathBuf {
        self.run_dir.path().join(format!("{name}.nbd"))
    }

    /// The option that serves an array at `socket`.
    pub(crate) fn serve(&self, name: &str) -> String {
        format!("--serve=nbd:unix:{}", self.socket(name).display())
    }

    /// Connects to an array's NBD front.
    pub(crate) fn connect(&self, name: &str) -> Nbd {
        Nbd::connect(&self.socket(name), "").expect("the array's NBD front answers")
    }

    /// One of md's sysfs values of an array.
    pub(crate) fn value(&self, name: &str, key: &str) -> String {
        self.succeed(&["get", name, key]).trim().to_owned()
    }

    /// What `detail --json` says of the array and its process.
    pub(crate) fn report(&self, name: &str) -> serde_json::Value {
        let printed = self.succeed(&["detail", name, "--json"]);
        serde_json::from_str(&printed).expect("detail prints JSON")
    }

    /// What it says of the array itself.
    pub(crate) fn detail(&self, name: &str) -> serde_json::Value {
        self.report(name)["array"].clone()
    }

    /// Waits until resync and recovery are over.
    pub(crate) fn settle(&self, name: &str) {
        let done = self.run(&["wait", name]);
        assert!(done.status <= 1, "mdspace wait {name} failed: {done:#?}");
        assert_eq!(self.value(name, "sync_action"), "idle");
    }

    /// Has the whole array read and compared; returns the sectors that differ.
    pub(crate) fn check(&self, name: &str) -> u64 {
        self.settle(name);
        assert_eq!(self.value(name, "degraded"), "0", "check proves nothing on a degraded array");
        let done = self.run(&["action", name, "check", "--wait"]);
        assert!([0, UNDECIDABLE].contains(&done.status), "a check of {name} failed: {done:#?}");
        assert_eq!(self.value(name, "last_sync_action"), "check");
        self.value(name, "mismatch_cnt").parse().expect("mismatch_cnt is a number")
    }

    /// Kills every array process at once, as `kill -9` does, and waits until they are gone.
    pub(crate) fn kill(&self) {
        let processes = self.processes();
        for process in &processes {
            // One that is gone already is what we want.
            let _ = kill_process(*process, Signal::KILL);
        }
        until("killed processes are gone", || processes.iter().all(|process| is_gone(*process)));
    }

    /// From now on the system gives no array process any more memory. Gives the processes.
    pub(crate) fn starve(&self) -> Vec<Pid> {
        let nothing = || Rlimit { current: Some(0), maximum: Some(0) };
        let processes = self.processes();
        for process in &processes {
            prlimit(Some(*process), Resource::Data, nothing()).expect("a limit may be lowered");
        }
        processes
    }

    /// Waits until these are gone. Gives what the array's log says.
    pub(crate) fn log_of_the_dead(&self, name: &str, processes: &[Pid]) -> String {
        until("the processes are gone", || processes.iter().all(|process| is_gone(*process)));
        fs::read_to_string(self.run_dir.path().join(format!("{name}.log"))).unwrap_or_default()
    }

    /// Prints what the array processes logged.
    fn show_logs(&self) {
        let entries = fs::read_dir(self.run_dir.path()).into_iter().flatten().flatten();
        for path in entries
            .map(|entry| entry.path())
            .filter(|path| path.extension() == Some("log".as_ref()))
        {
            println!("--- {}\n{}", path.display(), fs::read_to_string(&path).unwrap_or_default());
        }
    }

    /// The processes whose environment names our run directory.
    pub(crate) fn processes(&self) -> Vec<Pid> {
        let ours = format!("MDSPACE_RUN_DIR={}", self.run_dir.path().display());
        let is_ours = |process: &Pid| {
            let file = format!("/proc/{}/environ", process.as_raw_pid());
            let environment = fs::read(file).unwrap_or_default();
            environment.split(|&byte| byte == 0).any(|variable| variable == ours.as_bytes())
        };
        fs::read_dir("/proc")
            .expect("/proc is there")
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter_map(Pid::from_raw)
            .filter(is_ours)
            .collect()
    }
}

impl Drop for Mdspace {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            self.show_logs();
        }
    }
}

/// Whether a process is gone, or dead and only waiting for its parent to notice.
fn is_gone(process: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_pid()));
    let stat = stat.unwrap_or_default();
    // The state follows the name, which stands in parentheses and may hold any character.
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}
