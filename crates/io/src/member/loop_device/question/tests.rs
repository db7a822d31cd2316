use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

#[test]
fn who_has_not_answered_is_not_asked_again_before_that_answer_has_come() {
    let whom = Path::new("a device of this test");
    let (asked, go_on) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(())));
    let ask = || {
        let (asked, go_on) = (asked.clone(), go_on.clone());
        Question::ask(whom, move || {
            asked.fetch_add(1, Ordering::Relaxed);
            drop(go_on.lock());
            Ok(Behind::Device(7))
        })
    };
    let halted = go_on.lock().expect("nobody panics");
    for _ in 0..3 {
        let answer = ask().answer_until(Instant::now());
        assert!(answer.is_err_and(|error| is_silence(&error)));
    }
    drop(halted);
    // The late answer is no answer to a new question.
    while is_unanswered(whom) {
        thread::yield_now();
    }
    assert_eq!(ask().answer().expect("it answers"), Behind::Device(7));
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}
