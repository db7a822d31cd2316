use super::{Content, by_both_parities, by_parity, parity};

#[test]
fn lost_blocks_are_computed_by_either_parity_and_by_both() {
    for versions in [[0, 1], [1, 2], [3, 3], [2, 0]] {
        let blocks = [0, 1].map(|block| Content::of(block, versions[block]));
        let parities = [0, 1].map(|number| parity(number, blocks));
        for block in 0..2 {
            for (number, &parity) in parities.iter().enumerate() {
                assert_eq!(by_parity(number, parity, block, blocks[1 - block]), blocks[block]);
            }
            assert_eq!(blocks[block].version_of(block), Some(versions[block]));
        }
        assert_eq!(by_both_parities(parities[0], parities[1]), blocks);
    }
}

#[test]
fn parity_of_another_time_computes_no_version() {
    let old = [Content::of(0, 1), Content::of(1, 1)];
    for number in 0..2 {
        let computed = by_parity(number, parity(number, old), 0, Content::of(1, 2));
        assert_eq!(computed.version_of(0), None);
    }
}
