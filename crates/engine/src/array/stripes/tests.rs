use super::Unit;

#[test]
fn a_unit_covers_the_same_columns_whatever_is_asked_of_it() {
    let unit = Unit(8);
    for columns in [9..10, 8..16, 15..16] {
        assert_eq!(unit.numbers(&columns), 1..2, "{columns:?}");
        assert_eq!(unit.columns(1), 8..16);
    }
    assert_eq!(unit.numbers(&(7..17)), 0..3);
}

#[test]
fn part_of_a_unit_has_no_use_for_its_stripe() {
    let unit = Unit(8);
    assert!(unit.lies_in(1, &(8..16)) && unit.lies_in(1, &(0..24)));
    for columns in [9..16, 8..15, 10..12] {
        assert!(!unit.lies_in(1, &columns), "{columns:?}");
    }
}
