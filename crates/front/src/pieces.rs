//! Long ranges that are zeroed or given up, in pieces: a write that waits for such a range waits for one piece.

use std::ops::Range;
use std::rc::Rc;

use mdspace_engine::lane::Lane;
use mdspace_engine::request::{Queue, Request, RequestError};

use crate::partial_writes::LaneWrites;
use crate::volume::VolumePart;

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

/// Does a range of sectors in pieces: `work` makes the request of one. It ends early, with [`RequestError::Stopped`],
/// when its client has gone: work of hours must not keep a stop waiting, nor go on without a client.
pub(crate) async fn do_in_pieces<V: VolumePart>(
    (volume, lane): (&Rc<V>, &Lane),
    writes: &Rc<LaneWrites>,
    sectors: Range<u64>,
    work: impl Fn(Range<u64>) -> Request,
    is_over: impl Fn() -> bool,
) -> Result<(), RequestError> {
    for piece in pieces(sectors, volume.unit_sectors()) {
        let _whole = writes.begin_when_free(piece.start * 512..piece.end * 512).await;
        if is_over() {
            return Err(RequestError::Stopped);
        }
        let queue = Queue::new();
        volume.submit(&queue, 0, work(piece));
        queue.next().await.result?;
        // Memory answers at once; others of the lane have their turn.
        lane.pause().await;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
