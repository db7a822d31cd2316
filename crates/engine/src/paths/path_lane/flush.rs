//! A flush of a device whose paths may have caches of their own: it goes over every path that owes one.

use std::rc::Rc;

use crate::backend::{IoDone, IoError, IoErrorKind, IoOp, MemberIo, Patience, Submitted, Ticket};
use crate::lane::Lane;

use super::super::kept::Kept;
use super::super::owed::{DeviceFlush, PathFlush};
use super::request::Request;
use super::{Meaning, PathLane, lived, meaning};

/// Errno of a flush that failed since a cache was lost.
const EIO: i32 = 5;

impl PathLane {
    /// Starts a flush of the device.
    pub(super) fn submit_flush(
        self: &Rc<Self>,
        lane: &Rc<Lane>,
        ticket: Ticket,
        patience: Patience,
    ) -> Submitted {
        let lost = IoError { kind: IoErrorKind::Flush, errno: EIO };
        let Some(flush) = self.paths.begin_flush() else {
            return Submitted::Done(self.answer(Err(lost), None));
        };
        let (this, on_lane) = (self.clone(), lane.clone());
        let deadline = patience.deadline(lived(lane));
        if flush.parts.is_empty() && !self.paths.any_first_flush() {
            // Only an earlier process may have written something: one path is asked.
            let request = Request::new(ticket, deadline, Kept::Flush, None);
            lane.spawn(async move { this.serve(request).await });
            return Submitted::Pending;
        }
        lane.spawn(async move {
            let mut result = this.flush_all(&on_lane, &flush, patience).await;
            let no_other = this.paths.first_flushes_end(&on_lane, deadline).await;
            if !(this.paths.end_flush(&flush) && no_other) && result.is_ok() {
                result = Err(lost);
            }
            let done: IoDone = this.answer(result, None);
            on_lane.complete(ticket, done);
        });
        Submitted::Pending
    }

    /// Flushes every path that owes it, all at once. What did not end well has failed: over another path
    /// there is nothing left to flush.
    async fn flush_all(
        &self,
        lane: &Rc<Lane>,
        flush: &DeviceFlush,
        patience: Patience,
    ) -> Result<(), IoError> {
        let start = |part: &PathFlush| {
            let patience = self.patience(part.remote, true, &IoOp::Flush, patience);
            lane.io(MemberIo { member: part.member, op: IoOp::Flush, patience })
        };
        let under_way: Vec<_> = flush.parts.iter().map(start).collect();
        let mut result = Ok(());
        for (part, io) in flush.parts.iter().zip(under_way) {
            match io.await.result {
                Ok(()) => self.paths.flushed(part),
                Err(error) => result = Err(self.flush_failed(lane, part, error)),
            }
        }
        result
    }

    /// Learns from the error of a path's flush. Gives what the device's flush says.
    fn flush_failed(&self, lane: &Lane, part: &PathFlush, error: IoError) -> IoError {
        if matches!(meaning(error, &Kept::Flush), Meaning::OfThePath) {
            let lost = matches!(error.kind, IoErrorKind::Gone);
            let (why, now) = (error.to_string(), lane.backend().now());
            self.paths.fail(part.path, Some(part.member), &why, lost, now);
        }
        self.paths.not_flushed(part);
        match error.kind {
            IoErrorKind::Reserved => error,
            _ => IoError { kind: IoErrorKind::Flush, errno: error.errno },
        }
    }
}
