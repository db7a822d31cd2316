//! Where the test-only programs are.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::thread::{CpuSet, sched_getaffinity};

/// The environment that `tools/fetch` wrote.
pub(crate) struct Tools {
    root: PathBuf,
    directory: PathBuf,
    variables: BTreeMap<String, String>,
}

impl Tools {
    /// The programs, found once. Panics with the cure where they are absent: a test that needs
    /// them must never be skipped in silence.
    pub(crate) fn find() -> &'static Self {
        static TOOLS: OnceLock<Tools> = OnceLock::new();
        TOOLS.get_or_init(Self::load)
    }

    fn load() -> Self {
        let root = project();
        let directory = std::env::var_os("MDSPACE_TOOLS").map_or_else(
            || Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("tools"),
            PathBuf::from,
        );
        let file = directory.join("env");
        assert!(file.exists(), "{} is missing: run `tools/fetch` first", file.display());
        let output = Command::new("bash")
            .args(["-c", ". \"$0\" && env -0"])
            .arg(&file)
            .output()
            .expect("bash runs");
        assert!(output.status.success(), "{} cannot be read by bash", file.display());
        let text = String::from_utf8_lossy(&output.stdout);
        let variables = text
            .split('\0')
            .filter_map(|line| line.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        Self { root, directory, variables }
    }

    /// A command of one of the fetched programs, or of the host's.
    pub(crate) fn command(&self, program: &str) -> Command {
        let found = self
            .path()
            .split(':')
            .map(|directory| Path::new(directory).join(program))
            .find(|path| path.exists())
            .unwrap_or_else(|| panic!("{program} is not on PATH: run `tools/fetch`"));
        let mut command = Command::new(found);
        command.envs(&self.variables);
        command
    }

    /// `PATH` with the fetched programs.
    pub(crate) fn path(&self) -> &str {
        &self.variables["PATH"]
    }

    /// The unpacked packages, laid out as `/`.
    pub(crate) fn root(&self) -> PathBuf {
        self.directory.join("root")
    }

    /// The script that boots a guest, on that CPU.
    pub(crate) fn run_in_uml(&self, cpu: usize) -> Command {
        let mut command = Command::new("taskset");
        command.args(["-c", &cpu.to_string()]).arg(self.root.join("tools/run-in-uml.sh"));
        command.envs(&self.variables);
        command
    }

    /// The script that boots a guest of a distribution's kernel.
    pub(crate) fn run_in_qemu(&self) -> Command {
        let mut command = Command::new(self.root.join("tools/run-in-qemu.sh"));
        command.envs(&self.variables);
        command
    }

    /// A copy of the disk with a whole system, of the test's own.
    pub(crate) fn copy_system_to(&self, disk: &Path) {
        let made = self.directory.join("guest-disk.img");
        let cure = "run `tools/fetch qemu-guest`, then `tools/make-guest-disk`";
        assert!(made.exists(), "{} is missing: {cure}", made.display());
        let copied = Command::new("cp").arg("--sparse=always").args([&made, disk]).status();
        assert!(copied.is_ok_and(|status| status.success()), "the disk is copied");
    }

    /// A CPU on which no other guest runs, for as long as the file is held.
    pub(crate) fn cpu_without_guest(&self) -> (usize, File) {
        static WAITED: AtomicUsize = AtomicUsize::new(0);
        let allowed = sched_getaffinity(None).expect("a thread has CPUs");
        let cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
        let mut locks: Vec<_> = cpus
            .map(|cpu| {
                let file = File::create(self.directory.join(format!(".guest-{cpu}")));
                (cpu, file.expect("the tools' folder is writable"))
            })
            .collect();
        let free = locks.iter().position(|(_, file)| file.try_lock().is_ok());
        let index = free.unwrap_or_else(|| {
            let index = WAITED.fetch_add(1, Ordering::Relaxed) % locks.len();
            locks[index].1.lock().expect("the lock of a CPU can be taken");
            index
        });
        locks.swap_remove(index)
    }
}

/// The project's root.
pub(crate) fn project() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.join("../..").canonicalize().expect("the project's root exists")
}
