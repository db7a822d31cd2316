//! Writes to members that belong together: one round of a parity row, or all copies of a range.

use std::ops::Range;

use smallvec::SmallVec;

use crate::backend::{IoDone, IoOp, MemberId, WriteFrom};
use crate::geometry::Slot;
use crate::memory::Buffer;
use crate::ranges::Ranges;
use crate::request::RequestError;

use super::array_lane::{ArrayLane, Finished, LaneView, MemberWrite, SECTOR_BYTES};
use super::plan::Place;
use super::view::MemberView;

/// What writes to replacements are called.
const REPLACEMENT: Place = Place::MAX;

/// Writes under way, made under one view.
pub(super) struct MemberWrites<'a> {
    lane: &'a ArrayLane,
    view: LaneView,
    fua: bool,
    under_way: SmallVec<[(Place, MemberWrite<'a>); 4]>,
    /// Buffers of writes that have ended, by what their starter called them.
    returned: SmallVec<[(Place, Buffer); 4]>,
    finished: Finished,
    /// Those that write into what their members' logs list as bad.
    listed: Vec<(MemberId, Range<u64>)>,
    any: bool,
}

impl<'a> MemberWrites<'a> {
    /// None yet, under the lane's view of now.
    pub(super) fn new(lane: &'a ArrayLane, fua: bool) -> Self {
        let (under_way, returned, finished) = Default::default();
        let listed = Vec::new();
        Self { lane, view: lane.view(), fua, under_way, returned, finished, listed, any: false }
    }

    /// Starts a write to the member in `slot`, at a sector of its data. Where there is none it is
    /// passed over.
    pub(super) fn start(&mut self, place: Place, slot: Slot, sector: u64, from: WriteFrom) {
        let view = self.view.clone();
        if let Some(replacement) = view.replacement(slot) {
            let again = from.again(&|length| self.lane.lane.backend().allocate(length));
            self.start_on(REPLACEMENT, replacement, sector, again);
        }
        if let Some(member) = view.member(slot) {
            self.start_on(place, member, sector, from);
        }
    }

    #[inline]
    fn start_on(&mut self, place: Place, member: &MemberView, sector: u64, from: WriteFrom) {
        let sectors = (from.len() / SECTOR_BYTES) as u64;
        if member.bad.overlaps(&(sector..sector + sectors)) {
            self.listed.push((member.id, sector..sector + sectors));
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
        if place == REPLACEMENT {
            // What it lacks is no reason to refuse a write: it goes, whatever is wrong with it.
            self.finished.failed.extend(done.result.err().map(|error| (member, error)));
            return self.lane.recycle(done.buffer);
        }
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
            true => {
                self.take_off_lists().await;
                Ok(self.finished.failed.is_empty())
            }
            false => Err(RequestError::Lost),
        }
    }

    /// What was listed as bad and took the write is so no more, before anyone is told that it did: it
    /// may be the only place left to read it from.
    async fn take_off_lists(&mut self) {
        for (member, range) in std::mem::take(&mut self.listed) {
            if self.finished.failed.iter().all(|(failed, _)| *failed != member) {
                self.lane.take_off_list(member, range).await;
            }
        }
    }
}

impl ArrayLane {
    /// Has a range taken off a member's bad-block log that was written whole.
    pub(super) async fn take_off_list(&self, member: MemberId, range: Range<u64>) {
        self.array.mailbox.written(member, &Ranges::of(range.clone()));
        self.array.views.settled_with(member, |member| !member.bad.overlaps(&range)).await;
    }

    /// Puts a range on a member's bad-block log. Where that cannot be, the member is failed.
    pub(super) async fn list_as_bad(&self, member: MemberId, range: Range<u64>) {
        self.array.mailbox.unmended(member, &Ranges::of(range.clone()));
        self.array.views.settled_with(member, |member| member.bad.contains(&range)).await;
    }
}

/// A buffer to write whole.
pub(super) fn whole_buffer(block: Buffer) -> WriteFrom {
    let whole = 0..block.len();
    WriteFrom::Buffer(block, whole)
}
