use super::*;
use crate::process::array::OrderError;
use crate::report::examples::{clean_status, rebuilding_status};
use mdspace_engine::array::CommandError;

#[test]
fn an_array_that_is_silent_for_long_is_watched_on() {
    let silent = OrderError::Silent(Duration::from_secs(150)).failure("no status");
    assert_eq!(next(Err(silent)), Next::AskAgain);
    let stopped = OrderError::from(CommandError::Stopped).failure("no status");
    assert_eq!(next(Err(stopped)), Next::End);
}

/// The watch has asked, and carries out orders before it looks; a verb asks and looks meanwhile.
#[test]
fn an_older_status_that_is_looked_at_later_tells_nothing() {
    let recorder = Recorder::default();
    let ask = |status: ArrayStatus| recorder.ask_and_look(|| Ok(status)).map(drop);
    ask(clean_status()).expect("a status");
    let watched = recorder.ask_and_look(|| {
        let before = clean_status();
        ask(rebuilding_status()).expect("a status");
        Ok(before)
    });
    watched.expect("a status");
    ask(rebuilding_status()).expect("a status");
    let told: Vec<String> = recorder.after(0).into_iter().map(|event| event.event).collect();
    assert_eq!(told, ["NewArray", "Fail", "DegradedArray", "RebuildStarted"]);
    assert!(recorder.inside().poked, "another look follows");
}
