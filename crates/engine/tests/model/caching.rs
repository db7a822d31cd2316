//! The stripe cache among those who use it under claims: rounds, degraded reads, sync, and a user who
//! changes its size.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize as Counter, Ordering as Order};

use mdspace_engine::array::cache::{Stripe, StripeCache};
use mdspace_engine::array::claims::{Claims, Mode};
use mdspace_engine::array::{Action, Array, ArrayLane, Command};
use mdspace_engine::memory::{Buffer, Source};
use mdspace_engine::request::{Queue, Request};
use mdspace_engine::status::SyncAction;
use mdspace_format::Level;
use shuttle::sync::atomic::{AtomicU8, Ordering};
use shuttle::{future, thread};

use crate::machine::Machine;
use crate::whole_array::{LANES, new_array_of, read, run_lanes_of, write};

/// Two data blocks and parity.
const P: usize = 2;

/// One stripe of an array that has lost the member with the first block: blocks of a byte each.
struct Row {
    claims: Claims,
    cache: StripeCache,
    /// What the members hold; the first is gone.
    members: [AtomicU8; 3],
    /// What users wrote to the first block.
    lost: AtomicU8,
    care: Care,
}

/// What its users must do; else the tests notice.
#[derive(Clone, Copy)]
struct Care {
    /// Who reads the lost block claims the row.
    claims: bool,
    /// Who writes other than in rounds forgets what is cached.
    forgets: bool,
}

impl Row {
    fn new(care: Care) -> Arc<Self> {
        let (claims, cache) = (Claims::new(1), StripeCache::new(16));
        let (members, lost) = (Default::default(), AtomicU8::new(0));
        Arc::new(Self { claims, cache, members, lost, care })
    }

    fn member(&self, place: usize) -> u8 {
        self.members[place].load(Ordering::SeqCst)
    }

    /// A round that writes one of the data blocks.
    async fn write(&self, place: usize, value: u8) {
        let _claim = self.claims.acquire(0, 0..8, Mode::Exclusive).await;
        let stripe = self.cache.take(0, 0).unwrap_or_default();
        let cached = |place| stripe.iter().find(|(known, _)| *known == place).map(|(_, b)| b[0]);
        let parity = cached(P).unwrap_or_else(|| self.member(P));
        let other = cached(1).unwrap_or_else(|| self.member(1));
        let old = if place == 1 { other } else { cached(0).unwrap_or(other ^ parity) };
        let parity = parity ^ old ^ value;
        match place {
            0 => self.lost.store(value, Ordering::SeqCst),
            _ => self.members[1].store(value, Ordering::SeqCst),
        }
        self.members[P].store(parity, Ordering::SeqCst);
        self.keep(&[(place, value), (P, parity)]);
    }

    fn keep(&self, blocks: &[(usize, u8)]) {
        let block = |&(place, value)| {
            let mut block = Buffer::zeroed(1);
            block[0] = value;
            (place, block)
        };
        drop(self.cache.put(0, 0, blocks.iter().map(block).collect::<Stripe>()));
    }

    /// Reads the lost block.
    async fn read_lost(&self) {
        let claim = self.claims.acquire(0, 0..8, Mode::Shared);
        let _claim = if self.care.claims { Some(claim.await) } else { None };
        let mut found = [0];
        if !self.cache.read(0, 0, 0, 0..1, &mut found) {
            found = [self.member(1) ^ self.member(P)];
        }
        assert_eq!(found[0], self.lost.load(Ordering::SeqCst), "the lost block");
    }

    /// Zeroes the row, as a discard does.
    async fn zero(&self) {
        let _claim = self.claims.acquire(0, 0..8, Mode::Exclusive).await;
        if self.care.forgets {
            self.cache.forget(0, 0..1);
        }
        self.lost.store(0, Ordering::SeqCst);
        self.members.iter().for_each(|member| member.store(0, Ordering::SeqCst));
    }

