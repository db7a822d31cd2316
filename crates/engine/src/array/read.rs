//! The path of a read.
//!
//! A read whose bytes lie together on one healthy member goes straight to that member, without a
//! task, a claim or a lock: [`ArrayLane::read_direct`]. Everything else is a task: [`ArrayLane::read`]
//! starts the direct parts together, and what cannot be read directly is read under a claim.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use smallvec::{SmallVec, smallvec};

use crate::backend::{IoDone, IoError, IoOp, MemberId, MemberIo};
use crate::balance::Started;
use crate::geometry::{Geometry, Piece, Slot};
use crate::lane::OpOwner;
use crate::memory::Sink;
use crate::request::{Queue, RequestError};

use super::array_lane::{
    ArrayLane, MemberRead, SECTOR_BYTES, byte_range, sink_part, whole_sectors,
};
use super::claims::{Columns, Mode};
use super::gather::RowShape;
use super::mend::Mended;
use super::plan::Place;
use super::reconstruct::ClaimedRow;
use super::unread::{Cause, Unread};
use super::view::{ArrayView, MemberView, WriteMode};

/// Direct reads in flight on one lane, by tag.
#[derive(Default)]
pub(super) struct DirectReads(RefCell<Table>);

#[derive(Default)]
struct Table {
    reads: Vec<Option<DirectRead>>,
    free: Vec<u64>,
}

struct DirectRead {
    queue: Rc<Queue>,
    tag: u64,
    sector: u64,
    into: Rc<dyn Sink>,
    slot: Slot,
    member: MemberId,
    /// Of the view that it began under.
    epoch: u64,
    /// Only of mirrors.
    measured: Option<Started>,
}

impl DirectReads {
    /// The tag that the next [`put`](Self::put) uses. A read that ends at once takes none.
    #[inline]
    fn next_tag(&self) -> u64 {
        let table = self.0.borrow();
        table.free.last().copied().unwrap_or(table.reads.len() as u64)
    }

    fn put(&self, tag: u64, read: DirectRead) {
        let mut table = self.0.borrow_mut();
        match table.free.pop() {
            Some(free) => {
                assert!(free == tag, "nothing was put since the tag was asked for");
                table.reads[tag as usize] = Some(read);
            }
            None => {
                assert!(table.reads.len() as u64 == tag, "as above");
                table.reads.push(Some(read));
            }
        }
    }

    fn take(&self, tag: u64) -> DirectRead {
        let mut table = self.0.borrow_mut();
        table.free.push(tag);
        table.reads[tag as usize].take().expect("a direct read ends once")
    }
}

/// A part of a request that lies together on one member.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// Sectors from the start of the request.
    pub(super) first: u64,
    pub(super) sectors: u64,
    pub(super) array_sector: u64,
}

/// A part under way; without an I/O where no healthy member holds it.
type UnderWay<'a> = (Part, Option<(Slot, MemberId, MemberRead<'a>)>);

/// Most reads that are not direct have one part, lost.
type AllUnderWay<'a> = SmallVec<[UnderWay<'a>; 1]>;

/// Where a direct read goes: the slot, its member, and the sector of the device.
type DirectPlace = (Slot, MemberId, u64);

/// What the claimed path knows about a direct read that failed.
pub(super) type Failed = Option<FailedRead>;

/// A read of a member that failed, and that the array was told of.
#[derive(Clone, Copy)]
pub(super) struct FailedRead {
    slot: Slot,
    member: MemberId,
    error: IoError,
    cause: Cause,
}

