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
            Some(Budget { ends, kept: now });
    }

    /// How long until it is to be looked after; none where none has a time to spend.
    pub(super) fn next_look_at_scrub(&self) -> Option<Duration> {
        let budget = self.scrub.budget.lock().unwrap_or_else(PoisonError::into_inner);
        let Budget { ends, kept } = budget.as_ref()?;
        Some((*ends).min(*kept + KEEP_EVERY).saturating_duration_since(Instant::now()))
    }

    /// Ends it when its time is over, and keeps the place. Called now and then.
    pub(super) fn look_after_scrub(&self, status: &ArrayStatus) {
        let mut budget = self.scrub.budget.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Budget { ends, kept }) = &mut *budget else { return };
        let (now, runs) = (Instant::now(), scrubs(status));
        // Told again until it has ended.
        if runs
            && now >= *ends
            && let Err(error) = self.array.order(Action::Idle)
        {
            tracing::warn!("the scrub does not end: {error}");
        }
        if !runs || now >= *kept + KEEP_EVERY {
            *kept = now;
            self.keep_place(status);
        }
        if !runs {
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
        let place = match scrubs(status) {
            true => status.sync.completed_sectors / chunk * chunk,
            false => self.sync_min(),
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

fn scrubs(status: &ArrayStatus) -> bool {
    matches!(status.sync.action, SyncAction::Check | SyncAction::Repair)
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
