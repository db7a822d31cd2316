//! How long the sync task of a lane waits for a read under its claim.

use std::cell::Cell;
use std::future::pending;
use std::rc::Rc;
use std::time::Duration;

use crate::array::array_lane::{ArrayLane, MemberRead};
use crate::backend::{IoDone, IoError, IoErrorKind, Patience};
use crate::lane::first_of;
use crate::signal::Signal;
use crate::time::Time;

/// The longest wait. A drive may try for a minute until it gives up a sector, and the kernel asks it several times.
const LONGEST: Duration = Duration::from_secs(180);

/// Users wait for a claim as long as its reads do. So the patience is the first one again when no read has needed more
/// for this long.
const FORGOTTEN_AFTER: Duration = LONGEST;

/// Errno of a read that is not waited for any more.
const ETIMEDOUT: i32 = 110;

/// The patience of one task. It grows: a member that always answers, and always late, must not keep the task from its end.
#[derive(Default)]
pub(in super::super) struct SyncReads {
    doublings: Cell<u32>,
    /// When a read last took longer than the first patience.
    needed_at: Cell<Time>,
    is_told_to_end: Cell<bool>,
    told: Signal,
}

impl SyncReads {
    /// A read that begins now.
    pub(in super::super) fn begin(self: Rc<Self>, port: &ArrayLane) -> SyncRead {
        let (settings, began) = (&port.array.settings, port.lane.backend().now());
        if began.since(self.needed_at.get()) > FORGOTTEN_AFTER {
            self.doublings.set(0);
        }
        let doublings = self.doublings.get();
        let longest = settings.write_patience().at_least(LONGEST);
        let patience = settings.read_patience().doubled(doublings, longest);
        SyncRead { reads: self, began, doublings, patience }
    }

    pub(super) fn tell_to_end(&self) {
        self.is_told_to_end.set(true);
        self.told.notify();
    }

    pub(super) fn is_told_to_end(&self) -> bool {
        self.is_told_to_end.get()
    }

    /// Ends when the task is told to end.
    pub(super) async fn until_told(&self) {
        self.told.until(|| self.is_told_to_end().then_some(())).await;
    }
}

/// A read of a sync task, or several that began together.
pub(in super::super) struct SyncRead {
    reads: Rc<SyncReads>,
    began: Time,
    /// Of the patience, when it began.
    doublings: u32,
    patience: Patience,
}

impl SyncRead {
    pub(in super::super) fn patience(&self) -> Patience {
        self.patience
    }

    /// Its end. A task that is told to end gives it no more than the first patience.
    pub(in super::super) async fn end_of(
        &self,
        port: &ArrayLane,
        io: &mut MemberRead<'_>,
    ) -> IoDone {
        let first = port.array.settings.read_patience().deadline(self.began);
        let done = match self.doublings {
            0 => io.await,
            _ => first_of(io, self.given_up(port, first)).await,
        };
        let now = port.lane.backend().now();
        if first.is_some_and(|first| now >= first) {
            self.reads.needed_at.set(now);
        }
        if done.result.is_err_and(|error| error.kind == IoErrorKind::Deadline) {
            self.reads.doublings.set(self.reads.doublings.get().max(self.doublings + 1));
        }
        done
    }

    async fn given_up(&self, port: &ArrayLane, first: Option<Time>) -> IoDone {
        self.reads.until_told().await;
        match first {
            Some(first) => port.lane.sleep_until(first).await,
            None => pending().await,
        }
        let error = IoError { kind: IoErrorKind::Deadline, errno: ETIMEDOUT };
        IoDone { result: Err(error), buffer: None }
    }
}