impl ArrayLane {
    /// Starts a read without a task, if one healthy member holds all of it. False: not started.
    pub(super) fn read_direct(
        self: &Rc<Self>,
        queue: &Rc<Queue>,
        tag: u64,
        sector: u64,
        into: &Rc<dyn Sink>,
    ) -> bool {
        let Ok(sectors @ 1..) = whole_sectors(into.len()) else { return false };
        let found = self.with_view(|view| {
            if view.mode == WriteMode::Stopped {
                return None;
            }
            view.check_range(sector, sectors).ok()?;
            if matches!(*view.geometry, Geometry::Raid1(_) | Geometry::Raid10(_)) {
                return Some(Err(self.choose_direct(view, sector, sectors)?));
            }
            let (piece, member) = direct(view, sector, sectors)?;
            Some(Ok((piece.slot, member.id, member.data_offset + piece.member_sector)))
        });
        match found {
            None => return false,
            Some(Ok(place)) => {
                self.start_direct((queue, tag), (sector, sectors), into, place, None)
            }
            Some(Err((place, measured))) => {
                self.start_direct((queue, tag), (sector, sectors), into, place, Some(measured));
            }
        }
        true
    }

    /// The copy to read a range from, all of it, which is being read from now on.
    #[inline(never)]
    fn choose_direct(
        &self,
        view: &ArrayView,
        sector: u64,
        sectors: u64,
    ) -> Option<(DirectPlace, Started)> {
        let (piece, member) = self.choose_whole(view, sector, sectors)?;
        let place = (piece.slot, member.id, member.data_offset + piece.member_sector);
        Some((place, self.begin_copy(view, &piece, member)))
    }

    #[inline(always)]
    fn start_direct(
        self: &Rc<Self>,
        (queue, tag): (&Rc<Queue>, u64),
        (sector, sectors): (u64, u64),
        into: &Rc<dyn Sink>,
        (slot, member, sector_there): DirectPlace,
        measured: Option<Started>,
    ) {
        let op = IoOp::Read { sector: sector_there, into: sink_part(into, 0, sectors) };
        let io = MemberIo { member, op, patience: self.array.settings.read_patience() };
        let own_tag = self.direct_reads.next_tag();
        let owner: Rc<dyn OpOwner> = self.clone();
        let done = self.lane.io_direct(io, &owner, own_tag);
        match done {
            Some(IoDone { result: Ok(()), .. }) if self.counts_at_once() => {
                if let Some(measured) = measured {
                    self.end_copy(slot, measured, true);
                }
                queue.end(tag, Ok(()));
            }
            done => {
                let (queue, into) = (queue.clone(), into.clone());
                let epoch = self.with_view(|view| view.epoch);
                let read = DirectRead { queue, tag, sector, into, slot, member, epoch, measured };
                self.direct_reads.put(own_tag, read);
                if let Some(done) = done {
                    self.end_direct_read(own_tag, done);
                }
            }
        }
    }

    /// Whether what is read without a wait counts, whatever member gives it.
    #[inline]
    fn counts_at_once(&self) -> bool {
        !self.array.flushes.any_distrusted() && self.counts_under(self.with_view(|view| view.epoch))
    }

    /// Takes the end of a direct read. One that failed starts over under a claim.
    pub(super) fn end_direct_read(self: &Rc<Self>, own_tag: u64, done: IoDone) {
        let read = self.direct_reads.take(own_tag);
        let done = self.as_it_counts(read.member, done);
        if let Some(measured) = read.measured {
            self.end_copy(read.slot, measured, done.result.is_ok());
        }
        let error = match done.result {
            Ok(()) if self.counts_under(read.epoch) => return read.queue.end(read.tag, Ok(())),
            result => result.err(),
        };
        let this = self.clone();
        self.lane.spawn(async move {
            let Some(error) = error else {
                return read.queue.end(read.tag, this.read(read.sector, &read.into).await);
            };
            let sectors = (read.into.len() / SECTOR_BYTES) as u64;
            let part = Part { first: 0, sectors, array_sector: read.sector };
            let failed = Cell::new(this.failed_read(read.slot, read.member, error));
            let result =
                this.read_until_it_counts(|| this.read_claimed(&part, &read.into, failed.take()));
            read.queue.end(read.tag, result.await);
        });
    }

    /// Reads any range.
    pub(super) async fn read(&self, sector: u64, into: &Rc<dyn Sink>) -> Result<(), RequestError> {
        let sectors = whole_sectors(into.len())?;
        self.check_range(sector, sectors)?;
        self.read_until_it_counts(|| self.read_parts_of(sector, sectors, into)).await
    }

