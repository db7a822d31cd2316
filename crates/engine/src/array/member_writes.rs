//! Writes to members that belong together: one round of a parity row, or all copies of a range.

use smallvec::SmallVec;

use crate::backend::{IoError, IoErrorKind, MemberId, WriteFrom};
use crate::geometry::Slot;
use crate::memory::Buffer;
use crate::request::RequestError;

use super::array_lane::{ArrayLane, LaneView, MemberWrite, SECTOR_BYTES};
use super::plan::Place;

/// Writes under way, made under one view.
pub(super) struct MemberWrites<'a> {
    lane: &'a ArrayLane,
    view: LaneView,
    fua: bool,
    under_way: SmallVec<[MemberWrite<'a>; 4]>,
    /// What each of them writes, as its starter calls it.
    places: SmallVec<[u8; 16]>,
    failed: SmallVec<[(MemberId, IoError); 1]>,
}

impl<'a> MemberWrites<'a> {
    /// None yet, under the lane's view of now.
    pub(super) fn new(lane: &'a ArrayLane, fua: bool) -> Self {
        let (under_way, places, failed) = Default::default();
        Self { lane, view: lane.view(), fua, under_way, places, failed }
    }

    /// Starts a write to the member in `slot`, at a sector of its data. Where there is none it is
    /// passed over.
    pub(super) fn start(&mut self, place: Place, slot: Slot, sector: u64, from: WriteFrom) {
        let Some(member) = self.view.member(slot) else { return };
        let sectors = (from.len() / SECTOR_BYTES) as u64;
        if member.bad.overlaps(&(sector..sector + sectors)) {
            self.failed.push((member.id, listed_bad()));
            return;
        }
        let io = self.lane.write_member(member, sector, from, self.fua);
        self.places.push(u8::try_from(place).expect("a row has at most 256 places"));
        self.under_way.push(MemberWrite { member: member.id, io });
    }

    /// Waits for all, and gives `keep` the buffers that come back. It is well when one landed and the
    /// array does without the members that failed; true when none did.
    pub(super) async fn end(
        &mut self,
        mut keep: impl FnMut(Place, Buffer),
    ) -> Result<bool, RequestError> {
        if self.under_way.is_empty() {
            return Err(RequestError::Lost);
        }
        let keep = |number: usize, buffer| keep(self.places[number].into(), buffer);
        let finished = self.lane.finish_keeping(&mut self.under_way, keep).await;
        if finished.no_space {
            return Err(RequestError::NoSpace);
        }
        self.failed.extend(finished.failed);
        match self.lane.do_without(&self.view, &self.failed).await {
            true => Ok(self.failed.is_empty()),
            false => Err(RequestError::Lost),
        }
    }
}

/// The error of a write into a range that the bad-block log lists: the log cannot be changed yet, so
/// the member cannot take it.
pub(super) fn listed_bad() -> IoError {
    IoError { kind: IoErrorKind::Medium, errno: 0 }
}

/// A buffer to write whole.
pub(super) fn whole_buffer(block: Buffer) -> WriteFrom {
    let whole = 0..block.len();
    WriteFrom::Buffer(block, whole)
}
