//! What one window of a sync task does, whatever the level.
//!
//! A window lies in one claim and touches nothing outside it. It says what it found, or why it could not
//! be done; when it is done and what comes next is the task's.

use std::ops::Range;

use crate::backend::MemberId;
use crate::geometry::{Geometry, Slot};
use crate::ranges::{Ranges, halves};
use crate::request::RequestError;
use crate::status::Mismatch;

use super::super::array_lane::ArrayLane;
use super::super::claims::Claim;
use super::super::command::Undecided;
use super::super::mend::{Mended, NotRewritten};
use super::super::news::News;
use super::{SyncTask, mirror_window, replace_window, row_window};

/// What a sync task does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::array) enum SyncKind {
    /// Makes redundancy agree with data.
    Resync,
    /// Fills the members in these slots.
    Recover(Vec<Slot>),
    /// Copies the members in these slots to those that replace them.
    Replace(Vec<Slot>),
    /// Counts where redundancy disagrees.
    Check,
    /// Counts, and makes it agree as far as it can tell how.
    Repair(Undecided),
}

impl SyncKind {
    /// Whether it is members that it makes whole, from their front to their end.
    pub(in crate::array) fn fills_members(&self) -> bool {
        matches!(self, Self::Recover(_) | Self::Replace(_))
    }

    /// The slots that it fills.
    fn slots(&self) -> &[Slot] {
        match self {
            Self::Recover(slots) | Self::Replace(slots) => slots,
            Self::Resync | Self::Check | Self::Repair(_) => &[],
        }
    }

    /// The same for one slot alone.
    fn of_slot(&self, slot: Slot) -> Self {
        match self {
            Self::Replace(_) => Self::Replace(vec![slot]),
            _ => Self::Recover(vec![slot]),
        }
    }
}

/// What a window found wrong.
#[derive(Default)]
pub(super) struct Found {
    /// As md counts.
    pub(super) sectors: u64,
    pub(super) places: Vec<Mismatch>,
    /// What of it could be neither read nor computed.
    pub(super) skipped: Vec<Range<u64>>,
    /// What of it was not done, for the task was told to end.
    pub(super) left: Option<Range<u64>>,
    /// Whose unreadable sectors were written again.
    pub(super) mended: Mended,
}

impl Found {
    pub(super) fn add(&mut self, other: Self) {
        self.sectors += other.sectors;
        self.places.extend(other.places);
        self.skipped.extend(other.skipped);
        self.mended.add_all(other.mended);
    }
}

/// Why a window was not done.
pub(super) enum WindowError {
    /// Something could not be read or written.
    Failed,
    /// What it needs lies in sectors that nobody can read.
    Unreadable,
    /// There was no space behind a member.
    NoSpace,
    /// A member is late that is needed for it: it is done again.
    Late,
    /// What it has read would be read otherwise by now: it is done again.
    Outdated,
    /// What it lacks could only be computed from parity that a failed write or a crash left in doubt.
    Doubted,
    /// The task was told to end before all blocks of it were done, one after the other.
    Told,
}

impl From<NotRewritten> for WindowError {
    fn from(NotRewritten(error): NotRewritten) -> Self {
        match error {
            RequestError::NoSpace => Self::NoSpace,
            _ => Self::Failed,
        }
    }
}

impl WindowError {
    /// What a window that fills a member comes to, where this came instead of its bytes. A block that
    /// cannot be had at all is listed as bad on the member, `claim` being held; a wider window is to be
    /// done block by block.
    pub(super) async fn list_unfilled(
        self,
        port: &ArrayLane,
        claim: &Claim<'_>,
        filled: Option<MemberId>,
        window: &Range<u64>,
    ) -> Result<(), Self> {
        let is_block =
            window.end - window.start <= port.with_view(|view| view.block_sectors.into());
        match (self, filled) {
            (Self::Unreadable, Some(member)) if is_block => {
                port.tell(claim, News::Unfilled, member, &Ranges::of(window.clone())).await;
                match port.is_believed_in(member, window) {
                    false => Ok(()),
                    true => Err(Self::Failed),
                }
            }
            (Self::Unreadable, None) => Err(Self::Failed),
            (error, _) => Err(error),
        }
    }
}

