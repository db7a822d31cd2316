//! What this host offers, and the command that gives what is missing.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use io_uring::{IoUring, Probe, opcode};
use mdspace_front::driver_device::NoDevice;
use mdspace_front::nbd_device::{self, NbdDeviceError};
use mdspace_front::ublk::{self, UblkError};
use rustix::process::{Resource, getrlimit};
use serde::Serialize;

use crate::report::SCHEMA;

/// Memory that one lane likes to lock: its ring and its registered buffers.
const LOCKED_BYTES_WANTED: u64 = 64 << 20;

/// Everything that was looked at.
#[derive(Debug, Serialize)]
pub(crate) struct Diagnosis {
    schema: u32,
    findings: Vec<Finding>,
}

/// One thing that the host has or lacks.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    name: &'static str,
    ok: bool,
    /// Whether mdspace cannot serve an array without it.
    needed: bool,
    found: String,
    /// The command that gives it; none when it is there.
    cure: Option<String>,
}

impl Diagnosis {
    pub(crate) fn of_this_host() -> Self {
        let findings = vec![
            kernel(),
            io_uring(),
            locked_memory(),
            parity(),
            numa(),
            device("FUSE", "/dev/fuse", "modprobe fuse"),
            device("loop", "/dev/loop-control", "modprobe loop"),
            nbd(),
            ublk(),
            program("blkid", "apt install util-linux"),
            program("mdadm", "apt install mdadm"),
        ];
        Self { schema: SCHEMA, findings }
    }

    /// Whether mdspace can serve an array here.
    pub(crate) fn can_serve(&self) -> bool {
        self.findings.iter().all(|finding| finding.ok || !finding.needed)
    }

    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        for finding in &self.findings {
            let verdict = if finding.ok { "ok" } else { "missing" };
            writeln!(out, "{:<14} {verdict:<8} {}", finding.name, finding.found)
                .expect("a String takes all that is written");
            if let Some(cure) = &finding.cure {
                writeln!(out, "{:<14} {:<8} {cure}", "", "do:")
                    .expect("a String takes all that is written");
            }
        }
        out
    }
}

fn kernel() -> Finding {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    ok("kernel", format!("{} {release} {}", "Linux", name.machine().to_string_lossy()))
}

/// The operations that a lane asks of its ring.
fn io_uring() -> Finding {
    let wanted = [
        ("read", opcode::Read::CODE),
        ("write", opcode::Write::CODE),
        ("readv", opcode::Readv::CODE),
        ("writev", opcode::Writev::CODE),
        ("fsync", opcode::Fsync::CODE),
        ("recv", opcode::Recv::CODE),
        ("send", opcode::Send::CODE),
    ];
    let ring = match IoUring::new(8) {
        Ok(ring) => ring,
        Err(error) => {
            let disabled = read_word("/proc/sys/kernel/io_uring_disabled");
            let found = format!("{error} (kernel.io_uring_disabled = {disabled})");
            return lacking("io_uring", found, cure_of_ring(&error), true);
        }
    };
    let mut probe = Probe::new();
    if let Err(error) = ring.submitter().register_probe(&mut probe) {
        return lacking("io_uring", format!("no probe: {error}"), "use Linux 6.1 or later", true);
    }
    let without: Vec<_> = wanted
        .iter()
        .filter(|(_, code)| !probe.is_supported(*code))
        .map(|(name, _)| *name)
        .collect();
    if without.is_empty() {
        return match mdspace_io::try_ring() {
            Ok(()) => ok("io_uring", "all operations that a lane uses".into()),
            Err(error) if mdspace_io::is_of_locked_memory(&error) => {
                let found = "the limit on locked memory leaves no room for the ring of a lane";
                lacking("io_uring", found.into(), LOCK_MORE, true)
            }
            Err(error) => lacking("io_uring", error.to_string(), cure_of_ring(&error), true),
        };
    }
    let found = format!("without {}", without.join(", "));
    lacking("io_uring", found, "use Linux 6.1 or later", true)
}

