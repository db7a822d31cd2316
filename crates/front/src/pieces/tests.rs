use super::*;

#[test]
fn a_range_is_cut_at_multiples_of_its_unit_and_nothing_is_left_out() {
    for unit in [1, 8, 5 * 1024, PIECE_SECTORS, 3 * PIECE_SECTORS] {
        for range in [0..1, 7..9, 1000..40 * PIECE_SECTORS + 5, PIECE_SECTORS..2 * PIECE_SECTORS] {
            let all: Vec<Range<u64>> = pieces(range.clone(), unit).collect();
            assert_eq!(all.first().map(|piece| piece.start), Some(range.start));
            assert_eq!(all.last().map(|piece| piece.end), Some(range.end));
            for pair in all.windows(2) {
                assert_eq!(pair[0].end, pair[1].start);
                assert!(pair[0].end.is_multiple_of(unit), "{pair:?} of {unit}");
            }
            let longest = all.iter().map(|piece| piece.end - piece.start).max();
            assert!(longest <= Some(PIECE_SECTORS.max(unit)), "{longest:?} of {unit}");
        }
    }
}

#[test]
fn an_empty_range_has_no_pieces_and_the_last_sectors_there_are_have_an_end() {
    assert_eq!(pieces(5..5, 8).count(), 0);
    assert_eq!(pieces(u64::MAX - 3..u64::MAX, 5).last(), Some(u64::MAX - 3..u64::MAX));
}
