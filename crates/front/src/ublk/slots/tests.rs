use super::*;

#[test]
fn an_entry_goes_to_the_array_and_back_until_it_ends() {
    let mut slots = Slots::fetching(2);
    assert_eq!(slots.take(1), Ok(1));
    slots.give_back(1);
    assert_eq!(slots.take(1), Ok(1));
    assert_eq!(slots.end(0), Ok(()));
    assert!(!slots.are_over(), "a request is not answered");
    slots.give_back(1);
    assert!(!slots.are_over(), "the kernel may send one more");
    assert_eq!(slots.end(1), Ok(()));
    assert!(slots.are_over());
}

#[test]
fn the_kernel_answers_for_no_entry_that_it_does_not_have() {
    let mut slots = Slots::fetching(2);
    assert_eq!(slots.take(0), Ok(0));
    assert_eq!(slots.take(0), Err(NotFetching(0)));
    assert_eq!(slots.end(0), Err(NotFetching(0)));
    assert_eq!(slots.take(2), Err(NotFetching(2)));
    assert_eq!(slots.take(u64::MAX), Err(NotFetching(u64::MAX)));
    assert_eq!(slots.end(1), Ok(()));
    assert_eq!(slots.take(1), Err(NotFetching(1)));
}

#[test]
#[should_panic(expected = "a request is answered once")]
fn a_request_is_not_answered_twice() {
    let mut slots = Slots::fetching(1);
    assert_eq!(slots.take(0), Ok(0));
    slots.give_back(0);
    slots.give_back(0);
}
