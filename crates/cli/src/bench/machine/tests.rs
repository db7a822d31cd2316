use super::*;

#[test]
fn what_the_host_took_is_read_of_the_cpu_that_was_asked_for() {
    let stat = "cpu  11 0 5 90 1 0 0 7 0 0\ncpu1 6 0 2 40 1 0 0 4 0 0\ncpu11 5 0 3 50 0 0 0 3 0 0\nintr 1\n";
    assert_eq!(steal(stat, 1), Some(4));
    assert_eq!(steal(stat, 11), Some(3));
    assert_eq!(steal(stat, 2), None);
    assert_eq!(steal("cpu1 6 0 2", 1), None, "a kernel that does not tell");
}
