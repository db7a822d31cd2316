//! Writes of other lanes that are written together with this lane's: they waited for a claim that this
//! lane was granted first. Their bytes come as plain values, and their lanes answer for them.

use std::rc::Rc;

use super::array_lane::ArrayLane;
use super::claims::{Claim, Offer, Taken};
use super::gather::Piece;
use super::handover::Results;
use super::round::Round;

/// Most bytes of a round that takes others along: the first to be answered waits for all of them.
const TAKEN_BYTES_MAX: usize = 1 << 20;

impl ArrayLane {
    /// What a round that must wait writes, for the lane that may take it along.
    pub(super) fn offer(&self, round: &Round) -> Offer {
        let pieces = round.pieces.iter().map(|piece| self.to_give_piece(piece)).collect();
        Offer { pieces, bytes: round.bytes(), most_bytes: TAKEN_BYTES_MAX }
    }

    /// Runs a round with the writes that it takes along, which come after it. Their lanes hear what
    /// came of them; what came of its own pieces is the result.
    pub(super) async fn run_with_taken(
        &self,
        round: &Round,
        claim: Claim<'_>,
        mut taken: Vec<Taken>,
    ) -> Results {
        if taken.is_empty() {
            return self.run_claimed(round, claim).await;
        }
        let own = round.pieces.iter().map(Piece::borrowed);
        let others = taken.iter_mut().flat_map(Taken::pieces);
        let others = others.map(|given| Piece::given(round.row, given));
        let joined = self.row_shape().round(round.row, own.chain(others).collect());
        let mut results = self.run_claimed(&joined, claim).await;
        // Their lanes may use the memory again as soon as they hear.
        drop(joined);
        let mut rest = results.drain(round.pieces.len()..);
        for one in taken {
            let of_one = rest.by_ref().take(one.count()).collect();
            one.end(of_one);
        }
        drop(rest);
        results
    }
}

impl Piece {
    /// The same bytes for a larger round; who hears of its end is the original's business.
    fn borrowed(&self) -> Self {
        let Self { row, place, ref columns, ref source, first_byte, fua, .. } = *self;
        let (columns, source) = (columns.clone(), Rc::clone(source));
        Self { row, place, columns, source, first_byte, fua, ending: None }
    }
}
