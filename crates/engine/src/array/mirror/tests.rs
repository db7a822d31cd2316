//! How regions are cut.

use super::*;

fn region(columns: Range<u32>) -> Region {
    Region { index: 3, columns, first: 10, sector: 1000 }
}

#[test]
fn a_region_is_halved_until_it_is_one_block_and_no_sector_is_lost() {
    for block_sectors in [1, 8] {
        for blocks in 1..20 {
            let (mut whole, mut single) = (vec![region(16..16 + blocks * block_sectors)], 0);
            while let Some(region) = whole.pop() {
                match region.halves(block_sectors) {
                    Some((one, other)) => {
                        assert!(!one.columns.is_empty() && one.columns.end == other.columns.start);
                        assert_eq!(other.sector - one.sector, one.sectors());
                        assert_eq!(other.first - one.first, one.sectors());
                        whole.extend([one, other]);
                    }
                    None => {
                        assert_eq!(region.sectors(), u64::from(block_sectors));
                        single += 1;
                    }
                }
            }
            assert_eq!(single, blocks, "blocks of {block_sectors} sectors");
        }
    }
}