/// Does one window. It goes round unreadable blocks, one block at a time, until the task is told to end: a
/// stop waits for one read of a dying disk, not for all blocks of the window.
pub(super) async fn run(
    port: &ArrayLane,
    geometry: &Geometry,
    task: &SyncTask,
    window: &Range<u64>,
) -> Result<Found, WindowError> {
    let mut found = match task.kind().fills_members() {
        true => fill(port, geometry, task, window).await?,
        false => match run_once(port, geometry, (task, task.kind()), window).await {
            Err(WindowError::Unreadable) => run_in_halves(port, geometry, task, window).await?,
            result => result?,
        },
    };
    port.count_mended(std::mem::take(&mut found.mended));
    Ok(found)
}

/// Compares the two halves of a window, and theirs: what one member lacks here and another one there is
/// not lost, and what is lost is no more than that.
async fn run_in_halves(
    port: &ArrayLane,
    geometry: &Geometry,
    task: &SyncTask,
    window: &Range<u64>,
) -> Result<Found, WindowError> {
    let block = port.with_view(|view| u64::from(view.block_sectors));
    let (mut left, mut all) = (vec![window.clone()], Found::default());
    while let Some(range) = left.pop() {
        let ended = match task.is_told_to_end() {
            true => Err(WindowError::Told),
            false => run_once(port, geometry, (task, task.kind()), &range).await,
        };
        match ended {
            Ok(found) => all.add(found),
            // What was found before it counts: it may be mended by now.
            Err(WindowError::Late | WindowError::Outdated | WindowError::Told) => {
                all.left = Some(range.start..window.end);
                break;
            }
            Err(WindowError::Unreadable) => match halves(&range, block) {
                Some(halves) => left.extend(halves),
                None => all.skipped.push(range),
            },
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// Fills a window, and goes round what of it is in doubt, block by block: the rest need not wait for that.
async fn fill(
    port: &ArrayLane,
    geometry: &Geometry,
    task: &SyncTask,
    window: &Range<u64>,
) -> Result<Found, WindowError> {
    let block = port.with_view(|view| u64::from(view.block_sectors));
    let (mut left, mut all) = (vec![window.clone()], Found::default());
    while let Some(range) = left.pop() {
        match run_once(port, geometry, (task, task.kind()), &range).await {
            Ok(found) => all.add(found),
            Err(WindowError::Unreadable) => {
                all.add(fill_around(port, geometry, task, &range).await?);
            }
            Err(WindowError::Doubted) => match halves(&range, block) {
                Some(halves) => left.extend(halves),
                None => all.add(fill_around(port, geometry, task, &range).await?),
            },
            Err(error) => return Err(error),
        }
        if !left.is_empty() && task.is_told_to_end() {
            return Err(WindowError::Told);
        }
    }
    Ok(all)
}

/// Fills a window block by block and slot by slot. A block that cannot be read is listed as bad on the
/// member that should have got it, under the claim that found out. One in doubt is left out. Everything else is there.
async fn fill_around(
    port: &ArrayLane,
    geometry: &Geometry,
    task: &SyncTask,
    window: &Range<u64>,
) -> Result<Found, WindowError> {
    let block = port.with_view(|view| view.block_sectors) as usize;
    let mut all = Found::default();
    for start in window.clone().step_by(block) {
        let part = start..(start + block as u64).min(window.end);
        for slot in task.kind().slots() {
            if task.is_told_to_end() {
                return Err(WindowError::Told);
            }
            let kind = task.kind().of_slot(*slot);
            match run_once(port, geometry, (task, &kind), &part).await {
                Ok(found) => all.add(found),
                Err(WindowError::Doubted) => all.skipped.push(part.clone()),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(all)
}

/// Does a range under one claim, and again when a member was late in it: what was done before it stays done.
async fn run_once(
    port: &ArrayLane,
    geometry: &Geometry,
    (task, kind): (&SyncTask, &SyncKind),
    range: &Range<u64>,
) -> Result<Found, WindowError> {
    let once = async || match (kind, geometry) {
        (SyncKind::Replace(slots), _) => replace_window::run(port, geometry, slots, range).await,
        (_, Geometry::Parity(map)) => row_window::run(port, map, kind, range).await,
        _ => mirror_window::run(port, geometry, kind, range).await,
    };
    task.patiently(port, once).await
}
