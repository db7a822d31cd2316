//! Long ranges that are zeroed or given up, in pieces: whoever waits for such a range waits for one piece.

use std::ops::Range;

/// The most sectors of a piece, but for one that is a single unit of its volume: 64 MiB.
pub(crate) const PIECE_SECTORS: u64 = 1 << 17;

/// The pieces of a range of sectors, in order. They are cut at multiples of `unit_sectors`, which is not zero: what a
/// volume does with whole units alone is done with all in the range.
pub(crate) fn pieces(range: Range<u64>, unit_sectors: u64) -> impl Iterator<Item = Range<u64>> {
    let most = (PIECE_SECTORS / unit_sectors).max(1).saturating_mul(unit_sectors);
    let mut at = range.start;
    std::iter::from_fn(move || {
        let border = (at / most).saturating_add(1).saturating_mul(most);
        let piece = at..border.min(range.end);
        at = piece.end;
        (piece.start < piece.end).then_some(piece)
    })
}

#[cfg(test)]
mod tests;
