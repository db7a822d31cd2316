//! Rows that a crash or a failed write may have left half-written, and how that is found out.
//!
//! With one data block missing and both parities there, the block is computed twice: by P and by Q. A
//! write that ended half-way shifts the two results by different amounts, so equal results are right,
//! and the row is in doubt no more.

use crate::geometry::Row;

use super::array_lane::ArrayLane;
use super::blocks::Blocks;
use super::claims::Columns;
use super::plan::{Places, RowState};
use super::reconstruct::{by_exponent, columns_bytes};
use super::rules::Rule;

impl ArrayLane {
    /// Computes the missing data block by P, and says whether Q agrees. `blocks` holds what
    /// [`compared_reads`](super::plan::compared_reads) names, and the computed block afterwards.
    pub(super) fn both_ways_agree(
        &self,
        row: &Row,
        state: &RowState,
        columns: &Columns,
        blocks: &mut Blocks,
    ) -> bool {
        let lost = Places::first(state.data_count).without(&blocks.places());
        self.solve(row, state, columns, columns, &lost, blocks);
        let length = columns_bytes(columns);
        let data = by_exponent(row, state, blocks, &(0..length));
        let (p, q) = self.parity_of(row, &data, length);
        let read = blocks.get(state.data_count + 1).expect("Q was read");
        let agree = q.as_ref().is_some_and(|q| **q == **read);
        self.recycle(Some(p));
        self.recycle(q);
        agree || !self.array.rules.keep(Rule::TwoParitiesAreCompared)
    }

    /// Tells the controller that these columns are of one time, and waits until no lane doubts them.
    /// Called under a claim: a write behind it that fails half-way must not be taken for resolved.
    pub(super) async fn end_doubt(&self, row: &Row, columns: &Columns) {
        let range = row.member_sectors(columns);
        self.array.mailbox.resolved(range.clone());
        self.array.views.settled_resolved(&range).await;
    }
}
