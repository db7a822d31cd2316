//! The set against std's.

use std::collections::BTreeSet;

use super::*;

fn set(chunks: &BTreeSet<u64>) -> Chunks {
    chunks.iter().copied().collect()
}

fn sorted(chunks: &Chunks) -> BTreeSet<u64> {
    let listed: Vec<u64> = chunks.iter().collect();
    assert!(listed.is_sorted(), "{listed:?}");
    listed.into_iter().collect()
}

#[test]
fn it_holds_what_a_set_of_numbers_would() {
    let mut random = 0x9e37_79b9_97f4_a7c1_u64;
    let mut below = |bound: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % bound
    };
    for round in 0..500 {
        let [one, other]: [BTreeSet<u64>; 2] = std::array::from_fn(|_| {
            let most = 1 + below(300);
            (0..below(80)).map(|_| below(most)).collect()
        });
        let (mut ours, others) = (set(&one), set(&other));
        assert_eq!(sorted(&ours), one, "round {round}");
        assert_eq!(ours.is_empty(), one.is_empty(), "round {round}");
        let range = below(300)..below(300);
        let all = range.clone().all(|chunk| one.contains(&chunk));
        assert_eq!(ours.contains_all(&range), all, "round {round}");
        let mut both = ours.clone();
        both.insert_all(&others);
        assert_eq!(sorted(&both), &one | &other, "round {round}");
        let without = ours.split_off_others(&others);
        assert_eq!(sorted(&without), &one - &other, "round {round}");
        assert_eq!(sorted(&ours), &one & &other, "round {round}");
    }
}
