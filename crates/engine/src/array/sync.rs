//! The sync task: resync, recovery, check and repair over windows of the array.
//!
//! It walks what is to be done in order, several windows at once, each under an ordinary claim, so
//! that a user's request waits for one window at most. It decides nothing: it reports to the
//! controller how far everything before is done, and how it ended.

mod mirror_compare;
mod mirror_window;
mod row_compare;
mod row_window;
mod suspect;
mod window;
mod writes;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use crate::geometry::Geometry;
use crate::ranges::Ranges;
use crate::status::{Mismatches, SyncEnd};

use super::array_lane::ArrayLane;

pub(super) use window::SyncKind;
use window::{Found, WindowError};

/// Windows in flight at once.
const WINDOWS: usize = 4;

/// Most sectors of one window on one member: 128 KiB, so that a row of it stays in a core's cache.
const WINDOW_SECTORS: u64 = 256;

/// Windows between two reports to the controller.
const REPORT_EVERY: u64 = 64;

/// Between two looks whether a late member answers again.
const LATE_MEMBER_AGAIN: Duration = Duration::from_millis(50);

/// The whole blocks around `todo`: members take no others. What lies behind the last whole block
/// before `end` no request can reach.
fn whole_blocks(port: &ArrayLane, todo: &Ranges, end: u64) -> Ranges {
    let block = port.with_view(|view| u64::from(view.block_sectors));
    let end = end / block * block;
    let grown =
        |range: Range<u64>| range.start / block * block..range.end.next_multiple_of(block).min(end);
    todo.iter().map(grown).collect()
}

/// One run over a set of ranges.
pub(super) struct SyncTask {
    kind: SyncKind,
    todo: RefCell<Ranges>,
    /// Where the next window begins.
    cursor: Cell<u64>,
    end: u64,
    in_flight: RefCell<BTreeSet<u64>>,
    workers: Cell<usize>,
    windows: Cell<u64>,
    cancelled: Cell<bool>,
    failed: Cell<bool>,
    /// Windows that could not be done and were left for another time.
    skipped: RefCell<Ranges>,
    no_space: Cell<bool>,
    mismatch_sectors: Cell<u64>,
    mismatches: RefCell<Mismatches>,
}

impl SyncTask {
    /// Starts a task over `todo`, on the lane of `port`. `end` is where the whole space ends.
    pub(super) fn start(port: &Rc<ArrayLane>, kind: SyncKind, todo: Ranges, end: u64) -> Rc<Self> {
        let task = Rc::new(Self {
            kind,
            cursor: Cell::new(0),
            end,
            todo: RefCell::new(whole_blocks(port, &todo, end)),
            in_flight: RefCell::default(),
            workers: Cell::new(WINDOWS),
            windows: Cell::new(0),
            cancelled: Cell::new(false),
            failed: Cell::new(false),
            skipped: RefCell::default(),
            no_space: Cell::new(false),
            mismatch_sectors: Cell::new(0),
            mismatches: RefCell::default(),
        });
        port.set_sync_doublings(0);
        for _ in 0..WINDOWS {
            let (task, port) = (task.clone(), port.clone());
            port.lane.clone().spawn(async move { task.work(&port).await });
        }
        task
    }

    pub(super) fn kind(&self) -> &SyncKind {
        &self.kind
    }

    /// Everything below this sector is done or needed nothing.
    pub(super) fn done(&self) -> u64 {
        let next = self.todo.borrow().next_from(self.cursor.get());
        let next = next.map_or(self.end, |range| range.start);
        self.in_flight.borrow().first().map_or(next, |&first| first.min(next))
    }

    /// What could not be done. Lies below [`done`](Self::done), or is where a recovery ended.
    pub(super) fn skipped(&self) -> Ranges {
        self.skipped.borrow().clone()
    }

    /// How it ended; `None` while any window is under way.
    pub(super) fn ended(&self) -> Option<SyncEnd> {
        match () {
            () if self.workers.get() > 0 => None,
            // What failed may have done so over the very change for which it was told to end.
            () if self.cancelled.get() => Some(SyncEnd::Interrupted),
            () if self.failed.get() || !self.skipped.borrow().is_empty() => {
                Some(SyncEnd::Incomplete)
            }
            () if self.no_space.get() => Some(SyncEnd::NoSpace),
            () => Some(SyncEnd::Complete),
        }
    }

