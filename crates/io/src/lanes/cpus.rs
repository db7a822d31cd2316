//! Where lanes run.

use std::io;

use super::StartError;

/// The CPUs that one lane may run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place(Vec<usize>);

/// A place for each of `count` lanes: one of `pins` in turn, or all CPUs of one NUMA node in turn.
pub(super) fn places(count: usize, pins: &[usize]) -> Result<Vec<Place>, StartError> {
    let allowed = allowed()?;
    if let Some(&cpu) = pins.iter().find(|cpu| !allowed.contains(cpu)) {
        return Err(StartError::Cpu { cpu });
    }
    let choices: Vec<Place> = match pins {
        [] => by_node(&allowed, &node_lists()),
        pins => pins.iter().map(|&cpu| Place(vec![cpu])).collect(),
    };
    Ok(choices.into_iter().cycle().take(count).collect())
}

/// The allowed CPUs, node by node. CPUs of no known node make up one of their own.
fn by_node(allowed: &[usize], nodes: &[Vec<usize>]) -> Vec<Place> {
    let mut left = allowed.to_vec();
    let mut places = Vec::new();
    for node in nodes {
        let (here, elsewhere) = left.into_iter().partition(|cpu| node.contains(cpu));
        left = elsewhere;
        places.push(Place(here));
    }
    places.push(Place(left));
    places.retain(|place| !place.0.is_empty());
    places
}

/// The CPUs of each NUMA node, as `/sys/devices/system/node` tells.
fn node_lists() -> Vec<Vec<usize>> {
    let list = |index| format!("/sys/devices/system/node/node{index}/cpulist");
    (0..)
        .map_while(|index| std::fs::read_to_string(list(index)).ok())
        .map(|text| cpu_list(&text))
        .collect()
}

/// Reads the kernel's notation: `0-3,8,10-11`.
fn cpu_list(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

fn allowed() -> io::Result<Vec<usize>> {
    // SAFETY: all zeroes is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is as large as said.
    if unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let cpus = 0..libc::CPU_SETSIZE as usize;
    // SAFETY: every CPU asked for is below the size of the set.
    Ok(cpus.filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect())
}

impl Place {
    /// Keeps the calling thread here from now on.
    pub(super) fn apply(&self) {
        // SAFETY: all zeroes is an empty set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        for &cpu in &self.0 {
            // SAFETY: allowed CPUs are below the size of the set.
            unsafe { libc::CPU_SET(cpu, &mut set) };
        }
        // SAFETY: `set` is as large as said.
        if unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) } != 0 {
            let error = io::Error::last_os_error();
            tracing::warn!(%error, cpus = ?self.0, "a lane runs anywhere: it cannot be pinned");
        }
    }
}

#[cfg(test)]
mod tests;
