use super::*;

/// All parts that are left, as offsets from `base`.
fn parts(ahead: &Ahead, base: *const u8) -> Vec<usize> {
    std::iter::from_fn(|| ahead.next_part()).map(|part| part - base.addr()).collect()
}

#[test]
fn places_are_fetched_in_order_and_part_by_part() {
    let (ahead, base) = (Ahead::default(), std::ptr::dangling::<u8>());
    ahead.expect([0, 1 << 20].map(|at| base.wrapping_add(at)), 4096);
    assert_eq!(parts(&ahead, base), [0, 2048, 1 << 20, (1 << 20) + 2048]);
    ahead.expect([base], 512);
    assert_eq!(parts(&ahead, base), [0], "a part is the least");
    ahead.expect([base], 1 << 20);
    assert_eq!(parts(&ahead, base), [0, 2048], "the CPU fetches the rest by itself");
}

#[test]
fn what_was_not_fetched_in_time_is_forgotten() {
    let (ahead, base) = (Ahead::default(), std::ptr::dangling::<u8>());
    ahead.expect([base, base.wrapping_add(8192)], 4096);
    ahead.fetch_some();
    assert_eq!(ahead.parts.borrow().len(), 2, "it is begun");
    ahead.expect([base.wrapping_add(4096)], 4096);
    assert_eq!(parts(&ahead, base), [4096, 6144]);
}

/// A write that reads three blocks and then writes two others has five I/Os for ten parts.
#[test]
fn each_io_fetches_two_parts_where_there_are_fewer_ios_than_parts() {
    let ahead = Ahead::default();
    let places = |count: usize| (0..count).map(|at| std::ptr::without_provenance(at << 20));
    for (ios, blocks, each) in [(4, 2, 1), (3, 3, 2), (6, 3, 1), (5, 5, 2), (2, 2, 2)] {
        (0..ios).for_each(|_| ahead.fetch_some());
        ahead.expect(places(blocks), 4096);
        for done in 1..=ios {
            ahead.fetch_some();
            assert_eq!(ahead.parts.borrow().len(), 2 * blocks - done * each, "{ios} {blocks}");
        }
        ahead.expect(places(0), 4096);
    }
}

#[test]
fn any_address_may_be_fetched() {
    let ahead = Ahead::default();
    let last = std::ptr::without_provenance(usize::MAX);
    ahead.expect([std::ptr::null(), last], 4096);
    (0..8).for_each(|_| ahead.fetch_some());
    assert!(ahead.next_part().is_none());
}
