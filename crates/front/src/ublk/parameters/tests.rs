use super::*;

/// A RAID6 of 6: chunks of 64 KiB, rows of 256 KiB.
const SHAPE: Shape = Shape {
    size_bytes: 1 << 30,
    block_bytes: 512,
    chunk_bytes: 64 << 10,
    row_sectors: 512,
    discards: true,
    is_read_only: false,
    is_rotational: false,
};

#[test]
fn a_device_has_the_arrays_size_blocks_and_rows() {
    let basic = SHAPE.parameters().basic;
    assert_eq!(basic.sectors, 1 << 21);
    assert_eq!((basic.logical_block_shift, basic.physical_block_shift), (9, 12));
    assert_eq!((basic.minimal_shift, basic.optimal_shift), (16, 18));
    assert_eq!(basic.request_sectors_max, 2048);
    assert_eq!(basic.attributes, attribute::VOLATILE_CACHE | attribute::FUA);
}

#[test]
fn a_row_that_is_no_power_of_two_is_told_as_one_that_divides_it() {
    let optimal = |row_sectors| Shape { row_sectors, ..SHAPE }.parameters().basic.optimal_shift;
    assert_eq!(optimal(3 * 128), 16, "three chunks: a chunk");
    assert_eq!(optimal(6 * 128), 17, "six chunks: two");
    assert_eq!(optimal(1), 16, "no less than a chunk");
    assert_eq!(optimal(u64::MAX), 16);
    assert_eq!(optimal(0), 16);
}

#[test]
fn a_block_of_4096_bytes_is_the_logical_one() {
    let shape = Shape { block_bytes: 4096, chunk_bytes: 4096, row_sectors: 1, ..SHAPE };
    let basic = shape.parameters().basic;
    assert_eq!((basic.logical_block_shift, basic.physical_block_shift), (12, 12));
    assert_eq!((basic.minimal_shift, basic.optimal_shift), (12, 12));
    assert_eq!(shape.parameters().discard.granularity_bytes, 4096);
    assert_eq!(shape.limits().block_sectors, 8);
}

#[test]
fn requests_are_as_long_as_a_row_within_bounds_and_whole_pages() {
    let most = |row_sectors| Shape { row_sectors, ..SHAPE }.request_bytes_max();
    assert_eq!((most(1), most(2048), most(1 << 30)), (1 << 20, 1 << 20, 4 << 20));
    assert_eq!(most(3 * 1024), 3 << 19);
    assert_eq!(most(3 * 1024 + 1) % 4096, 0);
}

#[test]
fn ranges_are_whole_rows_of_one_piece_at_most() {
    let discard = SHAPE.parameters().discard;
    assert_eq!(discard.granularity_bytes, 256 << 10);
    assert_eq!(u64::from(discard.discard_sectors_max), PIECE_SECTORS);
    assert_eq!(u64::from(discard.zeroes_sectors_max), PIECE_SECTORS);
    assert_eq!(discard.segments, 1);
    let uneven = Shape { row_sectors: 3 * 128, ..SHAPE }.parameters().discard;
    assert_eq!(uneven.discard_sectors_max % (3 * 128), 0);
    let long = Shape { row_sectors: PIECE_SECTORS * 3, ..SHAPE }.parameters().discard;
    assert_eq!(u64::from(long.discard_sectors_max), PIECE_SECTORS * 3);
    // Of a row that no number of the driver's holds, nothing overflows.
    let endless = Shape { row_sectors: u64::MAX, ..SHAPE }.parameters().discard;
    assert!(endless.granularity_bytes > 0 && endless.discard_sectors_max > 0);
}

#[test]
fn what_does_not_discard_makes_zeroes_all_the_same() {
    let discard = Shape { discards: false, ..SHAPE }.parameters().discard;
    assert_eq!(discard.discard_sectors_max, 0);
    assert!(discard.zeroes_sectors_max > 0 && discard.granularity_bytes > 0);
}

#[test]
fn a_device_that_is_read_only_says_so_and_offers_no_ranges() {
    let parameters = Shape { is_read_only: true, ..SHAPE }.parameters();
    assert_eq!(parameters.basic.attributes & attribute::READ_ONLY, attribute::READ_ONLY);
    assert_eq!(parameters.discard.discard_sectors_max, 0);
    assert_eq!(parameters.discard.zeroes_sectors_max, 0);
}

#[test]
fn parameters_are_read_as_they_were_written() {
    let parameters = SHAPE.parameters();
    let mut bytes = parameters.to_bytes();
    assert_eq!(bytes[..8], [60, 0, 0, 0, 3, 0, 0, 0]);
    assert_eq!(Parameters::of(&bytes), Some(parameters));
    bytes[4] = 1;
    let discard = DiscardParameters::default();
    assert_eq!(Parameters::of(&bytes), Some(Parameters { discard, ..parameters }));
    bytes[4] = 0;
    assert_eq!(Parameters::of(&bytes), None);
}

#[test]
fn a_device_that_was_left_fits_by_size_block_and_right_to_write() {
    let fits = |other: Shape| SHAPE.parameters().fit(&other.parameters());
    assert!(fits(SHAPE));
    assert!(fits(Shape { row_sectors: 128, is_rotational: true, ..SHAPE }));
    assert!(!fits(Shape { size_bytes: SHAPE.size_bytes - 512, ..SHAPE }));
    assert!(!fits(Shape { block_bytes: 4096, ..SHAPE }));
    assert!(!fits(Shape { is_read_only: true, ..SHAPE }));
}
