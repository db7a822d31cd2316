//! The sync task: resync, recovery, check and repair over windows of the array.
//!
//! It walks what is to be done in order, several windows at once, each under an ordinary claim, so
//! that a user's request waits for one window at most. How many and how wide they are is a matter of
//! its [`pace`]. It decides nothing: it reports to the controller how far everything before is done,
//! and how it ended.

mod courtesy;
mod depth;
mod mirror_compare;
mod mirror_window;
mod pace;
mod reads;
mod replace_window;
mod row_compare;
mod row_window;
mod span;
mod suspect;
mod window;
mod writes;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use crate::geometry::Geometry;
use crate::lane::first_of;
use crate::ranges::Ranges;
use crate::status::{Mismatches, SyncEnd};
use crate::time::Time;

use super::array_lane::ArrayLane;

use pace::Pace;
pub(super) use reads::{SyncRead, SyncReads};
pub(crate) use span::SyncSpan;
pub(super) use window::SyncKind;
use window::{Found, WindowError};

/// Most windows between two reports to the controller.
const REPORT_EVERY: u64 = 64;

/// Reports of a task over all members, at least: many more than it is put on record.
const REPORTS_MIN: u64 = 64;

/// Between two looks whether a late member answers again.
const LATE_MEMBER_AGAIN: Duration = Duration::from_millis(50);

/// Between two looks whether a task that must wait may go on: what it waits for can be set anew.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The whole blocks around `todo`: members take no others. What lies behind the last whole block
/// before `end` no request can reach.
fn whole_blocks(port: &ArrayLane, todo: &Ranges, end: u64) -> Ranges {
    let block = port.with_view(|view| u64::from(view.block_sectors));
    let end = end / block * block;
    let grown =
        |range: Range<u64>| range.start / block * block..range.end.next_multiple_of(block).min(end);
    todo.iter().map(grown).collect()
}

/// What the task does next.
enum Next {
    /// This window.
    Window(Range<u64>),
    /// Nothing before `sync_max` is moved.
    Pause,
    /// Nothing more.
    End,
}

/// What a check or repair has found.
#[derive(Default)]
pub(super) struct FoundSoFar {
    /// Sectors of redundancy that were wrong.
    pub(super) mismatch_sectors: u64,
    /// Where they are, and who lies.
    pub(super) mismatches: Mismatches,
    /// What could not be done.
    skipped: Ranges,
}

/// One run over a set of ranges.
pub(super) struct SyncTask {
    kind: SyncKind,
    todo: RefCell<Ranges>,
    /// Where the next window begins.
    cursor: Cell<u64>,
    end: u64,
    /// By where they begin, where they end.
    in_flight: RefCell<BTreeMap<u64, u64>>,
    /// Windows that filled members, since the controller took note.
    copied: RefCell<Ranges>,
    /// Where a write failed while a window there was in flight: what the window copied may be older.
    distrusted: RefCell<Ranges>,
    workers: Cell<usize>,
    /// Windows, and their sectors, since the last report.
    unreported: Cell<(u64, u64)>,
    pace: RefCell<Pace>,
    reads: Rc<SyncReads>,
    failed: Cell<bool>,
    /// Windows that could not be done and were left for another time.
    skipped: RefCell<Ranges>,
    no_space: Cell<bool>,
    mismatch_sectors: Cell<u64>,
    mismatches: RefCell<Mismatches>,
}

impl SyncTask {
    /// Starts a task over `todo`, on the lane of `port`. `end` is where the whole space ends; `found` is what it
    /// found before it was interrupted.
    pub(super) fn start(
        port: &Rc<ArrayLane>,
        kind: SyncKind,
        todo: Ranges,
        end: u64,
        found: FoundSoFar,
    ) -> Rc<Self> {
        let task = Rc::new(Self {
            kind,
            cursor: Cell::new(0),
            end,
            todo: RefCell::new(whole_blocks(port, &todo, end)),
            in_flight: RefCell::default(),
            copied: RefCell::default(),
            distrusted: RefCell::default(),
            workers: Cell::new(0),
            unreported: Cell::default(),
            pace: RefCell::new(Pace::new(port.lane.backend().now())),
            reads: port.begin_sync_reads(),
            failed: Cell::new(false),
            skipped: RefCell::new(found.skipped),
            no_space: Cell::new(false),
            mismatch_sectors: Cell::new(found.mismatch_sectors),
            mismatches: RefCell::new(found.mismatches),
        });
        task.hire(port);
        task
    }

    pub(super) fn kind(&self) -> &SyncKind {
        &self.kind
    }

    /// Nothing from this sector on is done or being done.
    pub(super) fn begun(&self) -> u64 {
        self.cursor.get().max(self.done())
    }

