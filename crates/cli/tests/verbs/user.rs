//! A user with a run directory and members of their own.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Size of a member: room for superblock, bitmap and some data.
const MEMBER_BYTES: u64 = 8 << 20;

/// What a command said and how it ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Everything goes with the value, array processes included.
pub(crate) struct User {
    folder: TempDir,
}

impl User {
    pub(crate) fn new() -> Self {
        Self { folder: TempDir::with_prefix("mdspace-").expect("a temporary folder") }
    }

    /// A user with empty members of these names.
    pub(crate) fn with_members(names: &[impl AsRef<Path>]) -> Self {
        let user = Self::new();
        for name in names {
            let file = fs::File::create(user.folder.path().join(name)).expect("a file");
            file.set_len(MEMBER_BYTES).expect("room on disk");
        }
        user
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn run_dir(&self) -> PathBuf {
        self.path("run")
    }

    pub(crate) fn command(&self, words: &str) -> Command {
        self.command_of(&words.split(' ').collect::<Vec<_>>())
    }

    fn command_of(&self, words: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mdspace"));
        command
            .args(words)
            .current_dir(self.folder.path())
            .env("MDSPACE_RUN_DIR", self.run_dir())
            .env("MDSPACE_CONFIG_DIR", self.path("etc"))
            .env_remove("MDSPACE_STATE_DIR")
            .stdin(Stdio::null());
        command
    }

    /// As [`User::command`], with another file of the program.
    pub(crate) fn command_of_program(&self, program: &Path, words: &str) -> Command {
        let plain = self.command(words);
        let mut command = Command::new(program);
        command.args(plain.get_args()).current_dir(self.folder.path()).stdin(Stdio::null());
        for (name, value) in plain.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    /// Runs `mdspace` with these words.
    pub(crate) fn run(&self, words: &str) -> Done {
        Self::done(&mut self.command(words))
    }

    /// Runs `mdspace` with these words behind a command of the shell's, as `ulimit`.
    pub(crate) fn run_behind(&self, command: &str, words: &str) -> Done {
        let plain = self.command(words);
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("{command} && exec \"$0\" \"$@\""));
        shell.arg(plain.get_program()).args(plain.get_args()).stdin(Stdio::null());
        shell.current_dir(self.folder.path());
        for (name, value) in plain.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        Self::done(&mut shell)
    }

    /// Runs `mdspace` with words that may hold blanks, or be no text.
    pub(crate) fn run_words(&self, words: &[impl AsRef<OsStr>]) -> Done {
        Self::done(&mut self.command_of(words))
    }

    fn done(command: &mut Command) -> Done {
        let output = command.output().expect("mdspace starts");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let status = output.status.code().unwrap_or(-1);
        Done { status, out: text(output.stdout), err: text(output.stderr) }
    }

    /// Runs `mdspace`, which must end with `status`; returns its output.
    pub(crate) fn expect(&self, status: i32, words: &str) -> String {
        let done = self.run(words);
        assert_eq!(done.status, status, "mdspace {words}: {done:#?}");
        done.out
    }

    /// Runs `mdspace`, which must fail with 1 and all of `why` on its standard error.
    pub(crate) fn refused(&self, words: &str, why: &[&str]) {
        self.refused_with(1, words, why);
    }

    /// Runs `mdspace`, which must fail with `status` and all of `why` on its standard error.
    pub(crate) fn refused_with(&self, status: i32, words: &str, why: &[&str]) {
        let done = self.run(words);
        assert_eq!(done.status, status, "mdspace {words}: {done:#?}");
        assert!(why.iter().all(|why| done.err.contains(why)), "mdspace {words}: {done:#?}");
        assert_eq!(done.err.matches("why:").count(), 1, "three lines: {done:#?}");
    }

    /// The object of `detail --json`.
    pub(crate) fn detail(&self, name: &str) -> Value {
        let text = self.expect(0, &format!("detail {name} --json"));
        serde_json::from_str(&text).expect("one JSON object")
    }

    pub(crate) fn bytes(&self, member: &str) -> Vec<u8> {
        fs::read(self.path(member)).expect("a readable member")
    }

    /// A client of the array's NBD socket, which says nothing but stays.
    pub(crate) fn client(&self, socket: &str) -> UnixStream {
        UnixStream::connect(self.path(socket)).expect("the front answers")
    }

    /// Processes of this user, as their environment tells.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let ours = format!("MDSPACE_RUN_DIR={}", self.run_dir().display());
        let is_ours = |pid: &u32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == ours.as_bytes())
        };
        let entries = fs::read_dir("/proc").expect("/proc").flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(is_ours).filter(|pid| is_alive(*pid)).collect()
    }

    pub(crate) fn signal(&self, signal: Signal, pid: u32) {
        kill_process(process(pid), signal).expect("it is still there");
    }

    /// Whether a process waits for somebody, and has not ended.
    pub(crate) fn sleeps(pid: u32) -> bool {
        let state = state(&proc(pid));
        assert_ne!(state, Some('Z'), "it has not waited");
        state == Some('S')
    }

    /// Returns when the last of its threads stands: until then any of them may answer.
    pub(crate) fn halt(&self, pid: u32) {
        self.signal(Signal::STOP, pid);
        while !stands(pid) {
            std::thread::yield_now();
        }
    }
}

impl Drop for User {
    fn drop(&mut self) {
        for pid in self.processes() {
            // One that is gone already is what we want.
            let _ = kill_process(process(pid), Signal::KILL);
        }
    }
}

fn process(pid: u32) -> Pid {
    i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process number")
}

fn is_alive(pid: u32) -> bool {
    state(&proc(pid)).is_some_and(|state| state != 'Z')
}

/// Whether every thread has stopped; one that has ended meanwhile does not count.
fn stands(pid: u32) -> bool {
    let threads = fs::read_dir(proc(pid).join("task")).expect("it is still there").flatten();
    threads.filter_map(|thread| state(&thread.path())).all(|state| state == 'T')
}

fn proc(pid: u32) -> PathBuf {
    Path::new("/proc").join(pid.to_string())
}

/// The letter of proc(5): 'T' of one that is stopped, 'Z' of one that nobody has waited for.
fn state(folder: &Path) -> Option<char> {
    let stat = fs::read_to_string(folder.join("stat")).ok()?;
    // It follows the name in parentheses, which may hold any character.
    stat.rsplit_once(") ")?.1.chars().next()
}
