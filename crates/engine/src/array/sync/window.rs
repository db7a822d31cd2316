//! What one window of a sync task does, whatever the level.
//!
//! A window lies in one claim and touches nothing outside it. It says what it found, or why it could not
//! be done; when it is done and what comes next is the task's.

use std::ops::Range;

use crate::geometry::{Geometry, Slot};
use crate::status::Mismatch;

use super::super::array_lane::ArrayLane;
use super::super::command::Undecided;
use super::{mirror_window, row_window};

/// What a sync task does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::array) enum SyncKind {
    /// Makes redundancy agree with data.
    Resync,
    /// Fills the members in these slots.
    Recover(Vec<Slot>),
    /// Counts where redundancy disagrees.
    Check,
    /// Counts, and makes it agree as far as it can tell how.
    Repair(Undecided),
}

/// What a window found wrong.
#[derive(Default)]
pub(super) struct Found {
    /// As md counts.
    pub(super) sectors: u64,
    pub(super) places: Vec<Mismatch>,
}

impl Found {
    pub(super) fn add(&mut self, other: Self) {
        self.sectors += other.sectors;
        self.places.extend(other.places);
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
    /// A member is late that is needed for it.
    Late,
    /// What it lacks could only be computed from parity that a failed write or a crash left in doubt.
    Doubted,
}

/// Does one window. What nobody can read of a recovery is gone round.
pub(super) async fn run(
    port: &ArrayLane,
    geometry: &Geometry,
    kind: &SyncKind,
    window: &Range<u64>,
) -> Result<Found, WindowError> {
    match (run_once(port, geometry, kind, window).await, kind) {
        (Err(WindowError::Unreadable), SyncKind::Recover(slots)) => {
            recover_around(port, geometry, slots, window).await.map(|()| Found::default())
        }
        (Err(WindowError::Unreadable), _) => Err(WindowError::Failed),
        (result, _) => result,
    }
}

async fn run_once(
    port: &ArrayLane,
    geometry: &Geometry,
    kind: &SyncKind,
    window: &Range<u64>,
) -> Result<Found, WindowError> {
    match geometry {
        Geometry::Parity(map) => row_window::run(port, map, kind, window).await,
        geometry => mirror_window::run(port, geometry, kind, window).await,
    }
}

/// Recovers a window block by block and slot by slot. What nobody can read is listed as bad on the
/// member that should have got it, and everything else is there.
async fn recover_around(
    port: &ArrayLane,
    geometry: &Geometry,
    slots: &[Slot],
    window: &Range<u64>,
) -> Result<(), WindowError> {
    let block = port.with_view(|view| view.block_sectors) as usize;
    for start in window.clone().step_by(block) {
        let part = start..(start + block as u64).min(window.end);
        for slot in slots {
            let kind = SyncKind::Recover(vec![*slot]);
            match run_once(port, geometry, &kind, &part).await {
                Ok(_) => {}
                Err(WindowError::Unreadable) => {
                    let member = port.with_view(|view| view.member(*slot).map(|member| member.id));
                    let Some(member) = member else { return Err(WindowError::Failed) };
                    port.list_as_bad(member, part.clone()).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}