    /// Everything below this sector is done or needed nothing.
    pub(super) fn done(&self) -> u64 {
        let next = self.todo.borrow().next_from(self.cursor.get());
        let next = next.map_or(self.end, |range| range.start);
        self.in_flight.borrow().keys().next().map_or(next, |&first| first.min(next))
    }

    /// What could not be done. Lies below [`done`](Self::done), or is where a recovery ended.
    pub(super) fn skipped(&self) -> Ranges {
        self.skipped.borrow().clone()
    }

    /// What is not done. Windows end in any order: some behind [`done`](Self::done) may be.
    pub(super) fn left(&self) -> Ranges {
        let mut left = self.todo.borrow().clone();
        left.remove(&(0..self.cursor.get()));
        self.in_flight.borrow().iter().for_each(|(&start, &end)| left.insert(start..end));
        left
    }

    /// What members were filled with since this was last asked.
    pub(super) fn take_copied(&self) -> Ranges {
        self.copied.take()
    }

    /// A write failed in these ranges: what windows in flight copy there does not count.
    pub(super) fn distrust(&self, ranges: &Ranges) {
        let mut distrusted = self.distrusted.borrow_mut();
        for (&start, &end) in self.in_flight.borrow().iter() {
            for range in ranges.iter() {
                distrusted.insert(range.start.max(start)..range.end.min(end).max(start));
            }
        }
    }

    /// A window filled members, but for what it skipped and what was distrusted meanwhile.
    fn note_copied(&self, window: &Range<u64>, skipped: &[Range<u64>]) {
        let mut copied = Ranges::of(window.clone());
        let mut distrusted = self.distrusted.borrow_mut();
        skipped.iter().for_each(|range| copied.remove(range));
        distrusted.iter().for_each(|range| copied.remove(&range));
        distrusted.remove(window);
        let mut all = self.copied.borrow_mut();
        copied.iter().for_each(|range| all.insert(range));
    }

    /// How it ended; `None` while any window is under way.
    pub(super) fn ended(&self) -> Option<SyncEnd> {
        match () {
            () if self.workers.get() > 0 => None,
            // What failed may have done so over the very change for which it was told to end.
            () if self.is_told_to_end() => Some(SyncEnd::Interrupted),
            // Before what was left out: where there is room again, all of it is tried again.
            () if self.no_space.get() => Some(SyncEnd::NoSpace),
            () if self.failed.get() || !self.skipped.borrow().is_empty() => {
                Some(SyncEnd::Incomplete)
            }
            () => Some(SyncEnd::Complete),
        }
    }

    /// What it has found so far.
    pub(super) fn found(&self) -> FoundSoFar {
        FoundSoFar {
            mismatch_sectors: self.mismatch_sectors.get(),
            mismatches: self.mismatches.borrow().clone(),
            skipped: self.skipped(),
        }
    }

    /// Speed over the last half a minute, in KiB/s of a member.
    pub(super) fn speed_kib_s(&self, now: Time) -> u64 {
        self.pace.borrow().speed_kib_s(now)
    }

    /// Asks it to end after the windows that are under way. What waits for members that are late ends at once.
    pub(super) fn cancel(&self) {
        self.reads.tell_to_end();
    }

    /// Whether somebody has asked it to.
    pub(super) fn is_told_to_end(&self) -> bool {
        self.reads.is_told_to_end()
    }

    fn is_over(&self) -> bool {
        let is_full = self.no_space.get() && self.kind.fills_members();
        self.is_told_to_end() || self.failed.get() || is_full
    }

    /// Takes on workers, one for each window that may be in flight.
    fn hire(self: &Rc<Self>, port: &Rc<ArrayLane>) {
        if self.is_over() {
            return;
        }
        let wanted = self.pace.borrow().flight(&port.array.settings).windows;
        while self.workers.get() < wanted {
            self.workers.set(self.workers.get() + 1);
            let (task, port) = (self.clone(), port.clone());
            port.lane.clone().spawn(async move { task.work(&port).await });
        }
    }

    fn next(&self, port: &ArrayLane, geometry: &Geometry) -> Next {
        let range = self.todo.borrow().next_from(self.cursor.get());
        let Some(range) = range.filter(|_| !self.is_over()) else { return Next::End };
        let bound = port.array.sync_span.max();
        if range.start >= bound {
            return Next::Pause;
        }
        let most = self.pace.borrow().flight(&port.array.settings).window_sectors;
        // A window lies in one chunk: one row, one claim.
        let border = geometry.chunk_sectors().map_or(most, |chunk| chunk.min(most));
        let end = range.end.min((range.start / border + 1) * border);
        Next::Window(range.start..end.min(bound))
    }

