use super::*;

#[test]
fn a_connection_that_the_driver_did_not_take_shows_its_end() {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    ours.set_nonblocking(true).expect("it may");
    assert!(!has_ended(&ours), "it was taken");
    drop(theirs);
    assert!(has_ended(&ours));
}
