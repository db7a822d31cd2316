//! Writes to members that belong together: one round of a parity row, or all copies of a range.

use smallvec::SmallVec;

use crate::backend::{IoDone, IoError, IoErrorKind, IoOp, MemberId, WriteFrom};
use crate::geometry::Slot;
use crate::memory::Buffer;
use crate::request::RequestError;

use super::array_lane::{ArrayLane, Finished, LaneView, MemberWrite, SECTOR_BYTES};
use super::plan::Place;

/// Writes under way, made under one view.
pub(super) struct MemberWrites<'a> {
    lane: &'a ArrayLane,
    view: LaneView,
    fua: bool,
    under_way: SmallVec<[(Place, MemberWrite<'a>); 4]>,
    /// Buffers of writes that have ended, by what their starter called them.
    returned: SmallVec<[(Place, Buffer); 4]>,
    finished: Finished,
    any: bool,
}

impl<'a> MemberWrites<'a> {
    /// None yet, under the lane's view of now.
    pub(super) fn new(lane: &'a ArrayLane, fua: bool) -> Self {
        let (under_way, returned, finished) = Default::default();
        Self { lane, view: lane.view(), fua, under_way, returned, finished, any: false }
    }

    /// Starts a write to the member in `slot`, at a sector of its data. Where there is none it is
    /// passed over.
    pub(super) fn start(&mut self, place: Place, slot: Slot, sector: u64, from: WriteFrom) {
        let Some(member) = self.view.member(slot) else { return };
        let sectors = (from.len() / SECTOR_BYTES) as u64;
        if member.bad.overlaps(&(sector..sector + sectors)) {
            return self.finished.failed.push((member.id, listed_bad()));
        }
        self.any = true;
        let op = IoOp::Write { sector: member.data_offset + sector, from, fua: self.fua };
        let member_id = member.id;
        match self.lane.try_member_io(member, op) {
            Ok(done) => self.ended(place, member_id, done),
            Err(io) => self.under_way.push((place, MemberWrite { member: member_id, io })),
        }
    }

    fn ended(&mut self, place: Place, member: MemberId, done: IoDone) {
        self.finished.note(member, done.result);
        self.returned.extend(done.buffer.map(|buffer| (place, buffer)));
    }

    /// Waits for all, and gives `keep` the buffers that come back. It is well when one landed and the
    /// array does without the members that failed; true when none did.
    pub(super) async fn end(
        &mut self,
        mut keep: impl FnMut(Place, Buffer),
    ) -> Result<bool, RequestError> {
        if !self.any {
            return Err(RequestError::Lost);
        }
        for (place, mut write) in std::mem::take(&mut self.under_way) {
            let done = (&mut write.io).await;
            self.ended(place, write.member, done);
        }
        self.returned.drain(..).for_each(|(place, buffer)| keep(place, buffer));
        if self.finished.no_space {
            return Err(RequestError::NoSpace);
        }
        match self.lane.do_without(&self.view, &self.finished.failed).await {
            true => Ok(self.finished.failed.is_empty()),
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