    /// Does `part` until no member is late in it, and what it has read still counts. Nothing is claimed between two
    /// tries, so that users do not wait for that member.
    async fn patiently(
        &self,
        port: &ArrayLane,
        part: impl AsyncFn() -> Result<Found, WindowError>,
    ) -> Result<Found, WindowError> {
        loop {
            let result = part().await;
            let is_again = matches!(result, Err(WindowError::Late | WindowError::Outdated));
            if !is_again || self.is_told_to_end() {
                return result;
            }
            self.sleep(port, LATE_MEMBER_AGAIN).await;
        }
    }

    /// Sleeps for so long, or until it is told to end.
    async fn sleep(&self, port: &ArrayLane, span: Duration) {
        let lane = &port.lane;
        let woken = lane.sleep_until(lane.backend().now() + span);
        first_of(woken, self.reads.until_told()).await;
    }

    /// Tells the controller how far it is, if it has not heard that. What waits at `sync_max` may keep something else from
    /// beginning.
    fn report_what_is_not_reported(&self, port: &ArrayLane) {
        if self.unreported.take() != (0, 0) {
            port.array.mailbox.sync_moved();
        }
    }

    async fn work(self: &Rc<Self>, port: &Rc<ArrayLane>) {
        let geometry = port.with_view(|view| view.geometry.clone());
        let settings = &port.array.settings;
        let now = || port.lane.backend().now();
        while self.workers.get() <= self.pace.borrow().flight(settings).windows {
            let wait = self.pace.borrow_mut().wait(now(), settings, &port.array.users);
            let window = match (self.next(port, &geometry), wait) {
                (Next::End, _) => break,
                (Next::Window(window), None) => window,
                (Next::Window(_), Some(wait)) => {
                    self.sleep(port, wait.min(LOOK_AGAIN)).await;
                    continue;
                }
                (Next::Pause, _) => {
                    self.report_what_is_not_reported(port);
                    self.sleep(port, LOOK_AGAIN).await;
                    continue;
                }
            };
            let (began, sectors) = (now(), window.end - window.start);
            self.cursor.set(window.end);
            self.in_flight.borrow_mut().insert(window.start, window.end);
            self.pace.borrow_mut().begins(sectors);
            let ended = window::run(port, &geometry, self, &window).await;
            self.note(window, ended);
            self.pace.borrow_mut().ended(now(), sectors, now().since(began), settings);
            self.hire(port);
            let (windows, before) = self.unreported.get();
            let unreported = (windows + 1, before + sectors);
            self.unreported.set(unreported);
            if unreported.0 == REPORT_EVERY || unreported.1 >= self.end / REPORTS_MIN {
                self.report_what_is_not_reported(port);
            }
            let yields = self.pace.borrow().yields(settings);
            match yields {
                // Whatever is ready goes first, over and over, and not just once.
                true => port.lane.next_turn().await,
                false => port.lane.pause().await,
            }
        }
        self.workers.set(self.workers.get() - 1);
        if self.workers.get() == 0 {
            port.array.mailbox.sync_moved();
        }
    }

    /// Takes the end of a window.
    fn note(&self, window: Range<u64>, ended: Result<Found, WindowError>) {
        match ended {
            Ok(found) => {
                if self.kind.fills_members() {
                    self.note_copied(&window, &found.skipped);
                }
                let mut skipped = self.skipped.borrow_mut();
                found.skipped.into_iter().for_each(|range| skipped.insert(range));
                self.in_flight.borrow_mut().remove(&window.start);
                // It stays in flight, as a window that is not done at all.
                self.in_flight.borrow_mut().extend(found.left.map(|left| (left.start, left.end)));
                self.mismatch_sectors.set(self.mismatch_sectors.get() + found.sectors);
                let mut mismatches = self.mismatches.borrow_mut();
                found.places.into_iter().for_each(|place| mismatches.add(place));
            }
            Err(WindowError::Failed) if !self.kind.fills_members() => {
                self.in_flight.borrow_mut().remove(&window.start);
                self.skipped.borrow_mut().insert(window);
            }
            // It stays in flight: nothing from here on counts as done.
            Err(WindowError::Failed) => {
                self.skipped.borrow_mut().insert(window);
                self.failed.set(true);
            }
            Err(WindowError::NoSpace) => {
                self.no_space.set(true);
                // Where there is space it goes on.
                if !self.kind.fills_members() {
                    self.in_flight.borrow_mut().remove(&window.start);
                    self.skipped.borrow_mut().insert(window);
                }
            }
            Err(WindowError::Unreadable | WindowError::Doubted) => unreachable!("gone round"),
            // It stays in flight, and all ends here: only who was told to end stops waiting.
            Err(WindowError::Late | WindowError::Outdated | WindowError::Told) => {}
        }
    }
}
