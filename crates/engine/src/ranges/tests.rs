//! Ranges against a plain set of sectors.

use std::collections::BTreeSet;

use super::*;

#[test]
fn any_sequence_of_changes_agrees_with_a_plain_set() {
    for seed in 0..200_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let (mut ranges, mut plain) = (Ranges::default(), BTreeSet::new());
        for _ in 0..40 {
            let start = random(50);
            let range = start..start + random(12);
            if random(3) > 0 {
                ranges.insert(range.clone());
                plain.extend(range);
            } else {
                ranges.remove(&range);
                plain.retain(|sector| !range.contains(sector));
            }
            let flat: BTreeSet<u64> = ranges.iter().flatten().collect();
            assert_eq!(flat, plain, "seed {seed}");
            assert_eq!(ranges.sectors(), plain.len() as u64, "seed {seed}");
            let probe = random(60)..60;
            let known = plain.range(probe.clone()).next().is_some();
            assert_eq!(ranges.overlaps(&probe), known, "seed {seed} {probe:?}");
            let gaps: Vec<_> = ranges.iter().collect();
            assert!(gaps.windows(2).all(|pair| pair[0].end < pair[1].start), "seed {seed}");
        }
    }
}

#[test]
fn the_next_range_is_cut_at_the_question() {
    let ranges: Ranges = [2..5, 8..9].into_iter().collect();
    assert_eq!(ranges.next_from(0), Some(2..5));
    assert_eq!(ranges.next_from(4), Some(4..5));
    assert_eq!(ranges.next_from(5), Some(8..9));
    assert_eq!(ranges.next_from(9), None);
}
