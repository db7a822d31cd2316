//! The machine that figures come from.

use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// What /proc counts time in (USER_HZ, asm-generic/param.h).
const TICKS_PER_SECOND: u32 = 100;

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

/// How long the calling thread, ready to run, was without its CPU: other threads had it, or the host of
/// this guest lent it to others. Zero where the kernel does not tell. Figures leave that time out, so that
/// a busy machine spoils them less.
pub(super) fn run_delay() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split_ascii_whitespace().nth(1).and_then(|field| field.parse().ok());
    // Of a thread that may run on several CPUs nobody knows which of them it missed.
    let pinned = cpus();
    let stolen = if pinned.len() == 1 { stolen(&pinned) } else { Duration::ZERO };
    Duration::from_nanos(ns.unwrap_or(0)) + stolen
}

/// What the host of this guest has taken from these CPUs, together; to a hundredth of a second, as the kernel
/// tells it.
pub(super) fn stolen(cpus: &[usize]) -> Duration {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks: u64 = cpus.iter().filter_map(|&cpu| steal(&text, cpu)).sum();
    Duration::from_secs(ticks) / TICKS_PER_SECOND
}

/// A CPU's field `steal` of proc(5)'s stat, in ticks.
fn steal(stat: &str, cpu: usize) -> Option<u64> {
    let name = format!("cpu{cpu}");
    let mut lines = stat.lines().map(str::split_ascii_whitespace);
    let mut fields = lines.find_map(|mut fields| (fields.next()? == name).then_some(fields))?;
    fields.nth(7)?.parse().ok()
}

/// Threads that ran or wanted to, of all programs, in the last minute; zero where the kernel does not tell.
pub(super) fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0)
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

#[cfg(test)]
mod tests;
