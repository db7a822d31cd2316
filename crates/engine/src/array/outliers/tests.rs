use super::*;

fn slots<const N: usize>(numbers: [u16; N]) -> Slots {
    numbers.into_iter().map(Slot).collect()
}

fn of(outliers: &Outliers, range: Range<u64>) -> Option<Slots> {
    outliers.of(&range, &Ranges::of(0..u64::MAX))
}

#[test]
fn a_range_is_known_only_where_all_of_it_that_is_in_doubt_is() {
    let mut outliers = Outliers::default();
    outliers.insert(8..16, slots([3]));
    outliers.insert(16..24, slots([1, 3]));
    assert_eq!(of(&outliers, 9..16), Some(slots([3])));
    assert_eq!(of(&outliers, 9..17), Some(slots([1, 3])));
    assert_eq!([7..9, 23..25, 24..32].map(|range| of(&outliers, range)), [None, None, None]);
    let doubted = Ranges::of(8..25);
    assert_eq!(outliers.of(&(0..16), &doubted), Some(slots([3])));
    assert_eq!(outliers.of(&(0..32), &doubted), None);
}

/// Else it would stand for another part that is as long and of which nothing is known.
#[test]
fn what_is_known_of_a_part_that_is_not_in_doubt_counts_for_nothing() {
    let mut outliers = Outliers::default();
    outliers.insert(0..8, slots([3]));
    assert_eq!(outliers.of(&(0..16), &Ranges::of(8..16)), None);
    outliers.insert(8..12, slots([1]));
    assert_eq!(outliers.of(&(0..16), &Ranges::of(8..12)), Some(slots([1])));
    assert!(outliers.names(Slot(1), &(0..16), &Ranges::of(8..16)));
    assert!(!outliers.knows_of(&(0..16), &Ranges::of(12..16)));
}

#[test]
fn what_is_known_last_of_a_range_counts() {
    let mut outliers = Outliers::default();
    outliers.insert(0..24, slots([3]));
    outliers.insert(8..16, slots([1]));
    assert_eq!(of(&outliers, 8..16), Some(slots([1])));
    assert_eq!(of(&outliers, 0..8), Some(slots([3])));
    outliers.forget(&(4..20));
    assert_eq!(of(&outliers, 4..20), None);
    assert_eq!(of(&outliers, 3..5), None);
    assert_eq!([0..4, 20..24].map(|range| of(&outliers, range).is_some()), [true, true]);
    outliers.forget(&(0..24));
    assert!(outliers.is_empty());
}

#[test]
fn a_slot_is_named_for_a_range_if_every_part_names_it_of_which_something_is_known() {
    let mut outliers = Outliers::default();
    outliers.insert(0..8, slots([1, 3]));
    outliers.insert(8..16, slots([3]));
    let names = |slot, range| outliers.names(Slot(slot), &range, &Ranges::of(0..u64::MAX));
    assert_eq!([0..24, 4..12].map(|range| names(3, range)), [true, true]);
    assert_eq!([0..8, 0..9].map(|range| names(1, range)), [true, false]);
}

#[test]
fn as_many_scattered_ranges_are_known_as_there_are() {
    let mut outliers = Outliers::default();
    let ranges = || (0..5000).map(|range| range * 16..range * 16 + 8);
    ranges()
        .for_each(|range| outliers.insert(range.clone(), slots([(range.start / 16 % 3) as u16])));
    let is_known = |range: Range<u64>| {
        of(&outliers, range.clone()) == Some(slots([(range.start / 16 % 3) as u16]))
    };
    assert!(ranges().all(is_known));
    let is_listed =
        |(range, slots): (Range<u64>, &Slots)| of(&outliers, range) == Some(slots.clone());
    assert_eq!((outliers.iter().count(), outliers.iter().all(is_listed)), (5000, true));
}

/// However they were told of: else a view is made for nothing.
#[test]
fn the_same_outliers_are_equal() {
    let (mut one, mut other) = (Outliers::default(), Outliers::default());
    one.insert(0..8, slots([1, 3]));
    one.insert(8..24, slots([2]));
    one.forget(&(16..24));
    other.insert(8..16, slots([2]));
    other.insert(0..4, slots([3, 1]));
    other.insert(4..8, slots([1, 3]));
    assert_eq!(one, other);
}

#[test]
fn where_what_an_outlier_has_was_computed_anew_only_the_others_stay_outliers() {
    let mut outliers = Outliers::default();
    outliers.insert(0..8, slots([1, 3]));
    outliers.insert(8..16, slots([3]));
    outliers.fits(Slot(3), &(4..12));
    assert_eq!(of(&outliers, 0..4), Some(slots([1, 3])));
    assert_eq!(of(&outliers, 4..8), Some(slots([1])));
    assert_eq!(of(&outliers, 8..12), Some(slots([])));
    assert_eq!(of(&outliers, 12..16), Some(slots([3])));
    assert_eq!(of(&outliers, 12..17), None);
}