    /// Reads, and reads all of it again where a flush has told of a loss, say, before the last part was read: the first one
    /// may be from before an answered write.
    async fn read_until_it_counts<R>(&self, read: impl Fn() -> R) -> Result<(), RequestError>
    where
        R: Future<Output = Result<(), RequestError>>,
    {
        loop {
            let view = self.view_that_counts().await;
            let result = read().await;
            let counts = match result {
                Ok(()) => self.counts_under(view.epoch),
                Err(RequestError::Lost) => {
                    !self.distrusted_go().await && self.counts_under(view.epoch)
                }
                Err(_) => true,
            };
            if counts {
                return result;
            }
        }
    }

    async fn read_parts_of(
        &self,
        sector: u64,
        sectors: u64,
        into: &Rc<dyn Sink>,
    ) -> Result<(), RequestError> {
        if self.with_view(|view| matches!(*view.geometry, Geometry::Raid1(_) | Geometry::Raid10(_)))
        {
            return self.read_mirrored(sector, sectors, into).await;
        }
        let mut started = AllUnderWay::new();
        let mut first = 0;
        while first < sectors {
            let view = self.view();
            let found = nearest(&view, sector + first, sectors - first);
            let part = Part { first, sectors: found.sectors, array_sector: sector + first };
            first += part.sectors;
            let io = direct(&view, part.array_sector, part.sectors).map(|(piece, member)| {
                let into = sink_part(into, part.first, part.sectors);
                let io = self.read_member(member, piece.member_sector, into);
                (piece.slot, member.id, io)
            });
            started.push((part, io));
        }
        self.finish_reads(started, into).await
    }

