//! One member, served as it is: a multipath device that stands alone.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use mdspace_engine::backend::{
    IoDone, IoErrorKind, IoOp, MemberId, MemberInfo, MemberIo, Patience, ReadInto, WriteFrom,
};
use mdspace_engine::lane::{Lane, LaneId, OpOwner};
use mdspace_engine::request::{Queue, Request, RequestError};
use mdspace_io::{LaneIo, Lanes};

use crate::flushes::{DurableWrite, Flushes};
use crate::pieces::{PIECE_SECTORS, pieces};
use crate::tags::Tags;
use crate::volume::{Volume, VolumePart};

/// An open member on all lanes.
#[derive(Clone, Debug)]
pub struct Device {
    /// Where it is served.
    pub lanes: Arc<Lanes>,
    /// The member.
    pub member: MemberId,
    /// What it can do.
    pub info: MemberInfo,
    /// Those of all lanes.
    pub flushes: Flushes,
}

/// An open member on one lane.
pub struct DevicePart {
    lane: Rc<Lane>,
    member: MemberId,
    info: MemberInfo,
    flushes: Flushes,
    /// Requests under way, by tag of their I/O.
    under_way: RefCell<Tags<UnderWay>>,
}

/// Whose a request is, and what it is to them.
struct UnderWay {
    queue: Rc<Queue>,
    tag: u64,
    durable: Option<DurableWrite>,
}

impl Volume for Device {
    type Part = DevicePart;

    fn lane_count(&self) -> usize {
        self.lanes.count()
    }

    fn run_on(
        &self,
        lane: LaneId,
        setup: impl FnOnce(&Rc<DevicePart>, &Rc<Lane>, &LaneIo) + Send + 'static,
    ) {
        let (member, info, flushes) = (self.member, self.info.clone(), self.flushes.clone());
        self.lanes.run_on(lane, move |lane, io| {
            let under_way = RefCell::default();
            let part = DevicePart { lane: lane.clone(), member, info, flushes, under_way };
            setup(&Rc::new(part), lane, io);
        });
    }
}

impl VolumePart for DevicePart {
    fn submit(self: &Rc<Self>, queue: &Rc<Queue>, tag: u64, request: Request) {
        queue.begin();
        let op = match self.operation(request) {
            Ok(Some(IoOp::Flush)) => return self.flush(queue, tag),
            Ok(Some(IoOp::Discard { sector, sectors })) if sectors > PIECE_SECTORS => {
                let piece = |sector, sectors| IoOp::Discard { sector, sectors };
                return self.in_pieces((queue, tag), (sector, sectors), piece, false);
            }
            Ok(Some(IoOp::WriteZeroes { sector, sectors, fua })) if sectors > PIECE_SECTORS => {
                let piece = |sector, sectors| IoOp::WriteZeroes { sector, sectors, fua: false };
                return self.in_pieces((queue, tag), (sector, sectors), piece, fua);
            }
            Ok(Some(op)) => op,
            Ok(None) => return queue.end(tag, Ok(())),
            Err(error) => return queue.end(tag, Err(error)),
        };
        let owner: Rc<dyn OpOwner> = self.clone();
        let durable = is_durable(&op).then(|| self.flushes.begin_write());
        let io = MemberIo { member: self.member, op, patience: Patience::FOREVER };
        let under_way = UnderWay { queue: queue.clone(), tag, durable };
        let slot = self.under_way.borrow_mut().add(under_way);
        if let Some(done) = self.lane.io_direct(io, &owner, slot) {
            self.end(slot, &done);
        }
    }

    fn discards(&self) -> bool {
        self.info.discard_zeroes
    }
}

impl OpOwner for DevicePart {
    fn done(self: Rc<Self>, slot: u64, done: IoDone) {
        self.end(slot, &done);
    }
}

impl DevicePart {
    fn flush(self: &Rc<Self>, queue: &Rc<Queue>, tag: u64) {
        let (this, queue) = (self.clone(), queue.clone());
        self.lane.spawn(async move { queue.end(tag, this.flushed().await) });
    }

