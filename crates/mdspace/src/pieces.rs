//! Ranges of an array, checked and cut into pieces: a request of any length takes bounded memory.

use crate::Error;

/// Bytes that one piece moves, if rows are no longer than that.
const MOVED_BYTES: u64 = 4 << 20;
/// Bytes that one piece zeroes or gives up, as above.
const ZEROED_BYTES: u64 = 64 << 20;

/// What an array's requests must keep to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) size_bytes: u64,
    pub(crate) block_bytes: u32,
    /// A row of parity: written as a whole it needs no reads, and it is discarded as a whole or not at all.
    pub(crate) row_bytes: u64,
}

/// One piece of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) offset_bytes: u64,
    pub(crate) len_bytes: u64,
}

impl Bounds {
    /// Refuses what is not whole blocks inside the array.
    pub(crate) fn check(&self, offset_bytes: u64, len_bytes: u64) -> Result<(), Error> {
        let Self { size_bytes, block_bytes, .. } = *self;
        if offset_bytes.checked_add(len_bytes).is_none_or(|end| end > size_bytes) {
            return Err(Error::OutOfRange { offset_bytes, len_bytes, size_bytes });
        }
        if (offset_bytes | len_bytes) & (u64::from(block_bytes) - 1) != 0 {
            return Err(Error::Unaligned { offset_bytes, len_bytes, block_bytes });
        }
        Ok(())
    }

    /// The pieces of a range that moves bytes.
    pub(crate) fn moved(
        &self,
        offset_bytes: u64,
        len_bytes: u64,
    ) -> impl Iterator<Item = Piece> + Send + use<> {
        self.cut(offset_bytes, len_bytes, MOVED_BYTES)
    }

    /// The pieces of a range that is zeroed or given up.
    pub(crate) fn zeroed(
        &self,
        offset_bytes: u64,
        len_bytes: u64,
    ) -> impl Iterator<Item = Piece> + Send + use<> {
        self.cut(offset_bytes, len_bytes, ZEROED_BYTES)
    }

    /// Pieces that begin and end with rows, where several rows go into one.
    fn cut(
        &self,
        offset_bytes: u64,
        len_bytes: u64,
        at_most: u64,
    ) -> impl Iterator<Item = Piece> + Send + use<> {
        let unit = match at_most / self.row_bytes {
            0 => at_most,
            rows => rows * self.row_bytes,
        };
        let (mut at, end) = (offset_bytes, offset_bytes + len_bytes);
        std::iter::from_fn(move || {
            let piece_end = ((at / unit + 1) * unit).min(end);
            let piece = Piece { offset_bytes: at, len_bytes: piece_end - at };
            at = piece_end;
            (piece.len_bytes > 0).then_some(piece)
        })
    }
}

#[cfg(test)]
mod tests;
