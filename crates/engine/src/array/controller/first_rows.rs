//! The first rows of a first resync, which an array does before it is marked clean.
//!
//! A superblock with a resync offset of 0 says that the array was in use when it ended. All parity would be in doubt at the
//! next start. So a stop, and an order to refuse writes, first do one chunk of a resync that has done nothing yet.

use std::time::Duration;

use crate::geometry::Geometry;
use crate::time::Time;

use super::super::sync::SyncKind;
use super::super::view::WriteMode;
use super::Controller;
use super::progress::Readable;

/// How long an order waits for them.
const WITHIN: Duration = Duration::from_secs(10);

/// How far they are, for the order that waits.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum FirstRows {
    #[default]
    NotTried,
    /// The task that runs does them, and is told to end then.
    Running {
        until: Time,
    },
    Tried,
}

impl Controller {
    /// Begins them where they are needed, and were not tried for this order. Copies in doubt lose nothing, so mirrors need
    /// none. Not where writes wait for the order to end: the rows may wait for those writes.
    pub(super) async fn begin_first_rows(&mut self) -> bool {
        let is_needed = matches!(*self.geometry, Geometry::Parity(_))
            && matches!(self.mode, WriteMode::Clean | WriteMode::Open)
            && self.doubted.is_empty()
            && self.resync_readable() == Readable::NOTHING
            && self.sync.first_rows == FirstRows::NotTried;
        if !is_needed {
            return false;
        }
        if !self.flush_before_resync().await {
            self.array.mailbox.sync_moved();
            return true;
        }
        let first = self.geometry.chunk_sectors().unwrap_or_default();
        let todo = self.to_resync(first.min(self.array.sync_span.max()));
        let Some(todo) = todo.filter(|_| self.may_write()) else { return false };
        let until = self.lane.backend().now() + WITHIN;
        self.start(SyncKind::Resync, Vec::new(), todo);
        self.sync.first_rows = FirstRows::Running { until };
        true
    }

    /// Ends the sync task for an order, but for first rows as long as they have time.
    pub(super) fn end_sync_but_first_rows(&mut self) {
        match self.first_rows_end() {
            Some(until) if self.lane.backend().now() < until => {}
            _ => self.end_sync(),
        }
    }

    /// When first rows that are under way are told to end.
    pub(super) fn first_rows_end(&self) -> Option<Time> {
        match self.sync.first_rows {
            FirstRows::Running { until } => Some(until),
            FirstRows::NotTried | FirstRows::Tried => None,
        }
    }

    /// The sync task has ended. Says whether it did first rows.
    pub(super) fn first_rows_ended(&mut self) -> bool {
        let were_running = self.first_rows_end().is_some();
        if were_running {
            self.sync.first_rows = FirstRows::Tried;
        }
        were_running
    }

    /// The order that tried them is carried out, or was taken back.
    pub(super) fn forget_first_rows(&mut self) {
        if self.sync.first_rows == FirstRows::Tried {
            self.sync.first_rows = FirstRows::NotTried;
        }
    }
}