    /// Sectors of redundancy found wrong so far.
    pub(super) fn mismatch_sectors(&self) -> u64 {
        self.mismatch_sectors.get()
    }

    /// Where they are, and who lies.
    pub(super) fn mismatches(&self) -> Mismatches {
        self.mismatches.borrow().clone()
    }

    /// Asks it to end after the windows that are under way.
    pub(super) fn cancel(&self) {
        self.cancelled.set(true);
    }

    fn next_window(&self, geometry: &Geometry) -> Option<Range<u64>> {
        if self.cancelled.get() || self.failed.get() || self.no_space.get() {
            return None;
        }
        let range = self.todo.borrow().next_from(self.cursor.get())?;
        // A window lies in one chunk: one row, one claim.
        let border = match geometry {
            Geometry::Parity(map) => u64::from(map.chunk_sectors()).min(WINDOW_SECTORS),
            Geometry::Raid10(map) => u64::from(map.chunk_sectors()).min(WINDOW_SECTORS),
            _ => WINDOW_SECTORS,
        };
        let end = range.end.min((range.start / border + 1) * border);
        self.cursor.set(end);
        Some(range.start..end)
    }

    /// Does one window. A late member is waited for without a claim, until the task is told to end.
    async fn run(
        &self,
        port: &ArrayLane,
        geometry: &Geometry,
        window: &Range<u64>,
    ) -> Result<Found, WindowError> {
        loop {
            let doublings = port.sync_doublings();
            let given_up = port.sync_read_patience().deadline(port.lane.backend().now());
            let result = window::run(port, geometry, &self.kind, window).await;
            if !matches!(result, Err(WindowError::Late)) || self.cancelled.get() {
                return result;
            }
            let waited = given_up.is_some_and(|when| port.lane.backend().now() >= when);
            if waited && port.sync_doublings() == doublings {
                port.set_sync_doublings(doublings + 1);
            }
            port.lane.sleep_until(port.lane.backend().now() + LATE_MEMBER_AGAIN).await;
        }
    }

    async fn work(&self, port: &ArrayLane) {
        let geometry = port.with_view(|view| view.geometry.clone());
        while let Some(window) = self.next_window(&geometry) {
            self.in_flight.borrow_mut().insert(window.start);
            match self.run(port, &geometry, &window).await {
                Ok(found) => {
                    self.in_flight.borrow_mut().remove(&window.start);
                    self.mismatch_sectors.set(self.mismatch_sectors.get() + found.sectors);
                    let mut mismatches = self.mismatches.borrow_mut();
                    found.places.into_iter().for_each(|place| mismatches.add(place));
                }
                Err(WindowError::Failed) if !matches!(self.kind, SyncKind::Recover(_)) => {
                    self.skipped.borrow_mut().insert(window.clone());
                    self.in_flight.borrow_mut().remove(&window.start);
                }
                // It stays in flight: nothing from here on counts as done.
                Err(WindowError::Failed) => {
                    self.skipped.borrow_mut().insert(window);
                    self.failed.set(true);
                }
                // It is gone round: what is computed from good parity need not wait for it.
                Err(WindowError::Doubted) => {
                    self.in_flight.borrow_mut().remove(&window.start);
                    self.skipped.borrow_mut().insert(window);
                }
                Err(WindowError::NoSpace) => self.no_space.set(true),
                Err(WindowError::Unreadable) => unreachable!("gone round, or failed"),
                // It stays in flight, and all ends here: only who was told to end stops waiting.
                Err(WindowError::Late) => {}
            }
            self.windows.set(self.windows.get() + 1);
            if self.windows.get().is_multiple_of(REPORT_EVERY) {
                port.array.mailbox.sync_moved();
            }
            port.lane.pause().await;
        }
        self.workers.set(self.workers.get() - 1);
        if self.workers.get() == 0 {
            port.array.mailbox.sync_moved();
        }
    }
}
