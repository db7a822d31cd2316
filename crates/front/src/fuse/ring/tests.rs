//! What can be said of the ring without a kernel that has one.

use super::*;

#[test]
fn entries_take_no_more_memory_than_they_may_unless_there_are_very_many_cpus() {
    assert_eq!(depth(1), DEPTH_MAX);
    assert_eq!(depth(2), DEPTH_MAX);
    for cpus in [4, 16, 48] {
        assert!((DEPTH_MIN..DEPTH_MAX).contains(&depth(cpus)), "{cpus} CPUs");
        assert!(depth(cpus) * cpus * ENTRY_BYTES <= BYTES_MAX, "{cpus} CPUs");
    }
    assert_eq!(depth(1024), DEPTH_MIN);
}
