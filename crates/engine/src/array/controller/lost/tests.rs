use crate::geometry::{Level, Shape};

use super::*;

/// An order to give up a member is not told that nothing is lost there.
#[test]
fn what_too_many_pieces_keep_from_being_looked_at_counts_as_found() {
    let found = |pieces: u64, most| {
        let pieces = (0..pieces).map(|piece| piece * 8..piece * 8 + 8);
        let odd = |piece: Range<u64>| if piece.start % 16 == 8 { vec![piece] } else { Vec::new() };
        let found = Found::among(pieces, most, odd, |piece| piece.end - piece.start);
        (found.sectors.sectors(), found.unseen, found.count())
    };
    assert_eq!(found(4, 4), (16, 0, 16));
    assert_eq!(found(4, 3), (8, 8, 16));
    assert_eq!(found(1, 0), (0, 8, 8));
    assert_eq!(found(0, 0), (0, 0, 0));
}

/// After a crash without a bitmap all of it is in doubt. It still tells which copy is not read.
#[test]
fn a_large_raid1_in_doubt_is_looked_at_whole() {
    let member_sectors = 1 << 33;
    let shape = Shape {
        level: Level::Raid1,
        raid_disks: 2,
        layout: 0,
        chunk_sectors: 0,
        member_sectors,
        member_sizes: Vec::new(),
    };
    let geometry = Geometry::new(&shape).unwrap();
    let all: Ranges = std::iter::once(0..member_sectors).collect();
    assert!(in_pieces(&all, &geometry).eq(std::iter::once(0..member_sectors)));
}
