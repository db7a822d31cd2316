//! The table of claims, used by several threads at once.

use std::sync::Arc;

use mdspace_engine::array::claims::{Claims, Mode};
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::{future, thread};

/// Threads that claim columns of one row, each in its table, and look whom they meet inside.
fn use_together(claims: [(std::ops::Range<u32>, Mode); 3], tables: &[Arc<Claims>; 3]) {
    let inside = Arc::new(AtomicUsize::new(0));
    let claims = claims.into_iter().zip(tables.clone());
    let threads: Vec<_> = claims
        .map(|((columns, mode), table)| {
            let inside = inside.clone();
            thread::spawn(move || {
                future::block_on(async {
                    let claim = table.acquire(3, columns, mode).await;
                    let weight = if mode == Mode::Exclusive { 100 } else { 1 };
                    let others = inside.fetch_add(weight, Ordering::SeqCst);
                    thread::yield_now();
                    match mode {
                        Mode::Exclusive => assert_eq!(others, 0, "nobody beside a writer"),
                        Mode::Shared => assert!(others < 100, "no writer beside a reader"),
                    }
                    inside.fetch_sub(weight, Ordering::SeqCst);
                    drop(claim);
                });
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

fn on_one_table(claims: [(std::ops::Range<u32>, Mode); 3]) {
    let table = Arc::new(Claims::new(1));
    use_together(claims, &[table.clone(), table.clone(), table]);
}

#[test]
#[should_panic(expected = "nobody beside a writer")]
fn the_test_notices_writers_that_do_not_share_a_table() {
    let writer = (0..8, Mode::Exclusive);
    let table = || Arc::new(Claims::new(1));
    shuttle::check_random(
        move || {
            let writers = [writer.clone(), writer.clone(), writer.clone()];
            use_together(writers, &[table(), table(), table()]);
        },
        2000,
    );
}

#[test]
fn writers_of_the_same_columns_take_turns_and_none_waits_for_ever() {
    let writer = (0..8, Mode::Exclusive);
    shuttle::check_random(
        move || on_one_table([writer.clone(), writer.clone(), writer.clone()]),
        2000,
    );
}

#[test]
fn readers_share_and_writers_get_through() {
    let (writer, reader) = ((4..12, Mode::Exclusive), (0..8, Mode::Shared));
    shuttle::check_random(
        move || on_one_table([reader.clone(), writer.clone(), reader.clone()]),
        2000,
    );
}

#[test]
fn a_waiter_that_gives_up_never_takes_the_claim_with_it() {
    shuttle::check_random(
        || {
            let table = Arc::new(Claims::new(1));
            let quitting = table.clone();
            let quitter = thread::spawn(move || {
                let mut claim = Box::pin(quitting.acquire(0, 0..8, Mode::Exclusive));
                let mut context = std::task::Context::from_waker(std::task::Waker::noop());
                drop(Future::poll(claim.as_mut(), &mut context));
                thread::yield_now();
                drop(claim);
            });
            let waiter = thread::spawn(move || {
                future::block_on(async { drop(table.acquire(0, 0..8, Mode::Exclusive).await) });
            });
            quitter.join().unwrap();
            waiter.join().unwrap();
        },
        2000,
    );
}
