//! Addresses of a load.

use std::collections::BTreeSet;

use super::*;

fn addresses(random: bool, sectors: u64, lane: u64) -> Addresses {
    Addresses::new(Pattern::read(random), 8, sectors, lane, 2)
}

#[test]
fn a_sequential_load_visits_every_block_once_before_it_begins_again() {
    let mut load = addresses(false, 83, 1);
    let seen: Vec<u64> = (0..10).map(|_| load.next().sector).collect();
    assert_eq!(seen[..5], [40, 48, 56, 64, 72], "the second lane starts half way");
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 10);
    assert_eq!(load.next().sector, 40);
}

#[test]
fn a_random_load_stays_inside_and_reaches_every_part() {
    let mut load = addresses(true, 8 * 1000, 0);
    let mut tenths = BTreeSet::new();
    for _ in 0..2000 {
        let sector = load.next().sector;
        assert!(sector.is_multiple_of(8) && sector < 8 * 1000);
        tenths.insert(sector / 800);
    }
    assert_eq!(tenths.len(), 10);
}

#[test]
fn lanes_do_not_walk_the_same_random_path() {
    let (mut one, mut other) = (addresses(true, 1 << 20, 0), addresses(true, 1 << 20, 1));
    let path = |load: &mut Addresses| (0..8).map(|_| load.next().sector).collect::<Vec<_>>();
    assert_ne!(path(&mut one), path(&mut other));
}

#[test]
fn a_mixed_load_reads_as_often_as_it_was_told_and_a_pure_one_always() {
    let writes = |reads_percent| {
        let pattern = Pattern { random: true, reads_percent };
        let mut load = Addresses::new(pattern, 8, 1 << 20, 0, 1);
        (0..10_000).filter(|_| load.next().write).count()
    };
    assert!((2300..2700).contains(&writes(75)), "{}", writes(75));
    assert_eq!((writes(100), writes(0)), (0, 10_000));
}
