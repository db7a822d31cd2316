//! Claims, one poll at a time.

use std::pin::pin;
use std::task::Waker;

use smallvec::smallvec;

use crate::array::handover::GivenPiece;

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

/// Waits for `columns` of row 0 as a write that may be taken along.
fn offering(claims: &Claims, columns: Columns, bytes: usize) -> AcquireWrite<'_> {
    let wait = claims.acquire(0, columns.clone(), Mode::Exclusive).now_or_later().err();
    let bytes_of_it = Arc::new(vec![0_u8; bytes]);
    let piece = GivenPiece { place: 0, columns, bytes: bytes_of_it, first_byte: 0, fua: false };
    let offer = Offer { pieces: smallvec![piece], bytes, most_bytes: 4 };
    wait.expect("it waits").offering(offer)
}

/// The claim, and how many it took along.
fn granted<'a>(write: Pin<&mut AcquireWrite<'a>>) -> (Claim<'a>, usize) {
    match write.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(WriteClaim::Granted(claim, taken)) => (claim, taken.len()),
        Poll::Ready(WriteClaim::Ended(_)) => panic!("nobody took it along"),
        Poll::Pending => panic!("it waits still"),
    }
}

#[test]
fn a_claim_covers_what_it_takes_along() {
    for (own, other, beyond) in [(4..12, 0..8, 0..4), (0..8, 4..12, 8..12)] {
        let claims = Claims::new(1);
        let first = poll(&mut claims.acquire(0, 4..8, Mode::Exclusive)).unwrap();
        let mut owner = pin!(offering(&claims, own, 1));
        let _other = offering(&claims, other, 1);
        drop(first);
        let (claim, taken) = granted(owner.as_mut());
        assert_eq!(taken, 1);
        let mut next = claims.acquire(0, beyond, Mode::Exclusive);
        assert!(poll(&mut next).is_none(), "the claim writes there");
        drop(claim);
        assert!(poll(&mut next).is_some());
    }
}

#[test]
fn what_another_owner_stands_against_is_not_taken_along() {
    let claims = Claims::new(1);
    let first = poll(&mut claims.acquire(0, 0..12, Mode::Exclusive)).unwrap();
    let mut owners = [pin!(offering(&claims, 0..8, 1)), pin!(offering(&claims, 8..12, 1))];
    let _other = offering(&claims, 4..12, 1);
    drop(first);
    let held = owners.each_mut().map(|owner| granted(owner.as_mut()));
    assert!(held.iter().all(|(_, taken)| *taken == 0));
}

#[test]
fn no_more_is_taken_along_than_there_is_room_for() {
    let claims = Claims::new(1);
    let first = poll(&mut claims.acquire(0, 0..8, Mode::Exclusive)).unwrap();
    let mut owner = pin!(offering(&claims, 0..8, 1));
    // Three bytes of room: for two, then for no two more.
    let _others = [2, 2].map(|bytes| offering(&claims, 0..8, bytes));
    drop(first);
    assert_eq!(granted(owner.as_mut()).1, 1);
}

/// A claim on each row, and claims that wait for these, all in one shard of eight.
fn thousands(claims: &Claims, rows: u64) -> (Vec<Claim<'_>>, Vec<Acquire<'_>>) {
    let of_one_shard = |row: u64| row * 8;
    let held = (0..rows).map(|row| claims.acquire(of_one_shard(row), 0..8, Mode::Exclusive));
    let held = held.map(|mut acquire| poll(&mut acquire).unwrap()).collect();
    let waiting = (0..4000).map(|number| {
        let mode = if number % 11 == 7 { Mode::Shared } else { Mode::Exclusive };
        let mut acquire = claims.acquire(of_one_shard(number % rows), 4..12, mode);
        assert!(poll(&mut acquire).is_none());
        acquire
    });
    (held, waiting.collect())
}

/// Nobody overtakes anybody, sync and readers among them, and nothing is left when all is over.
#[test]
fn thousands_that_wait_are_served_in_the_order_of_their_arrival() {
    for rows in [1, 7, 100] {
        let claims = Claims::new(8);
        let (held, mut waiting) = thousands(&claims, rows);
        drop(held);
        let step = rows as usize;
        for number in 0..waiting.len() {
            let behind = waiting.get_mut(number + step).map(poll);
            assert!(behind.is_none_or(|granted| granted.is_none()), "{number} of {rows}");
            assert!(poll(&mut waiting[number]).is_some(), "{number} of {rows}");
        }
        drop(waiting);
        for shard in &claims.shards {
            let table = shard.0.lock();
            assert!(table.held.is_empty() && table.waiting.is_empty(), "{rows}");
        }
    }
}
