//! Places for lanes on machines that we do not have.

use super::*;

fn two_nodes() -> Topology {
    Topology { nodes: vec![vec![1, 5], vec![2, 3]] }
}

#[test]
fn lanes_take_the_nodes_in_turn() {
    let places = places(3, &[], &two_nodes()).unwrap();
    let on = |node, cpus| Place { node, cpus };
    assert_eq!(places, [on(0, vec![1, 5]), on(1, vec![2, 3]), on(0, vec![1, 5])]);
}

#[test]
fn pinned_lanes_take_their_cpus_in_turn() {
    let places = places(3, &[3, 1], &two_nodes()).unwrap();
    let on = |node, cpu| Place { node, cpus: vec![cpu] };
    assert_eq!(places, [on(1, 3), on(0, 1), on(1, 3)]);
}

#[test]
fn a_cpu_that_is_not_there_is_refused() {
    let refused = places(1, &[4], &two_nodes());
    assert!(matches!(refused, Err(StartError::Cpu { cpu: 4 })));
}
