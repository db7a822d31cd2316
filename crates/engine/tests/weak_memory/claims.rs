//! Claims as locks: what is written under one is seen under the next.

use std::sync::Arc;
use std::task::{Context, Waker};

use loom::future::block_on;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use mdspace_engine::array::claims::{Claims, Mode};

use crate::check;

/// A row and a number in it that only claims protect: without the order that they make, a load may
/// see any value that was ever there.
struct Row {
    claims: Claims,
    number: AtomicU64,
}

impl Row {
    fn new() -> Arc<Self> {
        Arc::new(Self { claims: Claims::new(1), number: AtomicU64::new(0) })
    }

    fn add_one(&self) {
        self.number.store(self.read() + 1, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }
}

fn claim_and_add(row: &Row) {
    block_on(async {
        let _claim = row.claims.acquire(7, 0..8, Mode::Exclusive).await;
        row.add_one();
    });
}

#[test]
fn what_one_owner_wrote_the_next_one_sees() {
    check(3, || {
        let row = Row::new();
        let threads =
            [row.clone(), row.clone()].map(|row| thread::spawn(move || claim_and_add(&row)));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        block_on(async {
            let _claim = row.claims.acquire(7, 0..8, Mode::Shared).await;
            assert_eq!(row.read(), 2);
        });
    });
}

#[test]
#[should_panic(expected = "a number was lost")]
fn the_test_notices_claims_of_different_rows() {
    check(3, || {
        let row = Row::new();
        let other = row.clone();
        let thread = thread::spawn(move || {
            block_on(async {
                let _claim = other.claims.acquire(8, 0..8, Mode::Exclusive).await;
                other.add_one();
            });
        });
        claim_and_add(&row);
        thread.join().unwrap();
        assert_eq!(row.read(), 2, "a number was lost");
    });
}

/// Both numbers change under one claim, so a reader finds them equal.
#[test]
fn a_reader_never_meets_a_writer() {
    check(3, || {
        let (row, twin) = (Row::new(), Row::new());
        let (reading, reading_twin) = (row.clone(), twin.clone());
        let reader = thread::spawn(move || {
            block_on(async {
                let _claim = reading.claims.acquire(7, 4..12, Mode::Shared).await;
                assert_eq!(reading.read(), reading_twin.read());
            });
        });
        block_on(async {
            let _claim = row.claims.acquire(7, 0..8, Mode::Exclusive).await;
            row.add_one();
            twin.add_one();
        });
        reader.join().unwrap();
    });
}

#[test]
fn who_gives_up_passes_on_what_it_was_granted() {
    check(2, || {
        let row = Row::new();
        let quitting = row.clone();
        let quitter = thread::spawn(move || {
            let mut claim = Box::pin(quitting.claims.acquire(7, 0..8, Mode::Exclusive));
            drop(claim.as_mut().poll(&mut Context::from_waker(Waker::noop())));
            drop(claim);
        });
        let waiting = row.clone();
        let waiter = thread::spawn(move || claim_and_add(&waiting));
        claim_and_add(&row);
        quitter.join().unwrap();
        waiter.join().unwrap();
    });
}
