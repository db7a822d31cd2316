use std::sync::mpsc::channel;

use super::*;

const SOON: Duration = Duration::from_millis(20);

#[test]
fn a_member_that_does_not_answer_is_named_and_not_waited_for() {
    let (answer, never) = channel::<()>();
    let look = Look::start("disk", move |_| never.recv()).expect("a thread");
    let error = look.end_within(SOON).expect_err("no answer");
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    let failure = silent("disk", &error, "cannot create data");
    assert!(failure.why.starts_with("disk: it has not answered"), "{failure}");
    assert!(any_left_behind(), "its thread is there");
    // What comes late meets nobody.
    drop(answer);
}
