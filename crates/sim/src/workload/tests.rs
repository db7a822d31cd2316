//! Requests stay inside the array and reach all of it.

use super::*;

const GRAIN: Grain =
    Grain { array_sectors: 1000, block_sectors: 8, chunk_sectors: 16, row_sectors: 48 };

fn asks(seed: u64, habits: Habits) -> Vec<Ask> {
    let mut workload = Workload::new(Random::new(seed), habits, GRAIN);
    (0..2_000).map(|_| workload.next_ask()).collect()
}

fn range_of(ask: &Ask) -> Option<Range<u64>> {
    match ask {
        Ask::Read(range) | Ask::Discard(range) => Some(range.clone()),
        Ask::Write { range, .. } | Ask::WriteZeroes { range, .. } => Some(range.clone()),
        Ask::Flush => None,
    }
}

#[test]
fn every_range_is_whole_blocks_inside_the_array() {
    for seed in 0..20 {
        let habits = Habits::draw(&mut Random::new(seed));
        for range in asks(seed, habits).iter().filter_map(range_of) {
            assert!(range.start < range.end && range.end <= 1000, "seed {seed}: {range:?}");
            assert!(range.start % 8 == 0 && range.end % 8 == 0, "seed {seed}: {range:?}");
        }
    }
}

#[test]
fn streams_are_writes_that_follow_each_other() {
    let drawn = Habits::draw(&mut Random::new(1));
    let followers = |stream_percent| {
        let habits = Habits { kinds: [0, 1, 0, 0, 0], stream_percent, ..drawn.clone() };
        let ranges: Vec<_> = asks(3, habits).iter().filter_map(range_of).collect();
        ranges.windows(2).filter(|pair| pair[0].end == pair[1].start).count()
    };
    assert!(followers(90) > 1000 && followers(0) < 200, "{} {}", followers(90), followers(0));
}

#[test]
fn no_version_is_written_twice() {
    let habits = Habits { unstable_one_in: 3, ..Habits::draw(&mut Random::new(1)) };
    let mut seen = std::collections::BTreeSet::new();
    for ask in asks(1, habits) {
        if let Ask::Write { versions, .. } = ask {
            assert!(versions.iter().all(|version| seen.insert(*version)));
        }
    }
}

#[test]
fn an_even_mix_asks_for_everything_everywhere() {
    let habits = Habits {
        kinds: [1; 5],
        lengths: [1; 5],
        fua_one_in: 2,
        unstable_one_in: 2,
        hot_percent: 0,
        stream_percent: 0,
        depth: 1,
        trickle: false,
        pauses: false,
        in_front: false,
        spaced: false,
    };
    let asks = asks(2, habits);
    let mut touched = [false; 1000];
    for range in asks.iter().filter_map(range_of) {
        touched[range.start as usize..range.end as usize].fill(true);
    }
    assert!(touched.iter().all(|&touched| touched));
    assert!(asks.contains(&Ask::Flush));
    assert!(asks.iter().any(|ask| matches!(ask, Ask::Discard(_))));
    assert!(asks.iter().any(|ask| matches!(ask, Ask::WriteZeroes { fua: true, .. })));
    assert!(asks.iter().any(|ask| matches!(ask, Ask::Write { fua: false, .. })));
}
