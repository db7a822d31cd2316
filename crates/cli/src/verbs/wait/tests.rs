use super::*;
use crate::report::examples;

/// A member failed in the middle of a check, and a spare was rebuilt after that: the rebuild's good end is its own.
#[test]
fn what_was_cut_short_is_not_taken_for_done_where_another_task_came_after_it() {
    let mut array = examples::clean_raid6().array;
    array.sync.last_action = "recover".into();
    assert!(expect_last(&array, "check").is_err());
    array.sync.last_action = "check".into();
    assert!(expect_last(&array, "check").is_ok());
}
