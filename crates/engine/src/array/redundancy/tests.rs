use std::sync::Arc;

use super::*;
use crate::array::view::samples::view_of;
use crate::geometry::Level;

/// Two letters for each of equal length: what is said of them.
fn told(view: &ArrayView, sectors: Range<u64>) -> Vec<(u64, String)> {
    let word = |it: Redundancy| {
        let flags = [it.degraded, it.rebuilding, it.unsynced, it.lost, it.is_single];
        let letters = flags.into_iter().zip("drulo".chars());
        letters.filter(|(is, _)| *is).map(|(_, letter)| letter).collect::<String>()
    };
    let stretches = view.redundancy(sectors).into_iter();
    stretches.map(|stretch| (stretch.sectors, word(stretch.redundancy))).collect()
}

fn expect(view: &ArrayView, expected: &[(u64, &str)]) {
    let all = 0..view.geometry.array_sectors();
    let expected: Vec<_> =
        expected.iter().map(|(sectors, word)| (*sectors, (*word).into())).collect();
    assert_eq!(told(view, all), expected);
}

fn ranges(range: Range<u64>) -> Arc<Ranges> {
    Arc::new(Ranges::of(range))
}

/// In sync, but for one slot.
fn but_for(
    slot: u16,
    change: impl Fn(MemberView) -> Option<MemberView>,
) -> impl Fn(Slot, MemberView) -> Option<MemberView> {
    move |at, member| if at.0 == slot { change(member) } else { Some(member) }
}

const DISKS: u16 = 4;

#[test]
fn a_whole_array_is_redundant_and_one_of_a_level_without_is_not() {
    for level in [Level::Raid1, Level::Raid5, Level::Raid6] {
        let view = view_of(level, 2, DISKS, |_, member| Some(member));
        expect(&view, &[(view.geometry.array_sectors(), "")]);
    }
    let raid10 = view_of(Level::Raid10, 0x102, DISKS, |_, member| Some(member));
    expect(&raid10, &[(16384, "")]);
    assert_eq!(told(&raid10, 100..200), [(100, String::new())]);
}

#[test]
fn all_of_an_array_is_degraded_without_a_member_and_lost_without_too_many() {
    let missing = |level, layout, slots: &'static [u16]| {
        view_of(level, layout, DISKS, move |slot, member| {
            (!slots.contains(&slot.0)).then_some(member)
        })
    };
    expect(&missing(Level::Raid5, 2, &[1]), &[(3 * 8192, "d")]);
    expect(&missing(Level::Raid6, 2, &[1, 2]), &[(2 * 8192, "d")]);
    expect(&missing(Level::Raid1, 0, &[0, 1, 2]), &[(8192, "d")]);
    expect(&missing(Level::Raid1, 0, &[0, 1, 2, 3]), &[(8192, "dl")]);

    // What lies on the other two can be read: parity begins at the last slot, and data behind it.
    let two = missing(Level::Raid5, 2, &[0, 1]);
    let expected = [(2048, "dl"), (2048, "d"), (2048, "dl")];
    let expected = expected.map(|(sectors, word)| (sectors, word.to_owned()));
    assert_eq!(told(&two, 0..6 * 1024), expected);
}

#[test]
fn what_is_rebuilt_is_redundant_up_to_where_the_rebuild_has_come() {
    let recovering = |filled| {
        but_for(3, move |member| {
            Some(MemberView { filled_sectors: filled, readable_sectors: filled, ..member })
        })
    };
    let raid5 = view_of(Level::Raid5, 2, DISKS, recovering(4096));
    expect(&raid5, &[(3 * 4096, ""), (3 * 4096, "dr")]);
    let raid1 = view_of(Level::Raid1, 0, DISKS, recovering(100));
    expect(&raid1, &[(100, ""), (8092, "dr")]);
    // In the middle of a row it is told for each of its chunks.
    let raid5 = view_of(Level::Raid5, 2, DISKS, recovering(1024 + 512));
    let (row, half) = (3 * 1024, 512);
    let second_row = [(row + half, ""), (half, "dr"), (half, ""), (half, "dr"), (half, "")];
    expect(&raid5, &[&second_row[..], &[(half + 6 * row, "dr")]].concat());
    // And none has begun, for the spare is there since now.
    let raid6 = view_of(Level::Raid6, 2, DISKS, recovering(0));
    expect(&raid6, &[(2 * 8192, "dr")]);
}

