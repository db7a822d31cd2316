use std::collections::BTreeSet;

use super::*;
use crate::geometry::{Geometry, Level, Shape};

#[test]
fn every_data_block_has_its_own_place_in_the_parity() {
    for (level, raid_disks) in [(Level::Raid4, 5), (Level::Raid5, 5), (Level::Raid6, 6)] {
        let shape = Shape {
            level,
            layout: 2,
            raid_disks,
            chunk_sectors: 8,
            member_sectors: 64,
            member_sizes: Vec::new(),
        };
        let Ok(Geometry::Parity(map)) = Geometry::new(&shape) else { panic!("{shape:?}") };
        for row in (0..map.rows()).map(|index| map.row(index)) {
            let data = usize::from(map.data_disks());
            let places: BTreeSet<_> = (0..data).map(|place| parity_index(&row, place)).collect();
            assert_eq!(places.len(), data, "{level:?} {row:?}");
            assert!(places.iter().all(|&place| place < usize::from(row.exponents())));
        }
    }
}
