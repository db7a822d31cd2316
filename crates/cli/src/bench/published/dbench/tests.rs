use super::Run;

#[test]
fn the_last_line_of_dbench_is_read_and_no_other_is_taken_for_it() {
    let said = " Operation      Count    AvgLat    MaxLat\n ----\n WriteX   12345  0.02  459.1\n\n\
                Throughput 377.307 MB/sec  10 clients  10 procs  max_latency=459.123 ms\n";
    let run = Run { mb_s: 377.307, max_latency_ms: 459.123 };
    assert_eq!(Run::read(said), Some(run));
    assert_eq!(Run::read("Throughput none MB/sec  10 clients  max_latency=1 ms\n"), None);
    assert_eq!(Run::read("  10 of 10 processes prepared for launch\n"), None);
}
