//! Places for lanes on machines that we do not have.

use super::*;

#[test]
fn the_kernels_lists_are_read() {
    assert_eq!(cpu_list("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
    assert_eq!(cpu_list("0\n"), [0]);
    assert_eq!(cpu_list("\n"), [0; 0]);
}

#[test]
fn lanes_take_the_nodes_in_turn() {
    let nodes = [vec![0, 1, 4, 5], vec![2, 3, 6, 7]];
    let places = by_node(&[1, 2, 3, 5, 9], &nodes);
    assert_eq!(places, [Place(vec![1, 5]), Place(vec![2, 3]), Place(vec![9])]);
    assert_eq!(by_node(&[0, 1], &[]), [Place(vec![0, 1])]);
}

#[test]
fn pinned_lanes_take_their_cpus_in_turn() {
    let cpu = allowed().unwrap()[0];
    let places = places(3, &[cpu]).unwrap();
    assert_eq!(places, vec![Place(vec![cpu]); 3]);
}

#[test]
fn a_cpu_that_is_not_there_is_refused() {
    let refused = places(1, &[libc::CPU_SETSIZE as usize + 1]);
    assert!(matches!(refused, Err(StartError::Cpu { .. })));
}
