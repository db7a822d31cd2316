use super::*;

#[test]
fn an_array_runs_on_where_it_refused_to_stop_and_says_how_it_is() {
    let refused = Failure::new("cannot stop data", "a client is connected", "disconnect it");
    assert!(runs_on(&refused, || true));
    // It was killed meanwhile.
    assert!(!runs_on(&refused, || false));
}

/// The order stands: it ends when what it waits for has ended.
#[test]
fn an_array_that_did_not_say_in_time_that_it_stops_may_end_yet() {
    let silent = Failure::of_silence("data does not answer", "it is at work", "ask again");
    assert!(!runs_on(&silent, || true));
}
