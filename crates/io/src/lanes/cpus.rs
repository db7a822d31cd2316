//! Where lanes run.

use std::io;

use super::{StartError, Topology};

/// The CPUs that one lane may run on, of one NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) node: usize,
    cpus: Vec<usize>,
}

/// A place for each of `count` lanes: one of `pins` in turn, or all CPUs of one NUMA node in turn.
pub(super) fn places(
    count: usize,
    pins: &[usize],
    topology: &Topology,
) -> Result<Vec<Place>, StartError> {
    let choices: Vec<Place> = match pins {
        [] => (0..topology.nodes.len()).map(|node| Place::node(node, topology)).collect(),
        pins => {
            let pinned = |&cpu| Place::cpu(cpu, topology).ok_or(StartError::Cpu { cpu });
            pins.iter().map(pinned).collect::<Result<_, _>>()?
        }
    };
    Ok(choices.into_iter().cycle().take(count).collect())
}

pub(crate) fn allowed() -> io::Result<Vec<usize>> {
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
    /// Anywhere on a node.
    pub(super) fn node(node: usize, topology: &Topology) -> Self {
        Self { node, cpus: topology.nodes[node].clone() }
    }

    /// Some CPUs of a node.
    pub(super) fn some_of(node: usize, cpus: Vec<usize>) -> Self {
        Self { node, cpus }
    }

    fn cpu(cpu: usize, topology: &Topology) -> Option<Self> {
        Some(Self { node: topology.node_of(cpu)?, cpus: vec![cpu] })
    }

    /// Keeps the calling thread here from now on.
    pub(super) fn apply(&self) {
        // SAFETY: all zeroes is an empty set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        for &cpu in self.cpus.iter().filter(|&&cpu| cpu < libc::CPU_SETSIZE as usize) {
            // SAFETY: the CPU is below the size of the set.
            unsafe { libc::CPU_SET(cpu, &mut set) };
        }
        // SAFETY: `set` is as large as said.
        if unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) } != 0 {
            let error = io::Error::last_os_error();
            tracing::warn!(%error, cpus = ?self.cpus, "a lane runs anywhere: it cannot be pinned");
        }
    }
}

#[cfg(test)]
mod tests;
