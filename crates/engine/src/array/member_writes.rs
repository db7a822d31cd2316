//! Writes to members that belong together: one round of a parity row, or all copies of a range.

use std::ops::Range;

use smallvec::SmallVec;

use crate::backend::{IoDone, IoErrorKind, IoOp, MemberId, MemberIo, WriteFrom};
use crate::geometry::Slot;
use crate::lane::Io;
use crate::memory::Buffer;
use crate::request::RequestError;

use super::array_lane::{ArrayLane, Finished, LaneView, SECTOR_BYTES};
use super::plan::Place;
use super::refused::Refused;
use super::view::{MemberView, WriteMode};

/// What writes to replacements are called.
const REPLACEMENT: Place = Place::MAX;

/// Writes under way, made under one view.
pub(super) struct MemberWrites<'a> {
    lane: &'a ArrayLane,
    view: LaneView,
    fua: bool,
    /// None where members answer at once.
    under_way: Vec<(Write, Io<'a>)>,
    /// Buffers of writes that have ended, by what their starter called them.
    returned: SmallVec<[(Place, Buffer); 4]>,
    finished: Finished,
    /// What members that answer otherwise did not take.
    refused: Vec<Refused>,
    /// Writes that went well into what their members' logs list as bad.
    listed: Vec<(MemberId, Range<u64>)>,
    any: bool,
}

/// Where a write goes.
#[derive(Clone, Copy)]
struct Target {
    member: MemberId,
    data_offset: u64,
}

impl Target {
    fn of(member: &MemberView) -> Self {
        Self { member: member.id, data_offset: member.data_offset }
    }
}

/// One of them.
struct Write {
    place: Place,
    member: MemberId,
    /// From the member's data offset.
    sectors: Range<u64>,
    bytes: Written,
}

/// Where the bytes of a write are, should it have to be made again.
enum Written {
    /// They come back with its end, all of a buffer.
    ComeBack,
    Lent(WriteFrom),
    Zeroes,
    /// Given up, which is no proof that the sectors can be written.
    Discarded,
}

/// How writes ended that the array can do with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Landed {
    /// Everywhere.
    Whole,
    /// But for members that were failed.
    Without,
    /// But for sectors that their members' logs list as bad now: whether what was to be written can be
    /// read again is the caller's to see.
    Listed,
}

impl Landed {
    /// What the write comes to: an error where members did not take all of it, and what they lack is
    /// not `held` by the others.
    pub(super) fn judge(self, held: impl FnOnce() -> bool) -> Result<(), RequestError> {
        match self == Self::Listed && !held() {
            true => Err(RequestError::Lost),
            false => Ok(()),
        }
    }
}

impl<'a> MemberWrites<'a> {
    /// None yet, under the lane's view of now.
    pub(super) fn new(lane: &'a ArrayLane, fua: bool) -> Self {
        let (under_way, returned, finished) = Default::default();
        let (refused, listed) = Default::default();
        let view = lane.view();
        Self { lane, view, fua, under_way, returned, finished, refused, listed, any: false }
    }

    /// Starts a write to the member in `slot`, at a sector of its data. Where there is none it is
    /// passed over.
    pub(super) fn start(&mut self, place: Place, slot: Slot, sector: u64, from: WriteFrom) {
        if let Some(replacement) = self.view.replacement(slot).map(Target::of) {
            let again = from.again(&|length| self.lane.lane.backend().allocate(length));
            self.write_on(REPLACEMENT, replacement, sector, again);
        }
        if let Some(member) = self.view.member(slot).map(Target::of) {
            self.write_on(place, member, sector, from);
        }
    }

    /// Starts a write to a member that the caller has found, and to its replacement; it waits for space
    /// behind either.
    pub(super) fn start_on_member(&mut self, member: &MemberView, sector: u64, from: WriteFrom) {
        let view = self.view.clone();
        let slot = view.present().find(|(_, other)| other.id == member.id).map(|(slot, _)| slot);
        if let Some(replacement) = slot.and_then(|slot| view.replacement(slot)) {
            let again = from.again(&|length| self.lane.lane.backend().allocate(length));
            self.write_on(0, Target::of(replacement), sector, again);
        }
        self.write_on(0, Target::of(member), sector, from);
    }

    /// Starts to zero sectors of the member in `slot`, and of its replacement.
    pub(super) fn start_zeroes(&mut self, slot: Slot, range: Range<u64>, discard: bool) {
        let view = self.view.clone();
        for member in view.writers(slot) {
            let (sector, sectors) = (member.data_offset + range.start, range.end - range.start);
            // A member that came meanwhile may keep what it is told to discard.
            let (op, bytes) = match discard && view.discard {
                true => (IoOp::Discard { sector, sectors }, Written::Discarded),
                false => (IoOp::WriteZeroes { sector, sectors, fua: false }, Written::Zeroes),
            };
            let write = Write { place: 0, member: member.id, sectors: range.clone(), bytes };
            self.start_on(write, op);
        }
    }

    #[inline]
    fn write_on(&mut self, place: Place, target: Target, sector: u64, from: WriteFrom) {
        let Target { member, data_offset } = target;
        let sectors = sector..sector + (from.len() / SECTOR_BYTES) as u64;
        let write = Write { place, member, sectors, bytes: Written::ComeBack };
        self.start_on(write, IoOp::Write { sector: data_offset + sector, from, fua: self.fua });
    }

