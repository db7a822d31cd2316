//! What a multipath device looks like to a lane at one moment; replaced as a whole, never changed.

use std::ops::Range;

use crate::backend::MemberId;

use super::late::LateId;
use super::table::Selector;

/// A path that may take requests now.
#[derive(Clone, Debug)]
pub(super) struct Usable {
    /// Its number in the device.
    pub(super) path: usize,
    pub(super) member: MemberId,
    /// Behind a network: an I/O without an answer may still be done.
    pub(super) remote: bool,
    pub(super) relative_throughput: u32,
    pub(super) lanes: u128,
}

#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) generation: u64,
    pub(super) selector: Selector,
    /// The paths of the group in use.
    pub(super) usable: Vec<Usable>,
    /// Those of other groups, for a request that this group could not serve.
    pub(super) others: Vec<Usable>,
    /// Writes that may still be done, by whom nobody knows.
    pub(super) late: Vec<(LateId, Range<u64>)>,
    /// Requests wait when there is no path.
    pub(super) waits: bool,
    pub(super) closed: bool,
}

impl View {
    /// Whether a write of `range` must wait for the proof of an earlier one; `own` is itself.
    pub(super) fn is_barred(&self, range: &Range<u64>, own: &[LateId]) -> bool {
        let overlaps = |other: &Range<u64>| other.start < range.end && range.start < other.end;
        self.late.iter().any(|(id, other)| overlaps(other) && !own.contains(id))
    }
}
