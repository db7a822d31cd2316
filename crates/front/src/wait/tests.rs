use std::task::Context;

use super::*;

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Future::poll(std::pin::Pin::new(future), &mut Context::from_waker(Waker::noop()))
}

#[test]
fn turns_come_in_the_order_in_which_they_were_asked_for() {
    let turns = Turns::default();
    let [mut first, mut second, mut third] = std::array::from_fn(|_| Box::pin(turns.turn()));
    let Poll::Ready(held) = poll(&mut first) else { panic!("it is free") };
    assert!(poll(&mut second).is_pending());
    drop(held);
    assert!(poll(&mut third).is_pending(), "the second has waited for longer");
    let Poll::Ready(held) = poll(&mut second) else { panic!("it is its turn") };
    assert!(poll(&mut third).is_pending());
    drop(held);
    assert!(poll(&mut third).is_ready());
}

#[test]
fn a_task_that_ends_while_it_waits_keeps_no_other_waiting() {
    let turns = Turns::default();
    let [mut first, mut second, mut third] = std::array::from_fn(|_| Box::pin(turns.turn()));
    let Poll::Ready(held) = poll(&mut first) else { panic!("it is free") };
    assert!(poll(&mut second).is_pending() && poll(&mut third).is_pending());
    drop(held);
    drop(second);
    assert!(poll(&mut third).is_ready());

    let mut fourth = Box::pin(turns.turn());
    let Poll::Ready(held) = poll(&mut fourth) else { panic!("it is free") };
    let mut fifth = Box::pin(turns.turn());
    assert!(poll(&mut fifth).is_pending());
    drop(fifth);
    drop(held);
    assert!(poll(&mut Box::pin(turns.turn())).is_ready());
}
