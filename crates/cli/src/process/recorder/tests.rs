use super::*;
use crate::process::array::OrderError;
use mdspace_engine::array::CommandError;

#[test]
fn an_array_that_is_silent_for_long_is_watched_on() {
    let silent = OrderError::Silent(Duration::from_secs(150)).failure("no status");
    assert_eq!(next(Err(silent)), Next::AskAgain);
    let stopped = OrderError::from(CommandError::Stopped).failure("no status");
    assert_eq!(next(Err(stopped)), Next::End);
}
