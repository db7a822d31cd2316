use std::process::Command;

use super::*;

#[test]
fn a_process_is_under_way_until_it_has_ended() {
    let openers = Openers::default();
    assert!(!openers.are_under_way());
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("it starts");
    let pipe = child.stdin.take();
    reap_later(child, openers.0.clone());
    assert!(openers.are_under_way());
    drop(pipe);
    while openers.are_under_way() {
        thread::yield_now();
    }
}
