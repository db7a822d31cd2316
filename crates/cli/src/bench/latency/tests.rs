use std::time::Duration;

use super::*;

/// Times of requests that follow each other, each as long as `took` says.
fn timed(count: u64, took: impl Fn(u64) -> Duration) -> Vec<u64> {
    times(&Latencies::at_depth(1), count, took)
}

fn times(latencies: &Latencies, count: u64, took: impl Fn(u64) -> Duration) -> Vec<u64> {
    for tag in 0..count {
        latencies.begin(tag, || Time::ZERO);
        latencies.end(tag, || Time::ZERO + took(tag));
    }
    latencies.take()
}

#[test]
fn of_quick_requests_some_are_timed() {
    let took = timed(1700, |_| Duration::from_micros(1));
    assert_eq!(took, vec![1000; 100]);
}

#[test]
fn of_slow_requests_all_are_timed_as_soon_as_that_is_sure() {
    let took = timed(1700, |_| Duration::from_micros(20));
    assert_eq!(took.len() as u64, 1700 - u64::from(SURE - 1) * (ONE_IN - 1));
}

#[test]
fn a_slow_request_now_and_then_makes_none_of_them_slow() {
    let took = timed(1700, |tag| Duration::from_micros(if tag == 340 { 5000 } else { 1 }));
    assert_eq!(took.len(), 100);
}

#[test]
fn of_requests_that_are_counted_some_are_timed_however_slow() {
    let took = times(&Latencies::default(), 1700, |_| Duration::from_micros(20));
    assert_eq!(took.len(), 100);
}
