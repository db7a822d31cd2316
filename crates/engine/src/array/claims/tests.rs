//! Claims, one poll at a time.

use std::task::Waker;

use super::*;

fn poll<'a>(acquire: &mut Acquire<'a>) -> Option<Claim<'a>> {
    match Pin::new(acquire).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(claim) => Some(claim),
        Poll::Pending => None,
    }
}

#[test]
fn overlapping_columns_of_one_row_exclude_each_other() {
    let claims = Claims::new(4);
    let first = poll(&mut claims.acquire(7, 0..8, Mode::Exclusive)).unwrap();
    let mut second = claims.acquire(7, 4..12, Mode::Exclusive);
    assert!(poll(&mut second).is_none());
    drop(first);
    assert!(poll(&mut second).is_some());
}

#[test]
fn other_rows_and_other_columns_are_free() {
    let claims = Claims::new(4);
    let _first = poll(&mut claims.acquire(7, 0..8, Mode::Exclusive)).unwrap();
    assert!(poll(&mut claims.acquire(7, 8..16, Mode::Exclusive)).is_some());
    assert!(poll(&mut claims.acquire(11, 0..8, Mode::Exclusive)).is_some(), "the same shard");
}

#[test]
fn shared_claims_go_together_but_not_past_a_waiting_writer() {
    let claims = Claims::new(1);
    let first = poll(&mut claims.acquire(0, 0..8, Mode::Shared)).unwrap();
    let second = poll(&mut claims.acquire(0, 0..8, Mode::Shared)).unwrap();
    let mut writer = claims.acquire(0, 0..8, Mode::Exclusive);
    assert!(poll(&mut writer).is_none());
    let mut late = claims.acquire(0, 0..8, Mode::Shared);
    assert!(poll(&mut late).is_none(), "or readers would starve the writer");
    drop((first, second));
    let writing = poll(&mut writer).unwrap();
    assert!(poll(&mut late).is_none());
    drop(writing);
    assert!(poll(&mut late).is_some());
}

#[test]
fn a_waiter_that_gives_up_blocks_nobody() {
    let claims = Claims::new(1);
    let first = poll(&mut claims.acquire(0, 0..8, Mode::Exclusive)).unwrap();
    let mut quitter = claims.acquire(0, 0..16, Mode::Exclusive);
    assert!(poll(&mut quitter).is_none());
    let mut third = claims.acquire(0, 8..16, Mode::Exclusive);
    assert!(poll(&mut third).is_none());
    drop(quitter);
    assert!(poll(&mut third).is_some());
    drop(first);
}

#[test]
fn a_granted_claim_that_nobody_took_is_given_back() {
    let claims = Claims::new(1);
    let first = poll(&mut claims.acquire(0, 0..8, Mode::Exclusive)).unwrap();
    let mut quitter = claims.acquire(0, 0..8, Mode::Exclusive);
    assert!(poll(&mut quitter).is_none());
    drop(first);
    drop(quitter);
    assert!(poll(&mut claims.acquire(0, 0..8, Mode::Exclusive)).is_some());
}