    /// What is cached is what stands there, and parity is right.
    fn verify(&self) {
        let lost = self.lost.load(Ordering::SeqCst);
        assert_eq!(self.member(1) ^ self.member(P), lost, "parity");
        for (place, value) in [(0, lost), (1, self.member(1)), (P, self.member(P))] {
            let mut found = [0];
            if self.cache.read(0, 0, place, 0..1, &mut found) {
                assert_eq!(found[0], value, "what is cached of {place}");
            }
        }
    }
}

fn use_together(care: Care) {
    let row = Row::new(care);
    let on_thread = |work: fn(&Row)| {
        let row = row.clone();
        thread::spawn(move || work(&row))
    };
    let threads = [
        on_thread(|row| [1, 2].into_iter().for_each(|value| future::block_on(row.write(0, value)))),
        on_thread(|row| [4, 8].into_iter().for_each(|value| future::block_on(row.write(1, value)))),
        on_thread(|row| (0..3).for_each(|_| future::block_on(row.read_lost()))),
        on_thread(|row| future::block_on(row.zero())),
        on_thread(|row| [0, 16].into_iter().for_each(|size| row.cache.resize(size))),
    ];
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    row.verify();
}

const CARE: Care = Care { claims: true, forgets: true };

#[test]
fn nobody_finds_anything_old_in_the_cache() {
    shuttle::check_random(|| use_together(CARE), 5000);
}

#[test]
#[should_panic(expected = "the lost block")]
fn the_test_notices_a_reader_without_a_claim() {
    shuttle::check_random(|| use_together(Care { claims: false, ..CARE }), 5000);
}

#[test]
#[should_panic(expected = "left == right")]
fn the_test_notices_a_writer_that_leaves_old_blocks_cached() {
    shuttle::check_random(|| use_together(Care { forgets: false, ..CARE }), 5000);
}

/// Writes of a lane to its own sectors, those of both lanes in the same units: several at once, which
/// are gathered to rounds, some of which overlap.
async fn write_and_read(port: &Rc<ArrayLane>, array: &Array, lane: u64) {
    for value in [1_u8, 2, 3] {
        let queue = Queue::new();
        for (tag, sector) in [lane, lane + 2, lane].into_iter().enumerate() {
            let from: Rc<dyn Source> = Rc::new(vec![value * 3 + tag as u8; 512]);
            port.submit(&queue, tag as u64, Request::Write { sector, from, fua: false });
        }
        for _ in 0..3 {
            queue.next().await.result.unwrap();
        }
        assert_eq!(read(port, lane).await, value * 3 + 2, "the later one counts");
        assert_eq!(read(port, lane + 2).await, value * 3 + 1);
        let size = if value == 2 { "17" } else { "256" };
        array.set("stripe_cache_size", size).unwrap();
    }
}

#[test]
fn rounds_and_reads_of_a_lost_block_agree_while_it_is_rebuilt() {
    static CACHED: Counter = Counter::new(0);
    static REBUILT: Counter = Counter::new(0);
    shuttle::check_random(
        || {
            let machine = Machine::new(4, 4096, LANES);
            let start = new_array_of(&machine, 3, Level::Raid5, 2);
            // Left-symmetric: the first row's first block.
            machine.break_writes(0);
            let array = Array::new(&start, LANES);
            let (shared, spare) = (array.clone(), machine.members().remove(3));
            let work = async move |port: Rc<ArrayLane>, lane| {
                if lane == 0 {
                    write(&port, 4, 9).await;
                    let (member, info) = spare.clone();
                    let action = Action::Add { member, info, only_back: false };
                    shared.command(Command { action, reply: Box::new(drop) });
                }
                write_and_read(&port, &shared, lane).await;
                if shared.stripe_cache_bytes() > 0 {
                    CACHED.fetch_add(1, Order::Relaxed);
                }
            };
            let status = run_lanes_of(&array, &machine, start, work);
            if status.degraded() == 0 || status.sync.action == SyncAction::Recover {
                REBUILT.fetch_add(1, Order::Relaxed);
            }
        },
        500,
    );
    assert!(CACHED.load(Order::Relaxed) > 0, "something is cached in some schedule");
    assert!(REBUILT.load(Order::Relaxed) > 0, "a rebuild runs in some schedule");
}
