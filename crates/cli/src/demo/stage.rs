//! Where the demo plays: a temporary directory, the programs, and what is printed of them.

use std::cell::RefCell;
use std::env;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::children::{Child, Children};
use crate::args::ArrayName;
use crate::failure::Failure;
use crate::output::{print, print_line, print_ours};
use crate::programs;
use crate::run_dir::RunDir;

/// Programs that the demo runs besides mdspace.
const PROGRAMS: [&str; 6] = ["truncate", "mkfs.ext4", "nbdcopy", "fio", "sha256sum", "e2fsck"];

/// Disk that the demo may need, with the copy at its largest.
const DISK_BYTES_WANTED: u64 = 2 << 30;

/// How long the array may take to stop when the demo ends early.
const STOP_PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The demo's own directory and programs. Nothing of it is left when it goes.
pub(super) struct Stage {
    folder: RefCell<Option<TempDir>>,
    path: PathBuf,
    programs_path: String,
    from: PathBuf,
    children: Children,
}

/// A program that runs beside the demo.
pub(super) struct Running<'a> {
    stage: &'a Stage,
    words: String,
    child: Child,
}

impl Stage {
    /// Finds the programs and makes the directory.
    pub(super) fn set(from: Option<PathBuf>) -> Result<Self, Failure> {
        let programs_path = programs::path();
        let absent: Vec<_> = PROGRAMS
            .iter()
            .copied()
            .filter(|name| !programs::is_on(&programs_path, name))
            .collect();
        if !absent.is_empty() {
            return Err(Failure::new(
                "the demo cannot start",
                format!("not found: {}", absent.join(", ")),
                "in the source tree: tools/fetch (installs nothing); else: apt install fio libnbd-bin e2fsprogs",
            ));
        }
        let cannot = |error: std::io::Error| {
            Failure::new("the demo cannot start", error, "set TMPDIR to a directory with 2 GiB")
        };
        let folder = TempDir::with_prefix("mdspace-demo-").map_err(cannot)?;
        let path = folder.path().canonicalize().map_err(cannot)?;
        check_room(&path)?;
        let children = Children::heed_signals().map_err(cannot)?;
        let from = from.or_else(source_directory).unwrap_or_else(|| "/usr/share/doc".into());
        let stage =
            Self { folder: RefCell::new(Some(folder)), path, programs_path, from, children };
        print(&format!("$ cd {0}\n$ export MDSPACE_RUN_DIR={0}/run\n", stage.path.display()))?;
        Ok(stage)
    }

    /// Whether Ctrl-C or a kill has come.
    pub(super) fn interrupted(&self) -> bool {
        self.children.interrupted()
    }

    /// The directory whose files go into the file system.
    pub(super) fn source_of_files(&self) -> &Path {
        &self.from
    }