    async fn finish_reads(
        &self,
        mut started: AllUnderWay<'_>,
        into: &Rc<dyn Sink>,
    ) -> Result<(), RequestError> {
        let mut hard: SmallVec<[_; 1]> = SmallVec::new();
        // None waits for another one: what a member has answered counts as known of it until it is taken.
        poll_fn(|context| {
            started.retain(|(part, io)| {
                let failed = match io {
                    None => None,
                    Some((slot, member, io)) => match Pin::new(io).poll(context) {
                        Poll::Pending => return true,
                        Poll::Ready(IoDone { result: Ok(()), .. }) => return false,
                        Poll::Ready(IoDone { result: Err(error), .. }) => {
                            self.failed_read(*slot, *member, error)
                        }
                    },
                };
                hard.push((*part, failed));
                false
            });
            if started.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        for (part, failed) in hard {
            self.read_claimed(&part, into, failed).await?;
        }
        Ok(())
    }

    /// Tells that a member did not do a read, in the moment in which that is known: later it may answer again. None where
    /// nothing could be done without it.
    pub(super) fn failed_read(&self, slot: Slot, member: MemberId, error: IoError) -> Failed {
        let redundant = self.with_view(|view| view.geometry.max_failures() > 0);
        let cause = redundant.then(|| self.report_read(member, error))?;
        Some(FailedRead { slot, member, error, cause })
    }

    /// Reads a part that no healthy member gave: under a claim, from what is left.
    pub(super) async fn read_claimed(
        &self,
        part: &Part,
        into: &Rc<dyn Sink>,
        failed: Failed,
    ) -> Result<(), RequestError> {
        // A medium error is mended in passing, which writes: nobody else may touch the row.
        let mend = failed.is_some_and(|read| read.cause == Cause::Unreadable);
        let mode = if mend { Mode::Exclusive } else { Mode::Shared };
        // The view is kept over waits for the geometry alone, which never changes.
        let view = self.view();
        let out = byte_range(part.first, part.sectors).start;
        let (sector, sectors) = (part.array_sector, part.sectors);
        match &*view.geometry {
            Geometry::Linear(_) | Geometry::Raid0(_) => Err(RequestError::Lost),
            Geometry::Raid1(_) | Geometry::Raid10(_) => {
                let mode = match failed {
                    Some(read) if mend && self.fails_fast(read.slot, sector, sectors) => {
                        self.array.mailbox.member_failed_fast(read.member, read.error);
                        Mode::Shared
                    }
                    _ => mode,
                };
                let suspect = failed.map(|read| (read.slot, read.cause));
                self.read_copy(sector, sectors, into, out, mode, suspect).await
            }
            Geometry::Parity(map) => {
                let at = map.split(part.array_sector);
                let columns = at.offset_sectors..at.offset_sectors + part.sectors as u32;
                let row = map.row(at.row);
                let units = RowShape::new(map, view.unit_sectors).units(&columns);
                let range = row.member_sectors(&columns);
                let (claim, mode) = self.claim_to_read(at.row, units, mode, &range).await;
                let claimed = ClaimedRow { map, row: &row, claim: &claim };
                let place = usize::from(at.data_index);
                let failed = failed.map(|read| (read.member, read.cause));
                self.read_row((&claimed, mode), columns, place, failed, (into, out)).await
            }
        }
    }

    /// Reads some columns of a place that a member did not give, for the cause that is known, under a
    /// claim. Halves of what is lacking in part are read by themselves: a block that its member has comes
    /// from there, and what cannot be computed as a whole may be in parts.
    async fn read_row(
        &self,
        (row, mode): (&ClaimedRow<'_>, Mode),
        columns: Columns,
        place: Place,
        failed: Option<(MemberId, Cause)>,
        (into, out): (&Rc<dyn Sink>, usize),
    ) -> Result<(), RequestError> {
        let block = self.with_view(|view| view.block_sectors);
        let mut left: SmallVec<[Columns; 1]> = smallvec![columns.clone()];
        let (mut mended, mut result) = (Mended::default(), Ok(()));
        while let Some(part) = left.pop() {
            let at = out + (part.start - columns.start) as usize * SECTOR_BYTES;
            let half = ((part.end - part.start) / 2).next_multiple_of(block);
            let has_halves = half > 0 && half < part.end - part.start;
            let sectors = row.sectors(&part);
            let has_some = |member: &MemberView| member.has_some_of(&sectors);
            let in_part = |view: &ArrayView| view.member(row.slot(place)).is_some_and(has_some);
            let mut unread = Unread::default();
            // What could not be read is tried again under the claim.
            let failed = failed.filter(|(_, cause)| *cause != Cause::Unreadable);
            failed.inspect(|(member, cause)| unread.insert(place, *member, *cause));
            let read = match mode {
                _ if has_halves && self.with_view(in_part) => Err(RequestError::Lost),
                Mode::Exclusive => {
                    let block = self.read_and_mend(row, &part, place, unread, &mut mended).await;
                    block.map(|block| {
                        self.put(into, at, &block);
                        self.recycle(Some(block));
                    })
                }
                Mode::Shared => self.give_block(row, &part, place, unread, (into, at)).await,
            };
            match read {
                Err(RequestError::Lost) if has_halves => {
                    let middle = part.start + half;
                    left.extend([middle..part.end, part.start..middle]);
                }
                Err(error) => {
                    result = Err(error);
                    break;
                }
                Ok(()) => {}
            }
        }
        self.count_mended(mended);
        result
    }
}

/// The part at `sector` that lies together on one member, at most `sectors` long.
fn nearest(view: &ArrayView, sector: u64, sectors: u64) -> Piece {
    let piece = view.geometry.locate(sector);
    Piece { sectors: piece.sectors.min(sectors), ..piece }
}

/// The member of a level with one place for each block, if it may be read for the whole range.
#[inline]
fn direct(view: &ArrayView, sector: u64, sectors: u64) -> Option<(Piece, &MemberView)> {
    let piece = match &*view.geometry {
        Geometry::Parity(map) => map.locate(sector),
        geometry => geometry.locate(sector),
    };
    if piece.sectors < sectors {
        return None;
    }
    let member = view.reader(piece.slot, piece.member_sector, sectors)?;
    Some((piece, member))
}