#[test]
fn every_other_chunk_of_a_raid10_is_degraded_without_a_member() {
    let view = view_of(Level::Raid10, 0x102, DISKS, but_for(0, |_| None));
    expect(&view, &[(1024, "d"), (1024, "")].repeat(8));
    let pair = view_of(Level::Raid10, 0x102, DISKS, |slot, member| (slot.0 > 1).then_some(member));
    expect(&pair, &[(1024, "dl"), (1024, "")].repeat(8));
}

#[test]
fn where_resync_has_not_been_nothing_is_sure() {
    let whole = |_: Slot, member| Some(member);
    let mut raid5 = view_of(Level::Raid5, 2, DISKS, whole);
    raid5.unsynced = ranges(2048..4096);
    expect(&raid5, &[(3 * 2048, ""), (3 * 2048, "u"), (3 * 4096, "")]);
    let mut raid10 = view_of(Level::Raid10, 0x102, DISKS, whole);
    raid10.unsynced = ranges(100..3000);
    expect(&raid10, &[(100, ""), (2900, "u"), (16384 - 3000, "")]);
}

#[test]
fn a_block_that_a_member_lists_as_bad_is_degraded_alone() {
    let listed = |slot| but_for(slot, |member| Some(MemberView { bad: ranges(16..24), ..member }));
    let raid1 = view_of(Level::Raid1, 0, DISKS, listed(2));
    expect(&raid1, &[(16, ""), (8, "d"), (8192 - 24, "")]);
    let raid10 = view_of(Level::Raid10, 0x102, DISKS, listed(3));
    expect(&raid10, &[(1024 + 16, ""), (8, "d"), (16384 - 1024 - 24, "")]);
    let raid5 = view_of(Level::Raid5, 2, DISKS, listed(3));
    let between = 1024 - 8;
    let expected = [(16, ""), (8, "d"), (between, ""), (8, "d"), (between, ""), (8, "d")];
    let rest = 3 * 8192 - expected.iter().map(|it| it.0).sum::<u64>();
    expect(&raid5, &[&expected[..], &[(rest, "")]].concat());
}

#[test]
fn it_is_told_in_whole_blocks() {
    let listed = but_for(0, |member| Some(MemberView { bad: ranges(17..18), ..member }));
    let mut raid1 = view_of(Level::Raid1, 0, DISKS, listed);
    raid1.block_sectors = 8;
    expect(&raid1, &[(16, ""), (8, "d"), (8192 - 24, "")]);
}

/// Where a second parity is left, it tells whether the first one is right, until a read has found that it is not.
#[test]
fn a_lost_block_in_doubt_is_told_as_lost_where_nothing_tells_what_it_was() {
    for (level, compared, is_lost) in
        [(Level::Raid5, false, true), (Level::Raid6, false, false), (Level::Raid6, true, true)]
    {
        let mut view = view_of(level, 2, DISKS, |slot, member| (slot.0 != 1).then_some(member));
        let row = view.geometry.array_sectors() / 8192 * 1024;
        (view.unsynced, view.doubted) = (ranges(0..1024), ranges(0..1024));
        view.unaccepted = ranges(0..1024);
        if compared {
            view.unresolved = ranges(0..1024);
        }
        let first = told(&view, 0..2 * row);
        assert_eq!(first.iter().any(|(_, word)| word == "dul"), is_lost, "{level}: {first:?}");
        assert!(first.iter().any(|(_, word)| word == "du"), "what is there can be read: {first:?}");
        assert_eq!(first.last().map(|(_, word)| word.as_str()), Some("d"), "{first:?}");
    }
}

/// One who asks about all of it gets a part, and asks on from there.
#[test]
fn a_long_answer_has_an_end_and_can_be_gone_on_with() {
    let many: Ranges = (0..4000).map(|at| 2 * at..2 * at + 1).collect();
    let many = Arc::new(many);
    let listed = but_for(0, move |member| Some(MemberView { bad: many.clone(), ..member }));
    let view = view_of(Level::Raid1, 0, DISKS, listed);
    let (mut at, mut asked, mut degraded) = (0, 0, 0);
    while at < 8192 {
        let stretches = view.redundancy(at..8192);
        assert!(stretches.len() <= STEPS_MAX && !stretches.is_empty());
        at += stretches.iter().map(|it| it.sectors).sum::<u64>();
        degraded +=
            stretches.iter().filter(|it| it.redundancy.degraded).map(|it| it.sectors).sum::<u64>();
        asked += 1;
    }
    assert_eq!((at, degraded), (8192, 4000));
    assert!(asked > 1);
}