fn cure_of_ring(error: &io::Error) -> &'static str {
    match mdspace_io::is_of_locked_memory(error) {
        true => LOCK_MORE,
        false => "sysctl kernel.io_uring_disabled=0",
    }
}

const LOCK_MORE: &str = "ulimit -l unlimited   (LimitMEMLOCK= in a unit)";

fn locked_memory() -> Finding {
    let limit = getrlimit(Resource::Memlock).current;
    let found = limit.map_or_else(|| "no limit".into(), |bytes| format!("{} KiB", bytes >> 10));
    if limit.is_none_or(|bytes| bytes >= LOCKED_BYTES_WANTED) {
        return ok("locked memory", found);
    }
    lacking("locked memory", found, LOCK_MORE, false)
}

/// The instruction set that computes parity.
fn parity() -> Finding {
    ok("parity", mdspace_parity::kernels().isa().to_string())
}

fn numa() -> Finding {
    let nodes = read_word("/sys/devices/system/node/online");
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let nodes = if nodes.is_empty() { "0".to_owned() } else { nodes };
    ok("NUMA", format!("nodes {nodes}, {cpus} CPUs for this process"))
}

fn device(name: &'static str, path: &str, cure: &str) -> Finding {
    let opened = fs::OpenOptions::new().read(true).write(true).open(path);
    match opened {
        Ok(_) => ok(name, path.to_owned()),
        Err(error) if Path::new(path).exists() => {
            lacking(name, format!("{path}: {error}"), "run as root, or join the group of it", false)
        }
        Err(_) => lacking(name, format!("no {path}"), cure, false),
    }
}

/// The kernel's driver, which serves arrays as `/dev/nbdN`. It has no device by which it is asked.
fn nbd() -> Finding {
    match nbd_device::is_loaded() {
        Ok(()) => ok("nbd", "the kernel's nbd driver is loaded".into()),
        Err(NbdDeviceError::NoDriver) => {
            lacking("nbd", "the kernel's nbd driver is not loaded".into(), "modprobe nbd", false)
        }
        Err(error @ NbdDeviceError::NoDevice(NoDevice::NoNode(_))) => {
            lacking("nbd", error.to_string(), "give the container the host's /dev", false)
        }
        Err(error) => lacking("nbd", error.to_string(), "run as root", false),
    }
}

/// The same of the driver that serves arrays as `/dev/ublkbN`.
fn ublk() -> Finding {
    let missing = |found: String, cure| lacking("ublk", found, cure, false);
    match ublk::is_loaded() {
        Ok(()) => ok("ublk", "the kernel's ublk driver is loaded".into()),
        Err(UblkError::NoDriver) => {
            missing("the kernel's ublk driver is not loaded".into(), "modprobe ublk_drv")
        }
        Err(UblkError::TooOld) => {
            let found = "the kernel's ublk driver lacks user copy or recovery";
            missing(found.into(), "use Linux 6.5 or later")
        }
        Err(UblkError::NoRing(error)) => missing(error.to_string(), cure_of_ring(&error)),
        Err(error) => missing(error.to_string(), "run as root"),
    }
}

fn program(name: &'static str, cure: &str) -> Finding {
    match find_program(name) {
        Some(path) => ok(name, path.display().to_string()),
        None => lacking(name, "not in PATH".into(), cure, false),
    }
}

/// A program of PATH, or of the places where administrators' programs are.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

fn read_word(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn ok(name: &'static str, found: String) -> Finding {
    Finding { name, ok: true, needed: false, found, cure: None }
}

fn lacking(name: &'static str, found: String, cure: &str, needed: bool) -> Finding {
    Finding { name, ok: false, needed, found, cure: Some(cure.to_owned()) }
}

#[cfg(test)]
mod tests;