    #[inline]
    fn start_on(&mut self, mut write: Write, op: IoOp) {
        self.any = true;
        let patience = self.lane.array.settings.write_patience();
        let mut io = MemberIo { member: write.member, op, patience };
        match self.lane.lane.io_at_once(&mut io) {
            Some(result) => {
                if result.is_err() {
                    write.keep(&io.op);
                }
                let done = IoDone { result, buffer: io.op.into_buffer() };
                self.ended(write, done);
            }
            None => {
                write.keep(&io.op);
                self.under_way.push((write, self.lane.lane.io_later(io)));
            }
        }
    }

    #[inline]
    fn ended(&mut self, write: Write, done: IoDone) {
        match done.result {
            Ok(()) => self.went_well(&write),
            // What it lacks is no reason to refuse a write: it goes, whatever is wrong with it.
            Err(error) if write.place == REPLACEMENT => {
                self.finished.failed.push((write.member, error));
            }
            Err(error) if error.kind == IoErrorKind::Medium && self.may_list(write.member) => {
                let bytes = self.bytes_of(&write, done.buffer.as_ref());
                let Write { member, sectors, .. } = write;
                self.refused.push(Refused { member, sector: sectors.start, bytes, fua: self.fua });
            }
            Err(error) => self.finished.note(write.member, Err(error)),
        }
        match write.place {
            REPLACEMENT => self.lane.recycle(done.buffer),
            place => {
                if let Some(buffer) = done.buffer {
                    self.returned.push((place, buffer));
                }
            }
        }
    }

    #[inline]
    fn went_well(&mut self, write: &Write) {
        if self.view.whole || matches!(write.bytes, Written::Discarded) {
            return;
        }
        let member = self.view.devices().find(|member| member.id == write.member);
        if member.is_some_and(|member| member.bad.overlaps(&write.sectors)) {
            self.listed.push((write.member, write.sectors.clone()));
        }
    }

    /// Whether a member keeps its place though it takes some sectors no more. As with md, one that is to
    /// fail fast does not, as long as others have what it has, nor one that is to replace another.
    fn may_list(&self, member: MemberId) -> bool {
        let found = self.view.present().find(|(_, other)| other.id == member);
        found.is_some_and(|(slot, member)| !member.failfast || !self.view.does_without(slot))
    }

    fn bytes_of(&self, write: &Write, buffer: Option<&Buffer>) -> Buffer {
        let sectors = (write.sectors.end - write.sectors.start) as usize;
        let mut bytes = self.lane.lane.backend().allocate(sectors * SECTOR_BYTES);
        match &write.bytes {
            Written::Lent(from) => from.take(&mut bytes),
            Written::ComeBack => bytes.copy_from_slice(buffer.expect("a write returns its buffer")),
            Written::Zeroes | Written::Discarded => bytes.fill(0),
        }
        bytes
    }

    /// Waits for all, and gives `keep` the buffers that come back. It is well when one landed and the
    /// array does without the members that failed.
    pub(super) async fn end(
        &mut self,
        mut keep: impl FnMut(Place, Buffer),
    ) -> Result<Landed, RequestError> {
        if !self.any {
            return Err(RequestError::Lost);
        }
        while let Some((_, io)) = self.under_way.last_mut() {
            let done = io.await;
            let (write, _) = self.under_way.pop().expect("the one that has just ended");
            self.ended(write, done);
        }
        self.returned.drain(..).for_each(|(place, buffer)| keep(place, buffer));
        let listed = match self.refused.is_empty() {
            true => false,
            // Boxed, for it is rare, and the task of a round is moved.
            false => Box::pin(self.settle_refused()).await,
        };
        if self.finished.no_space {
            return Err(RequestError::NoSpace);
        }
        let does_without = self.lane.do_without(&self.view, &self.finished.failed).await;
        // A needed member whose log has no room is not to be believed, nor is parity.
        let broken = || listed && self.lane.with_view(|view| view.mode == WriteMode::Broken);
        if !does_without || broken() {
            return Err(RequestError::Lost);
        }
        let listed = self.take_off_lists().await || listed;
        match self.finished.failed.is_empty() {
            _ if listed => Ok(Landed::Listed),
            true => Ok(Landed::Whole),
            false => Ok(Landed::Without),
        }
    }

    /// Makes members take what they refused as a whole, as far as they do, and has the rest listed as
    /// bad. True when something was.
    async fn settle_refused(&mut self) -> bool {
        let mut any = false;
        for refused in std::mem::take(&mut self.refused) {
            let member = refused.member;
            match self.lane.write_in_pieces(refused).await {
                Ok(bad) if bad.is_empty() => {}
                Ok(bad) => {
                    any = true;
                    self.lane.list_refused(member, &bad).await;
                }
                Err(error) => self.finished.note(member, Err(error)),
            }
        }
        any
    }

    /// What was listed as bad and took the write is so no more, before anyone is told that it did: it
    /// may be the only place left to read it from. True when something stays listed all the same.
    async fn take_off_lists(&mut self) -> bool {
        let mut any = false;
        for (member, range) in std::mem::take(&mut self.listed) {
            if self.finished.failed.iter().all(|(failed, _)| *failed != member) {
                any |= !self.lane.take_off_list(member, range).await;
            }
        }
        any
    }
}

impl Write {
    /// Keeps the bytes of a write whose memory does not come back.
    #[inline]
    fn keep(&mut self, op: &IoOp) {
        if let IoOp::Write { from, .. } = op {
            self.bytes = match from {
                WriteFrom::Buffer(..) => Written::ComeBack,
                from => Written::Lent(from.again(&|_| unreachable!("no owned buffer"))),
            };
        }
    }
}

/// A buffer to write whole.
pub(super) fn whole_buffer(block: Buffer) -> WriteFrom {
    let whole = 0..block.len();
    WriteFrom::Buffer(block, whole)
}
