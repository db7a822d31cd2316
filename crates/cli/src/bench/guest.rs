//! Linux md in a guest: what boots it, the functions that measure it, and what they printed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::doctor::find_program;
use crate::failure::Failure;
use crate::programs;

/// What stands beside every figure of md's.
pub(super) const CAVEAT: &str =
    "User-Mode Linux gives md one CPU, no SIMD parity and dear system calls";

/// Each of md's members, in MiB.
pub(super) const MEMBER_MIB: u32 = 64;

/// Boots User-Mode Linux for a script.
const RUN_IN_UML: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/run-in-uml.sh"));

/// What scripts call.
const FUNCTIONS: &str = include_str!("guest/functions.sh");

/// Memory beside the members.
const GUEST_MIB: u32 = 384;
const LIMIT_S: u32 = 900;

/// A guest that can be booted.
pub(super) struct Guest {
    /// Where `tools/fetch` unpacked programs, if it did.
    tools: Option<PathBuf>,
}

impl Guest {
    /// Finds User-Mode Linux on this machine or below `target/tools`.
    pub(super) fn find() -> Result<Self, Failure> {
        let tools = programs::unpacked().filter(|folder| folder.join("env").is_file());
        let there = |program: &str| find_program(program).is_some();
        let installed = ["linux.uml", "mdadm", "fio", "modprobe"].into_iter().all(there);
        if tools.is_some() || installed {
            return Ok(Self { tools });
        }
        Err(Failure::new(
            "cannot measure Linux md",
            "there is no User-Mode Linux here to run it in",
            "in the source tree: tools/fetch (installs nothing); else: apt install user-mode-linux kmod mdadm fio",
        ))
    }

    /// Boots, runs a script of these functions, and ends. Each load has so many repetitions of so many
    /// seconds.
    pub(super) fn run(
        &self,
        script: &str,
        repetitions: u32,
        seconds: f64,
    ) -> Result<Printed, Failure> {
        let failed =
            |why: String| Failure::new("cannot measure Linux md", why, "see what the guest said");
        let folder = tempfile::tempdir().map_err(|error| failed(error.to_string()))?;
        let (boot, file) = (folder.path().join("run-in-uml.sh"), folder.path().join("script"));
        let millis = (seconds * 1000.0) as u32;
        let script = format!(
            "MEMBER_MIB={MEMBER_MIB} REPETITIONS={repetitions} SECONDS_EACH={millis}ms\n{FUNCTIONS}\n{script}"
        );
        std::fs::write(&boot, RUN_IN_UML)
            .and_then(|()| std::fs::write(&file, script))
            .map_err(|error| failed(error.to_string()))?;
        let output = self.command(&boot, &file).output();
        let output = output.map_err(|error| failed(error.to_string()))?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        match output.status.success() {
            true => Ok(Printed(printed)),
            false => Err(failed(format!("{printed}{}", String::from_utf8_lossy(&output.stderr)))),
        }
    }

    fn command(&self, boot: &Path, script: &Path) -> Command {
        let mut command = Command::new("bash");
        let memory = format!("{}M", GUEST_MIB + 8 * MEMBER_MIB);
        command
            .arg(boot)
            .args(["-t", &LIMIT_S.to_string(), "-m", &memory, "-k", "brd dm-multipath"])
            .arg(script);
        command.env("UML_NICE", "0").stdin(Stdio::null());
        if let Some(tools) = &self.tools {
            command.env("MDSPACE_TOOLS", tools);
        }
        command
    }
}

/// What the guest printed.
pub(super) struct Printed(String);

impl Printed {
    /// IOPS of a load on one side, repetition by repetition.
    pub(super) fn load(&self, name: &str, side: &str) -> Result<Vec<f64>, Failure> {
        self.numbers(&format!("load {name}|{side}|"))
    }

    /// Why there is no such load.
    pub(super) fn why_not(&self, name: &str) -> Option<&str> {
        let start = format!("nothing of {name}|");
        self.0.lines().find_map(|line| line.strip_prefix(start.as_str()))
    }

    /// MiB/s of one member.
    pub(super) fn sync(&self, name: &str) -> Result<Vec<f64>, Failure> {
        self.numbers(&format!("sync {name}|"))
    }

    fn numbers(&self, start: &str) -> Result<Vec<f64>, Failure> {
        let found = self.0.lines().filter_map(|line| line.strip_prefix(start)?.trim().parse().ok());
        let found: Vec<f64> = found.filter(|number| *number > 0.0).collect();
        if found.is_empty() {
            let why = format!("the guest did not say '{start}'; it said:\n{}", self.0);
            return Err(Failure::new("cannot measure Linux md", why, "see what the guest said"));
        }
        Ok(found)
    }
}
