//! A flush of a device whose paths may have caches of their own: it goes over every path that owes one.

use std::rc::Rc;

use crate::backend::{IoDone, IoError, IoErrorKind, IoOp, MemberIo, Patience, Submitted, Ticket};
use crate::lane::Lane;
use crate::time::Time;

use super::super::kept::Kept;
use super::super::owed::{DeviceFlush, PathFlush};
use super::request::Request;
use super::{Meaning, PathLane, meaning};

/// A flush that failed since a cache was lost: EIO.
const LOST: IoError = IoError { kind: IoErrorKind::Flush, errno: 5 };

/// How long a flush of the device may take.
struct FlushTime {
    /// For its part over a path.
    patience: Patience,
    /// For all, as its lane has [lived](Lane::lived).
    deadline: Option<Time>,
    /// First flushes took some of it: a path that does not answer in the rest is not at fault.
    is_cut: bool,
}

impl FlushTime {
    fn cut_at(&mut self, now: Time) {
        if let Some(deadline) = self.deadline {
            self.patience = Patience::of(deadline.since(now));
            self.is_cut = true;
        }
    }
}

impl PathLane {
    /// What is kept of a request.
    pub(super) fn keep(&self, op: &mut IoOp, remote: bool, lane: &Lane) -> Kept {
        match op {
            IoOp::Flush if self.paths.loses_when_away => {
                Kept::Flush { covers: self.paths.answered() }
            }
            op => Kept::of(op, remote, lane),
        }
    }

    /// What a request comes to. Where the device may have lost writes that it has answered, it would read or change what
    /// is older: all requests fail until a flush has told that.
    pub(super) fn end_of(&self, kept: &Kept, result: Result<(), IoError>) -> Result<(), IoError> {
        let ends_otherwise =
            |error: &IoError| matches!(error.kind, IoErrorKind::Reserved | IoErrorKind::Cancelled);
        if result.as_ref().is_err_and(ends_otherwise) {
            return result;
        }
        let is_lost = match kept {
            Kept::Flush { .. } => self.paths.tell_loss(),
            _ => self.paths.has_untold_loss(),
        };
        if is_lost { Err(LOST) } else { result }
    }

    /// Starts a flush of the device.
    pub(super) fn submit_flush(
        self: &Rc<Self>,
        lane: &Rc<Lane>,
        ticket: Ticket,
        patience: Patience,
    ) -> Submitted {
        let deadline = patience.deadline(lane.lived());
        let mut time = FlushTime { patience, deadline, is_cut: false };
        let begun = match self.paths.any_first_flush() {
            // What comes of those is known before it is decided what else is to be flushed.
            true => None,
            false => match self.paths.begin_flush() {
                Some(flush) => Some(flush),
                None => return Submitted::Done(self.answer(Err(LOST), None)),
            },
        };
        let (this, lane) = (self.clone(), lane.clone());
        lane.clone().spawn(async move {
            let flush = match begun {
                Some(flush) => Some(flush),
                None if this.paths.first_flushes_end(&lane, deadline).await => {
                    time.cut_at(lane.lived());
                    this.paths.begin_flush()
                }
                None => None,
            };
            let result = match flush {
                Some(flush) => this.finish_flush(&lane, ticket, &flush, &time).await,
                None => Err(LOST),
            };
            let done: IoDone = this.answer(result, None);
            lane.complete(ticket, done);
        });
        Submitted::Pending
    }

    async fn finish_flush(
        self: &Rc<Self>,
        lane: &Rc<Lane>,
        ticket: Ticket,
        flush: &DeviceFlush,
        time: &FlushTime,
    ) -> Result<(), IoError> {
        let result = match flush.parts.is_empty() {
            // Only an earlier process may have written something: one path is asked.
            true => {
                let request = Request::new(ticket, time.deadline, Kept::FLUSH, None);
                let (request, result) = self.carry_out(lane, request).await;
                request.failed_flush.map_or(result, Err)
            }
            false => self.flush_all(lane, flush, time).await,
        };
        let no_other = self.paths.first_flushes_end(lane, time.deadline).await;
        let kept_all = self.paths.end_flush(flush) && no_other;
        result.and(if kept_all { Ok(()) } else { Err(LOST) })
    }

    /// Flushes every path that owes it, all at once. What did not end well has failed: over another path
    /// there is nothing left to flush.
    async fn flush_all(
        &self,
        lane: &Rc<Lane>,
        flush: &DeviceFlush,
        time: &FlushTime,
    ) -> Result<(), IoError> {
        let start = |part: &PathFlush| {
            let patience = self.patience(part.remote, true, &IoOp::Flush, time.patience);
            lane.io(MemberIo { member: part.member, op: IoOp::Flush, patience })
        };
        let under_way: Vec<_> = flush.parts.iter().map(start).collect();
        let mut result = Ok(());
        for (part, io) in flush.parts.iter().zip(under_way) {
            match io.await.result {
                Ok(()) => self.paths.flushed(part),
                Err(error) => {
                    let is_blamed = !time.is_cut || error.kind != IoErrorKind::Deadline;
                    result = Err(self.flush_failed(lane, part, error, is_blamed));
                }
            }
        }
        result
    }

    /// Learns from the error of a path's flush. Gives what the device's flush says.
    fn flush_failed(
        &self,
        lane: &Lane,
        part: &PathFlush,
        error: IoError,
        is_blamed: bool,
    ) -> IoError {
        if is_blamed && matches!(meaning(error, &Kept::FLUSH), Meaning::OfThePath) {
            self.paths.fail_with(part.path, part.member, error, lane.backend().now());
        }
        self.paths.not_flushed(part);
        match error.kind {
            IoErrorKind::Reserved => error,
            _ => IoError { kind: IoErrorKind::Flush, errno: error.errno },
        }
    }
}
