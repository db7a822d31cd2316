//! The cache by itself.

use super::*;

fn stripe(blocks: usize) -> Stripe {
    (0..blocks).map(|place| (place, Buffer::zeroed(4096))).collect()
}

#[test]
fn what_was_put_in_is_taken_out_once() {
    let cache = StripeCache::default();
    assert!(cache.take(3, 1).is_none());
    assert!(cache.put(3, 1, stripe(2)).is_empty());
    assert_eq!((cache.active(), cache.bytes()), (1, 2 * 4096));
    assert!(cache.take(3, 0).is_none() && cache.take(1, 3).is_none());
    assert_eq!(cache.take(3, 1).map(|stripe| stripe.len()), Some(2));
    assert!(cache.take(3, 1).is_none());
    assert_eq!((cache.active(), cache.bytes()), (0, 0));
}

#[test]
fn what_is_read_stays_and_is_young_again() {
    let cache = StripeCache::new(16);
    let marked = |place| (place, Buffer::zeroed(4096));
    for row in 0..3 {
        let mut stripe: Stripe = [marked(0), marked(2)].into_iter().collect();
        stripe[1].1[7] = row + 1;
        // All three are of one shard, which has room for two.
        cache.put(u64::from(row) * 8, 0, stripe).into_iter().for_each(drop);
        let mut byte = [0];
        assert!(cache.read(0, 0, 2, 7..8, &mut byte) && byte == [1], "the oldest is read");
    }
    let mut byte = [0];
    assert!(!cache.read(0, 0, 1, 7..8, &mut byte), "no such block");
    assert!(!cache.read(8, 0, 2, 7..8, &mut byte), "it was not read, and had to go");
    assert!(cache.read(16, 0, 2, 7..8, &mut byte) && byte == [3]);
}

#[test]
fn the_oldest_go_when_it_is_full_and_memory_stays_bounded() {
    let cache = StripeCache::new(17);
    let mut evicted = 0;
    for row in 0..1000 {
        evicted += cache.put(row, 0, stripe(3)).len();
        assert!(cache.active() <= 17 && cache.bytes() == cache.active() * 3 * 4096);
    }
    assert_eq!(evicted + cache.active(), 1000);
    let kept: Vec<u64> = (0..1000).filter(|&row| cache.take(row, 0).is_some()).collect();
    // Rows go round the shards, the first of which has a place more.
    assert_eq!(kept, std::iter::once(976).chain(984..1000).collect::<Vec<_>>());
}

#[test]
fn a_smaller_size_holds_at_once_and_a_larger_one_from_then_on() {
    let cache = StripeCache::new(256);
    (0..300).for_each(|row| drop(cache.put(row, 0, stripe(1))));
    assert_eq!(cache.active(), 256);
    cache.resize(20);
    assert_eq!((cache.active(), cache.bytes()), (20, 20 * 4096));
    cache.resize(1000);
    (300..2000).for_each(|row| drop(cache.put(row, 0, stripe(1))));
    assert_eq!(cache.active(), 1000);
    cache.clear();
    assert_eq!((cache.active(), cache.bytes()), (0, 0));
}

#[test]
fn stripes_that_are_forgotten_are_gone_and_no_others() {
    let cache = StripeCache::default();
    (0..8).for_each(|unit| drop(cache.put(5, unit, stripe(1))));
    cache.forget(5, 2..5);
    let left = (0..8).filter(|&unit| cache.take(5, unit).is_some());
    assert_eq!(left.collect::<Vec<_>>(), [0, 1, 5, 6, 7]);
}

#[test]
fn only_what_is_written_again_is_remembered() {
    let mut recent = Recent::default();
    assert!(!recent.touch(0, 0, 256) && recent.touch(0, 0, 256));
    assert!(!recent.touch(0, 1, 256) && !recent.touch(1, 0, 256));
    assert!(recent.touch(0, 1, 256) && recent.touch(1, 0, 256));
    let again = (0..64).filter(|&unit| {
        recent.touch(9, unit, 256);
        recent.touch(9, unit, 256)
    });
    assert_eq!(again.count(), 64);
}