    async fn flushed(&self) -> Result<(), RequestError> {
        self.flushes.flush(async || self.io(IoOp::Flush).await).await
    }

    async fn io(&self, op: IoOp) -> Result<(), RequestError> {
        let io = MemberIo { member: self.member, op, patience: Patience::FOREVER };
        result_of(&self.lane.io(io).await)
    }

    /// Discards or zeroes a long range, one piece after the other: a path has as long for one as for any other I/O, and may
    /// have to write it. What is to be durable is flushed at the end.
    fn in_pieces(
        self: &Rc<Self>,
        (queue, tag): (&Rc<Queue>, u64),
        (sector, sectors): (u64, u64),
        piece: impl Fn(u64, u64) -> IoOp + 'static,
        is_durable: bool,
    ) {
        let (this, queue) = (self.clone(), queue.clone());
        let all = async move || {
            for part in pieces(sector..sector + sectors, 1) {
                this.io(piece(part.start, part.end - part.start)).await?;
            }
            if is_durable { this.flushed().await } else { Ok(()) }
        };
        self.lane.spawn(async move { queue.end(tag, all().await) });
    }

    /// What is to be done; nothing where a discard cannot be.
    fn operation(&self, request: Request) -> Result<Option<IoOp>, RequestError> {
        let (sector, bytes, op) = match request {
            Request::Flush => return Ok(Some(IoOp::Flush)),
            Request::Read { sector, into } => {
                let bytes = into.len();
                (sector, bytes as u64, IoOp::Read { sector, into: ReadInto::Sink(into, 0..bytes) })
            }
            Request::Write { sector, from, fua } => {
                let bytes = from.len();
                let from = WriteFrom::Source(from, 0..bytes);
                (sector, bytes as u64, IoOp::Write { sector, from, fua })
            }
            Request::Discard { .. } if !self.info.discard_zeroes => return Ok(None),
            Request::Discard { sector, sectors } => {
                (sector, sectors.saturating_mul(512), IoOp::Discard { sector, sectors })
            }
            Request::Punch { sector, sectors } if self.info.discard_zeroes => {
                (sector, sectors.saturating_mul(512), IoOp::Discard { sector, sectors })
            }
            Request::Punch { sector, sectors } => {
                let op = IoOp::WriteZeroes { sector, sectors, fua: false };
                (sector, sectors.saturating_mul(512), op)
            }
            Request::WriteZeroes { sector, sectors, fua } => {
                let op = IoOp::WriteZeroes { sector, sectors, fua };
                (sector, sectors.saturating_mul(512), op)
            }
        };
        let block = u64::from(self.info.logical_block_bytes);
        let end = sector.checked_mul(512).and_then(|start| start.checked_add(bytes));
        match end {
            Some(end) if end <= self.info.sectors * 512 => {}
            _ => return Err(RequestError::OutOfRange),
        }
        match (sector * 512).is_multiple_of(block) && bytes.is_multiple_of(block) {
            true => Ok(Some(op)),
            false => Err(RequestError::Unaligned),
        }
    }

    fn end(&self, slot: u64, done: &IoDone) {
        let UnderWay { queue, tag, durable } = self.under_way.borrow_mut().remove(slot);
        // Before its client hears of it: a flush that this one sends then fails.
        durable.into_iter().for_each(|write| write.end(done.result));
        queue.end(tag, result_of(done));
    }
}

fn is_durable(op: &IoOp) -> bool {
    matches!(op, IoOp::Write { fua: true, .. } | IoOp::WriteZeroes { fua: true, .. })
}

/// The result that the client is told.
fn result_of(done: &IoDone) -> Result<(), RequestError> {
    done.result.map_err(|error| match error.kind {
        IoErrorKind::NoSpace => RequestError::NoSpace,
        IoErrorKind::Medium
        | IoErrorKind::Gone
        | IoErrorKind::Flush
        | IoErrorKind::Reserved
        | IoErrorKind::Deadline
        | IoErrorKind::Unsupported
        | IoErrorKind::Cancelled
        | IoErrorKind::Other => RequestError::Lost,
    })
}

#[cfg(test)]
mod tests;
