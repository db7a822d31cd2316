//! Linux md in a guest: the script that measures it, and what it printed.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::doctor::find_program;
use crate::failure::Failure;

use super::{Load, MEMBER_MIB, RANDOM_READ, SELECTORS, SHAPES, Shape, multipath_name};
use crate::bench::workload::parse;

/// Boots User-Mode Linux for a script.
const RUN_IN_UML: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/run-in-uml.sh"));

/// Functions of the script.
const FUNCTIONS: &str = include_str!("guest.sh");

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
        let unpacked = env::var_os("MDSPACE_TOOLS").map(PathBuf::from).or_else(|| {
            let own = env::current_exe().ok()?;
            Some(own.parent()?.parent()?.join("tools"))
        });
        let tools = unpacked.filter(|folder| folder.join("env").is_file());
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

    /// Boots, measures everything, and ends.
    pub(super) fn measure(&self, repetitions: u32, seconds: f64) -> Result<Printed, Failure> {
        let failed =
            |why: String| Failure::new("cannot measure Linux md", why, "see what the guest said");
        let folder = tempfile::tempdir().map_err(|error| failed(error.to_string()))?;
        let (boot, script) = (folder.path().join("run-in-uml.sh"), folder.path().join("script"));
        std::fs::write(&boot, RUN_IN_UML)
            .and_then(|()| std::fs::write(&script, script_text(repetitions, seconds)))
            .map_err(|error| failed(error.to_string()))?;
        let output = self.command(&boot, &script).output();
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

fn script_text(repetitions: u32, seconds: f64) -> String {
    let millis = (seconds * 1000.0) as u32;
    let shapes: String = SHAPES.iter().map(shape_text).collect();
    let paths = SELECTORS.map(|selector| {
        format!("multipath {selector} '{}' {RANDOM_READ}\n", multipath_name(selector))
    });
    format!(
        "MEMBER_MIB={MEMBER_MIB} REPETITIONS={repetitions} SECONDS_EACH={millis}ms\n{FUNCTIONS}\n{}{shapes}",
        paths.concat()
    )
}

/// One array's part of the script: healthy loads, a check, degraded loads, a rebuild.
fn shape_text(shape: &Shape) -> String {
    let args = parse(shape.array);
    let chunk = if args.level.has_chunks() { "512" } else { "" };
    let mut text = format!("array {} {} {chunk}\n", args.level.number(), args.raid_devices);
    let load = |load: &Load| format!("load '{}, {}' {}\n", shape.name, load.name, load.words);
    let (healthy, degraded): (Vec<&Load>, Vec<&Load>) =
        shape.loads.iter().partition(|load| load.lost.is_empty());
    text.extend(healthy.into_iter().map(load));
    if !degraded.is_empty() {
        text += &"sync_speed check check\n".repeat(3);
        text += "lose /dev/ram1\n";
        text.extend(degraded.into_iter().map(load));
        text += "remove /dev/ram1; sync_speed rebuild back /dev/ram1\n";
        text += "lose /dev/ram1; remove /dev/ram1; sync_speed rebuild back /dev/ram1\n";
    }
    text + "gone\n"
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
