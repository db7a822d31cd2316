//! Writes that wait for one claim, taken along by the one that is granted first.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize as Counter, Ordering as Order};
use std::task::Poll;

use mdspace_engine::array::claims::{Claims, Mode, Offer, WriteClaim};
use mdspace_engine::array::handover::{GivenPiece, Results};
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::Mutex;
use shuttle::{future, thread};
use smallvec::smallvec;

/// A write of each lane to some columns of one row: the columns, and the value.
const WRITES: [(std::ops::Range<u32>, u8); 4] = [(0..8, 1), (0..8, 2), (4..12, 3), (4..12, 4)];

/// What a lane forgets to do for those that it takes along.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Forgets {
    Nothing,
    TheirWrites,
    TheirAnswers,
}

/// One row of twelve columns.
struct Row {
    claims: Claims,
    columns: Mutex<[u8; 12]>,
    /// Each write as it is done, in that order.
    done: Mutex<Vec<u8>>,
    forgets: Forgets,
}

static TAKEN: Counter = Counter::new(0);

impl Row {
    fn new(forgets: Forgets) -> Arc<Self> {
        let (claims, columns) = (Claims::new(1), Mutex::new([0; 12]));
        Arc::new(Self { claims, columns, done: Mutex::default(), forgets })
    }

    async fn write(&self, columns: std::ops::Range<u32>, value: u8) -> Results {
        let wait = match self.claims.acquire(0, columns.clone(), Mode::Exclusive).now_or_later() {
            Ok(_claim) => return self.apply(&[(columns, value)]),
            Err(wait) => wait,
        };
        let piece = GivenPiece {
            place: 0,
            columns: columns.clone(),
            bytes: Arc::new(vec![value]),
            first_byte: 0,
            fua: false,
        };
        let offer = Offer { pieces: smallvec![piece], bytes: 1, most_bytes: 3 };
        match wait.offering(offer).await {
            WriteClaim::Ended(results) => results,
            WriteClaim::Granted(_claim, mut taken) => {
                let mut writes = vec![(columns, value)];
                for piece in taken.iter_mut().flat_map(|one| one.pieces()) {
                    TAKEN.fetch_add(1, Order::Relaxed);
                    writes.push((piece.columns, piece.bytes[0]));
                }
                assert!(writes.len() <= 3, "no more than there is room for");
                if self.forgets == Forgets::TheirWrites {
                    writes.truncate(1);
                }
                let results = self.apply(&writes);
                if self.forgets != Forgets::TheirAnswers {
                    taken.into_iter().for_each(|one| one.end(smallvec![Ok(())]));
                }
                results
            }
        }
    }

    /// Writes under a claim, one column after the other, while others run.
    fn apply(&self, writes: &[(std::ops::Range<u32>, u8)]) -> Results {
        for (columns, value) in writes {
            for column in columns.clone() {
                let mut row = self.columns.lock().unwrap();
                row[column as usize] = *value;
            }
            self.done.lock().unwrap().push(*value);
        }
        smallvec![Ok(())]
    }

    /// What has some columns for itself, as sync has: all, or only such as one write claims and another
    /// takes along.
    async fn sync(&self) {
        let some = [0..12, 0..4, 8..12][thread_rng().gen_range(0..3)].clone();
        let _claim = self.claims.acquire(0, some.clone(), Mode::Exclusive).await;
        let columns = || {
            let row = self.columns.lock().unwrap();
            row[some.start as usize..some.end as usize].to_vec()
        };
        let before = columns();
        thread::yield_now();
        assert_eq!(columns(), before, "nobody writes beside sync");
    }

    /// The columns hold what the writes left there, in the order in which they were done.
    fn verify(&self) {
        let done = self.done.lock().unwrap();
        let mut row = [0; 12];
        for value in &*done {
            let (columns, _) = WRITES.iter().find(|(_, known)| known == value).unwrap();
            columns.clone().for_each(|column| row[column as usize] = *value);
        }
        assert_eq!(row, *self.columns.lock().unwrap());
        let mut each = done.clone();
        each.sort_unstable();
        assert_eq!(each, [1, 2, 3, 4], "each write is done once");
    }
}

fn write_together(forgets: Forgets) {
    let row = Row::new(forgets);
    let mut threads: Vec<_> = WRITES
        .into_iter()
        .map(|(columns, value)| {
            let row = row.clone();
            thread::spawn(move || {
                let results = future::block_on(row.write(columns, value));
                assert_eq!(results, Results::from_elem(Ok(()), 1), "a write is answered");
            })
        })
        .collect();
    let theirs = row.clone();
    threads.push(thread::spawn(move || future::block_on(theirs.sync())));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    row.verify();
}

#[test]
fn each_write_is_done_once_by_whoever_takes_it_along() {
    shuttle::check_random(|| write_together(Forgets::Nothing), 5000);
    assert!(TAKEN.load(Order::Relaxed) > 0, "some are taken along in some schedule");
}

#[test]
#[should_panic(expected = "each write is done once")]
fn the_test_notices_a_write_that_is_answered_and_not_done() {
    shuttle::check_random(|| write_together(Forgets::TheirWrites), 5000);
}

#[test]
#[should_panic(expected = "a write is answered")]
fn the_test_notices_a_write_that_is_done_and_not_answered() {
    shuttle::check_random(|| write_together(Forgets::TheirAnswers), 5000);
}

/// A lane that ends while it waits, or after another took its write along, holds nobody up.
#[test]
fn a_lane_that_gives_up_its_wait_holds_nobody_up() {
    shuttle::check_random(
        || {
            let row = Row::new(Forgets::Nothing);
            let quitting = row.clone();
            let quitter = thread::spawn(move || {
                future::block_on(async {
                    let mut write = pin!(quitting.write(0..8, 1));
                    let mut polls = 0;
                    poll_fn(|context| {
                        polls += 1;
                        let ended = write.as_mut().poll(context).is_ready();
                        if ended || polls == 2 { Poll::Ready(()) } else { wake_later(context) }
                    })
                    .await;
                });
            });
            let others = WRITES.into_iter().skip(1).map(|(columns, value)| {
                let row = row.clone();
                thread::spawn(move || drop(future::block_on(row.write(columns, value))))
            });
            let others: Vec<_> = others.collect();
            quitter.join().unwrap();
            others.into_iter().for_each(|thread| thread.join().unwrap());
        },
        3000,
    );
}

fn wake_later(context: &std::task::Context<'_>) -> Poll<()> {
    thread::yield_now();
    context.waker().wake_by_ref();
    Poll::Pending
}
