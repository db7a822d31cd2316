use super::*;

const MIB: u64 = 1 << 20;

fn bounds(row_bytes: u64) -> Bounds {
    Bounds { size_bytes: 1 << 40, block_bytes: 512, row_bytes }
}

#[test]
fn pieces_are_the_whole_range_and_end_with_rows() {
    for row in [512, 3 << 19, 5 * MIB, 100 * MIB] {
        for (offset, len) in [(0, 64 * MIB), (512, 512), (7 * 512, 33 * MIB), (3 * MIB, 0)] {
            let pieces: Vec<Piece> = bounds(row).moved(offset, len).collect();
            assert_eq!(pieces.iter().map(|piece| piece.len_bytes).sum::<u64>(), len);
            let mut at = offset;
            for (number, piece) in pieces.iter().enumerate() {
                assert_eq!(piece.offset_bytes, at);
                at += piece.len_bytes;
                assert!(piece.len_bytes <= MOVED_BYTES);
                let ends_inside = number + 1 < pieces.len();
                assert!(!ends_inside || row > MOVED_BYTES || at.is_multiple_of(row), "{row} {at}");
            }
        }
    }
}

#[test]
fn a_range_that_no_array_has_is_refused_and_told_what_the_array_has() {
    let size_bytes = 1 << 40;
    for (offset, len) in [(size_bytes, 512), (0, u64::MAX), (u64::MAX, 1), (size_bytes - 512, 1024)]
    {
        let error = bounds(512).check(offset, len).expect_err("a refusal").to_string();
        assert!(error.contains(&size_bytes.to_string()), "{error}");
    }
    for (offset, len) in [(1, 512), (512, 1), (511, 1)] {
        let error = bounds(512).check(offset, len).expect_err("a refusal").to_string();
        assert!(error.contains("multiples of 512"), "{error}");
    }
    for (offset, len) in [(0, 0), (size_bytes, 0), (512, 512), (0, size_bytes)] {
        assert!(bounds(512).check(offset, len).is_ok());
    }
}
