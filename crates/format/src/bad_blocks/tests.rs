#![expect(clippy::single_range_in_vec_init, reason = "a list of one range is meant")]

use super::*;

const LONG: Range<u64> = 1000..2500;

fn blocks<const N: usize>(ranges: [Range<u64>; N]) -> BadBlocks {
    let mut blocks = BadBlocks::new();
    ranges.into_iter().for_each(|range| blocks.add(range));
    blocks
}

#[test]
fn ranges_that_touch_or_overlap_become_one() {
    let blocks = blocks([8..16, 32..40, 16..24, 30..33, 100..101, 99..100]);
    assert_eq!(blocks.ranges(), [8..24, 30..40, 99..101]);
}

#[test]
fn writing_the_middle_of_a_range_leaves_its_ends() {
    let mut blocks = blocks([0..100, 200..300]);
    blocks.remove(40..60);
    assert_eq!(blocks.ranges(), [0..40, 60..100, 200..300]);
    blocks.remove(90..250);
    assert_eq!(blocks.ranges(), [0..40, 60..90, 250..300]);
    blocks.remove(0..1000);
    assert!(blocks.is_empty());
}

#[test]
fn the_first_bad_range_of_a_request_is_cut_to_it() {
    let blocks = blocks([10..20, 30..40]);
    assert_eq!(blocks.first_in(0..10), None);
    assert_eq!(blocks.first_in(0..11), Some(10..11));
    assert_eq!(blocks.first_in(15..35), Some(15..20));
    assert_eq!(blocks.first_in(20..30), None);
    assert_eq!(blocks.first_in(20..1000), Some(30..40));
    assert_eq!(blocks.first_in(40..1000), None);
}

#[test]
fn a_long_range_is_split_into_entries_of_512_units() {
    let bytes = blocks([LONG]).encode(8, 0).unwrap();
    let entries: Vec<u64> =
        bytes.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().unwrap())).collect();
    assert_eq!(entries.len(), 512);
    assert_eq!(entries[..4], [1000 << 10 | 512, 1512 << 10 | 512, 2024 << 10 | 476, END]);
    assert!(entries[3..].iter().all(|entry| *entry == END));
    assert_eq!(BadBlocks::parse(&bytes, 0), Ok(blocks([LONG])));
}

#[test]
fn a_full_log_is_an_error_that_counts_the_entries() {
    let full = blocks([0..64 * 512]);
    assert!(full.encode(1, 0).is_ok());
    let over = blocks([0..64 * 512 + 1]);
    assert_eq!(over.encode(1, 0), Err(BadBlockLogFull { needed: 65, room: 64 }));
    assert!(blocks([0..1 << 54]).encode(8, 0).is_err(), "no memory is spent on huge ranges");
}

#[test]
fn units_larger_than_a_sector_round_outwards() {
    let bytes = blocks([9..15, 24..25]).encode(1, 3).unwrap();
    assert_eq!(BadBlocks::parse(&bytes, 3), Ok(blocks([8..16, 24..32])));
}

#[test]
fn entries_that_cannot_be_are_errors() {
    let empty = BadBlocks::parse(&[0; 8], 0);
    assert!(matches!(empty, Err(BadBlocksError::Entry { index: 0, entry: 0, .. })), "{empty:?}");
    assert_eq!(BadBlocks::parse(&[], 10), Err(BadBlocksError::Shift { shift: 10 }));
    let last = 0xffff_ffff_ffff_fc01_u64.to_le_bytes();
    assert_eq!(BadBlocks::parse(&last, 0), Ok(blocks([(1 << 54) - 1..1 << 54])));
    assert!(matches!(BadBlocks::parse(&last, 1), Err(BadBlocksError::Entry { .. })));
    let beyond = (END - 1).to_le_bytes();
    assert!(matches!(BadBlocks::parse(&beyond, 0), Err(BadBlocksError::Entry { .. })));
}
