//! The machine that figures come from.

use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPUs that this process may run on.
pub(super) fn cpus() -> Vec<usize> {
    let all = 0..CpuSet::MAX_CPU;
    sched_getaffinity(None).map_or(vec![0], |set| all.filter(|&cpu| set.is_set(cpu)).collect())
}

/// Keeps the calling thread on one CPU, where that is allowed: figures hop less.
pub(super) fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    let _ = sched_setaffinity(None, &set);
}

/// How long the calling thread has waited, ready to run, while others had its CPU; zero where the
/// kernel does not tell. Figures leave that time out, so that a busy machine spoils them less.
pub(super) fn run_delay() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split_ascii_whitespace().nth(1).and_then(|field| field.parse().ok());
    Duration::from_nanos(ns.unwrap_or(0))
}

/// The CPU's name, how many of them there are, and the kernel.
pub(super) fn describe() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named = |key: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let name = named("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let system = rustix::system::uname();
    let kernel =
        format!("{} {}", system.sysname().to_string_lossy(), system.release().to_string_lossy());
    let count = cpus().len();
    let plural = if count == 1 { "" } else { "s" };
    format!("{name}, {count} CPU{plural}, {kernel}, parity by {}", mdspace_parity::kernels().isa())
}

/// The first CPUs that this process may use, one a lane; none when there are too few.
pub(super) fn pinned(lanes: usize) -> Vec<usize> {
    let there = cpus();
    if lanes <= there.len() { there[..lanes].to_vec() } else { Vec::new() }
}