    /// The array's socket, as NBD clients name it.
    pub(super) fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}/data.nbd", self.path.display())
    }

    /// The option that serves the array there.
    pub(super) fn serve_option(&self) -> String {
        format!("--serve=nbd:unix:{}/data.nbd", self.path.display())
    }

    /// Prints what comes next.
    pub(super) fn title(&self, title: &str) -> Result<(), Failure> {
        let bold = std::io::stdout().is_terminal();
        let (on, off) = if bold { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
        print_ours(&format!("\n{on}# {title}{off}\n"))
    }

    /// Runs mdspace, which must succeed, and shows what it prints.
    pub(super) fn mdspace(&self, words: &[&str]) -> Result<(), Failure> {
        self.mdspace_status(words, &[0])
    }

    /// Runs mdspace, which must end with one of `expected`, and shows what it prints.
    pub(super) fn mdspace_status(&self, words: &[&str], expected: &[i32]) -> Result<(), Failure> {
        let output = self.execute("mdspace", words, expected)?;
        print(&String::from_utf8_lossy(&output.stdout))
    }

    /// Runs mdspace, which must succeed, and returns what it prints.
    pub(super) fn mdspace_output(&self, words: &[&str]) -> Result<String, Failure> {
        let output = self.execute("mdspace", words, &[0])?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        print(&text)?;
        Ok(text)
    }

    /// Runs a program, which must succeed, and shows what it prints.
    pub(super) fn run(&self, program: &str, words: &[&str]) -> Result<String, Failure> {
        let output = self.execute(program, words, &[0])?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        print(&text)?;
        Ok(text)
    }

    /// Runs a program, which must succeed, and shows only its command.
    pub(super) fn run_quietly(&self, program: &str, words: &[String]) -> Result<String, Failure> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = self.execute(program, &words, &[0])?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs a program, which must succeed; returns how long it took.
    pub(super) fn timed(&self, program: &str, words: &[&str]) -> Result<Duration, Failure> {
        let began = Instant::now();
        self.run(program, words)?;
        Ok(began.elapsed())
    }

    /// Starts a program that runs beside what comes next.
    pub(super) fn start(&self, program: &str, words: &[String]) -> Result<Running<'_>, Failure> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let shown = as_typed(program, &words);
        print_line(&format!("$ {shown} &"))?;
        let child = self
            .children
            .spawn(&mut self.command(program, &words))
            .map_err(|error| failed(&shown, &error.to_string()))?;
        Ok(Running { stage: self, words: shown, child })
    }

    /// Stops what runs and removes what was made; again does nothing.
    pub(super) fn clear(&self) {
        if let Some(folder) = self.folder.take() {
            self.stop_array();
            drop(folder.close());
        }
    }

    /// An interrupted create may still be starting its process: asks until it is gone.
    fn stop_array(&self) {
        let Ok(run_dir) = RunDir::open_at(self.run_dir()) else { return };
        let name: ArrayName = "data".parse().expect("a good name");
        let until = Instant::now() + STOP_PATIENCE;
        while run_dir.is_running(&name).unwrap_or(false) && Instant::now() < until {
            let mut stop = self.command("mdspace", &["stop", "data", "--force"]);
            drop(stop.stdout(Stdio::null()).stderr(Stdio::null()).status());
            thread::sleep(LOOK_EVERY);
        }
    }

    fn run_dir(&self) -> PathBuf {
        self.path.join("run")
    }

    fn execute(&self, program: &str, words: &[&str], expected: &[i32]) -> Result<Output, Failure> {
        let shown = as_typed(program, words);
        print_line(&format!("$ {shown}"))?;
        let output = self
            .children
            .spawn(&mut self.command(program, words))
            .and_then(Child::output)
            .map_err(|error| failed(&shown, &error.to_string()))?;
        self.judge(&shown, &output, expected)?;
        Ok(output)
    }

    fn judge(&self, shown: &str, output: &Output, expected: &[i32]) -> Result<(), Failure> {
        if self.interrupted() {
            return Err(failed(shown, "interrupted"));
        }
        if output.status.code().is_some_and(|code| expected.contains(&code)) {
            return Ok(());
        }
        let said =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        Err(failed(shown, &format!("{}\n{said}", output.status)))
    }

    fn command(&self, program: &str, words: &[&str]) -> Command {
        let mut command = programs::command(program, &self.programs_path, &self.run_dir());
        command.args(words).current_dir(&self.path);
        command
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Running<'_> {
    /// Waits for its end, which must be a success.
    pub(super) fn finish(self) -> Result<(), Failure> {
        print_line("$ wait")?;
        let output =
            self.child.output().map_err(|error| failed(&self.words, &error.to_string()))?;
        self.stage.judge(&self.words, &output, &[0])
    }
}

/// A command as a user would type it: words that a shell would change are quoted.
fn as_typed(program: &str, words: &[&str]) -> String {
    let quoted = words.iter().map(|word| match word.contains(['?', '*', ' ', '&', '$']) {
        true => format!("'{word}'"),
        false => (*word).to_owned(),
    });
    std::iter::once(program.to_owned()).chain(quoted).collect::<Vec<_>>().join(" ")
}

fn failed(command: &str, why: &str) -> Failure {
    Failure::new(format!("the demo failed at: {command}"), why, "report it with the output above")
}

/// Crates of the source tree, where this program lies in its `target`.
fn source_directory() -> Option<PathBuf> {
    let own = env::current_exe().ok()?;
    let crates = own.parent()?.parent()?.parent()?.join("crates");
    crates.is_dir().then_some(crates)
}

fn check_room(folder: &Path) -> Result<(), Failure> {
    let room = rustix::fs::statvfs(folder).map_or(u64::MAX, |fs| fs.f_bavail * fs.f_frsize);
    if room >= DISK_BYTES_WANTED {
        return Ok(());
    }
    Err(Failure::new(
        "the demo cannot start",
        format!("{} has {} MiB free, and 2 GiB are needed", folder.display(), room >> 20),
        "set TMPDIR to a directory with more room",
    ))
}
