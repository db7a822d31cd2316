//! Which CPUs lie on which NUMA node.

use std::io;

/// The NUMA nodes that this process may run on, with the CPUs that it may use of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// By node; none is empty.
    pub nodes: Vec<Vec<usize>>,
}

impl Topology {
    /// As `/sys/devices/system/node` and this process' own affinity tell.
    pub fn of_this_machine() -> io::Result<Self> {
        Ok(Self::of(super::cpus::allowed()?, &node_lists()))
    }

    /// The allowed CPUs, node by node. CPUs of no known node make up one of their own.
    fn of(allowed: Vec<usize>, known: &[Vec<usize>]) -> Self {
        let mut left = allowed;
        let mut nodes = Vec::new();
        for node in known {
            let (here, elsewhere) = left.into_iter().partition(|cpu| node.contains(cpu));
            left = elsewhere;
            nodes.push(here);
        }
        nodes.push(left);
        nodes.retain(|node| !node.is_empty());
        Self { nodes }
    }

    /// CPUs of all nodes.
    pub fn cpu_count(&self) -> usize {
        self.nodes.iter().map(Vec::len).sum()
    }

    /// The node of a CPU.
    pub fn node_of(&self, cpu: usize) -> Option<usize> {
        self.nodes.iter().position(|node| node.contains(&cpu))
    }
}

/// The CPUs of each NUMA node, as `/sys/devices/system/node` tells.
fn node_lists() -> Vec<Vec<usize>> {
    let list = |index| format!("/sys/devices/system/node/node{index}/cpulist");
    (0..)
        .map_while(|index| std::fs::read_to_string(list(index)).ok())
        .map(|text| cpu_list(&text).unwrap_or_default())
        .collect()
}

/// Reads the kernel's notation: `0-3,8,10-11`.
pub(crate) fn cpu_list(text: &str) -> Option<Vec<usize>> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        // No machine has more; a list from a user must not fill memory.
        (first <= last && last <= u16::MAX.into()).then_some(first..=last)
    };
    let parts = text.trim().split(',').filter(|part| !part.is_empty());
    let ranges: Option<Vec<std::ops::RangeInclusive<usize>>> = parts.map(range).collect();
    Some(ranges?.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lists_are_read() {
        assert_eq!(cpu_list("0-3,8,10-11\n").unwrap(), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(cpu_list("0\n").unwrap(), [0]);
        assert_eq!(cpu_list("\n").unwrap(), [0; 0]);
        for bad in ["x", "3-1", "0-99999999999", "1,-"] {
            assert_eq!(cpu_list(bad), None, "{bad}");
        }
    }

    #[test]
    fn allowed_cpus_are_sorted_by_node() {
        let known = [vec![0, 1, 4, 5], vec![2, 3, 6, 7]];
        let topology = Topology::of(vec![1, 2, 3, 5, 9], &known);
        assert_eq!(topology.nodes, [vec![1, 5], vec![2, 3], vec![9]]);
        assert_eq!(Topology::of(vec![0, 1], &[]).nodes, [[0, 1]]);
        assert_eq!((topology.cpu_count(), topology.node_of(9)), (5, Some(2)));
    }
}
