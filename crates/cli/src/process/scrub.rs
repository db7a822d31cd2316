//! Checks and repairs with a time to spend: they end when it is over, and the next one goes on there, also
//! under another serving process. md has no room for the place on the members, so it lies in the state
//! directory.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use mdspace_engine::array::Action;
use mdspace_engine::status::{ArrayStatus, SyncAction};
use mdspace_io::{RunningArray, read_text};

use super::ServingProcess;

/// A killed process loses no more than so much of a scrub.
const KEEP_EVERY: Duration = Duration::from_secs(60);

/// md's key for where a check or repair begins.
const SYNC_MIN: &str = "sync_min";

/// The scrub that has a time to spend, if one runs, and where its place is kept.
pub(super) struct Scrub {
    file: PathBuf,
    budget: Mutex<Option<Budget>>,
}

struct Budget {
    /// The scrub had been ordered by then.
    given: Instant,
    ends: Instant,
    kept: Instant,
}

impl Scrub {
    pub(super) fn new(file: PathBuf) -> Self {
        Self { file, budget: Mutex::default() }
    }
}

impl ServingProcess {
    /// Lets the next scrub begin where the last one with a time to spend ended, unless the array knows
    /// better. A place that does not fit the array any more is no place.
    pub(super) fn go_on_with_scrub(&self) {
        let Ok(status) = self.array.status() else { return };
        if self.sync_min() != 0 {
            return;
        }
        if let Some(sector) = kept_place(&self.scrub.file, &status.uuid.to_string()) {
            let set = |running: &RunningArray| running.set(SYNC_MIN, &sector.to_string());
            if let Some(Err(error)) = self.array.with_running(set) {
                tracing::warn!("the scrub begins anew: {error}");
            }
        }
    }

    /// From now on it has so much time.
    pub(super) fn give_scrub(&self, time: Duration) {
        let now = Instant::now();
        let ends = now.checked_add(time).unwrap_or(now);
        *self.scrub.budget.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Budget { given: now, ends, kept: now });
    }

    /// How long until it is to be looked after; none where none has a time to spend.
    pub(super) fn next_look_at_scrub(&self, status: &ArrayStatus) -> Option<Duration> {
        let budget = self.scrub.budget.lock().unwrap_or_else(PoisonError::into_inner);
        let next = budget.as_ref()?.next_look(Phase::of(status));
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// Ends it when its time is over, and keeps the place. Called now and then, with what was asked of the array then.
    pub(super) fn look_after_scrub(&self, status: &ArrayStatus, asked: Instant) {
        let mut budget = self.scrub.budget.lock().unwrap_or_else(PoisonError::into_inner);
        // That none runs was so before this one began.
        let Some(known) = budget.as_mut().filter(|known| known.is_meant(asked)) else { return };
        let (now, phase) = (Instant::now(), Phase::of(status));
        // Told again until it has ended.
        if known.is_spent(phase, now)
            && let Err(error) = self.array.order(Action::Idle)
        {
            tracing::warn!("the scrub does not end: {error}");
        }
        if phase == Phase::HasEnded || now >= known.kept + KEEP_EVERY {
            known.kept = now;
            self.keep_place(status);
        }
        if phase == Phase::HasEnded {
            *budget = None;
        }
    }

    /// Keeps the place of one that is under way, or has just ended: the array is about to be stopped.
    pub(super) fn keep_scrub(&self) {
        let budget = self.scrub.budget.lock().unwrap_or_else(PoisonError::into_inner).take();
        if budget.is_some()
            && let Ok(status) = self.array.status()
        {
            self.keep_place(&status);
        }
    }

    fn keep_place(&self, status: &ArrayStatus) {
        let chunk = u64::from(status.chunk_sectors).max(1);
        let place = match Phase::of(status) {
            Phase::Runs => status.sync.completed_sectors / chunk * chunk,
            Phase::HasEnded => self.sync_min(),
            // What was kept last is where it goes on, or not far before.
            Phase::Waits => return,
        };
        if let Err(error) = keep_place(&self.scrub.file, &status.uuid.to_string(), place) {
            tracing::warn!("the next scrub will begin anew: {error}");
        }
    }

    fn sync_min(&self) -> u64 {
        let values = self.array.with_running(RunningArray::setting_values).unwrap_or_default();
        let value = values.into_iter().find(|(key, _)| *key == SYNC_MIN);
        value.and_then(|(_, sector)| sector.parse().ok()).unwrap_or(0)
    }
}

/// What becomes of a check or repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Runs,
    /// It has not begun, or goes on later: a resync, a rebuild or another array comes first.
    Waits,
    HasEnded,
}

impl Phase {
    fn of(status: &ArrayStatus) -> Self {
        let sync = &status.sync;
        match matches!(sync.action, SyncAction::Check | SyncAction::Repair) {
            true if sync.delayed => Self::Waits,
            true => Self::Runs,
            false if sync.waiting.is_some() => Self::Waits,
            false => Self::HasEnded,
        }
    }
}

impl Budget {
    /// Whether what was asked of the array then can be about this scrub.
    fn is_meant(&self, asked: Instant) -> bool {
        asked >= self.given
    }

    /// Whether it is to end now. One that waits is not told: what it waits for would end too.
    fn is_spent(&self, phase: Phase, now: Instant) -> bool {
        phase == Phase::Runs && now >= self.ends
    }

    fn next_look(&self, phase: Phase) -> Instant {
        let keep = self.kept + KEEP_EVERY;
        match phase {
            Phase::Runs => keep.min(self.ends),
            // That it goes on is news.
            Phase::Waits | Phase::HasEnded => keep,
        }
    }
}

/// The place that was kept of this very array.
fn kept_place(file: &Path, uuid: &str) -> Option<u64> {
    let text = read_text(file).ok()?;
    let (array, sector) = text.trim_end().split_once(' ')?;
    sector.parse().ok().filter(|_| array == uuid)
}

/// Keeps it; the beginning needs no file.
fn keep_place(file: &Path, uuid: &str, sector: u64) -> io::Result<()> {
    if sector == 0 {
        return remove(file);
    }
    let new = file.with_extension("scrub.new");
    remove(&new)?;
    fs::File::create_new(&new)?.write_all(format!("{uuid} {sector}\n").as_bytes())?;
    fs::rename(new, file)
}

fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
