//! The lottery draws every kind of array, and the same one for the same seed.

use std::collections::BTreeSet;

use super::*;

#[test]
fn a_seed_determines_a_run() {
    let words = |seed| format!("{:?}", Settings::draw(seed, None, Trouble::Bearable));
    assert_eq!(words(5), words(5));
    assert_ne!(words(5), words(6));
}

#[test]
fn every_level_is_drawn() {
    let levels: BTreeSet<i32> =
        (0..200).map(|seed| Settings::draw(seed, None, Trouble::Bearable).level).collect();
    assert_eq!(levels, BTreeSet::from([-1, 0, 1, 4, 5, 6, 10]));
}

#[test]
fn a_wanted_level_is_kept() {
    assert!((0..50).all(|seed| Settings::draw(seed, Some(6), Trouble::Beyond).level == 6));
}

#[test]
fn every_story_is_told() {
    let drawn = |trouble| (0..3000).map(move |seed| Settings::draw(seed, None, trouble).story);
    let told = drawn(Trouble::Bearable).chain(drawn(Trouble::Beyond));
    let told: BTreeSet<&str> = told.filter(|story| !story.is_empty()).collect();
    assert_eq!(told, Settings::stories().collect());
}

/// Members must have room for what the array keeps beside its data.
#[test]
fn no_drawn_array_is_too_small_for_its_bitmap() {
    for trouble in [Trouble::Bearable, Trouble::Beyond] {
        let mut drawn = (0..3000).map(|seed| Settings::draw(seed, None, trouble));
        assert!(drawn.all(|run| run.bitmap_chunk_bytes.is_none() || run.member_sectors >= 128));
    }
}

/// A member that is well is never given up for a deadline.
#[test]
fn no_record_of_a_disk_that_gets_slower_passes_its_deadline() {
    for seed in (0..20_000).chain([10_037_984]) {
        let run = Settings::draw(seed, None, Trouble::Bearable);
        // Where writes take seconds anyway no disk gets slower.
        let times = if run.stalls() { 1 } else { SLOWER };
        let mut longest =
            run.disks.iter().map(|disk| disk.latency.most() * disk.slow_start.1 * times);
        let deadline = run.write_deadline().unwrap_or(Duration::MAX);
        assert!(longest.all(|time| time < deadline), "seed {seed}");
    }
}
