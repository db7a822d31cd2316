//! Which part of the array sync tasks walk: md's `sync_min` and `sync_max`.

use crate::sync::atomic::{AtomicU64, Ordering};

use super::super::settings::SettingError;

#[cfg(test)]
mod tests;

const MIN: &str = "sync_min";
const MAX: &str = "sync_max";

/// md's word for no bound.
const NO_BOUND: &str = "max";

/// Sectors, as resync counts them.
#[derive(Debug)]
pub(crate) struct SyncSpan {
    min: AtomicU64,
    max: AtomicU64,
}

impl Default for SyncSpan {
    fn default() -> Self {
        Self { min: AtomicU64::new(0), max: AtomicU64::new(u64::MAX) }
    }
}

impl SyncSpan {
    /// Where a check or repair begins.
    pub(crate) fn min(&self) -> u64 {
        self.min.load(Ordering::Relaxed)
    }

    /// Where every sync task pauses until it is moved.
    pub(crate) fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }

    /// A check or repair goes on here the next time; at 0 it begins anew.
    pub(crate) fn go_on_at(&self, sector: u64) {
        self.min.store(sector, Ordering::Relaxed);
    }

    /// What has run to its end needs no bound any more.
    pub(crate) fn forget_max(&self) {
        self.max.store(u64::MAX, Ordering::Relaxed);
    }

    /// The keys with their values.
    pub(crate) fn values(&self) -> [(&'static str, String); 2] {
        let max = Some(self.max()).filter(|&max| max < u64::MAX);
        let max = max.map_or(NO_BOUND.to_owned(), |max| max.to_string());
        [(MIN, self.min().to_string()), (MAX, max)]
    }

    /// Sets a key, on an array of so many sectors. None: it is not one of these.
    pub(crate) fn set(
        &self,
        key: &str,
        value: &str,
        chunk_sectors: u64,
        sectors: u64,
    ) -> Option<Result<(), SettingError>> {
        let parse = |key, range| parse(key, value.trim(), range, chunk_sectors);
        match key {
            MIN => {
                let last = self.max().min(sectors);
                Some(parse(MIN, 0..=last).map(|min| self.min.store(min, Ordering::Relaxed)))
            }
            MAX if value.trim() == NO_BOUND => {
                self.forget_max();
                Some(Ok(()))
            }
            MAX => {
                let range = self.min()..=sectors;
                Some(parse(MAX, range).map(|max| self.max.store(max, Ordering::Relaxed)))
            }
            _ => None,
        }
    }
}

fn parse(
    key: &'static str,
    value: &str,
    range: std::ops::RangeInclusive<u64>,
    chunk_sectors: u64,
) -> Result<u64, SettingError> {
    match value.parse::<u64>() {
        Ok(sector) if range.contains(&sector) && sector.is_multiple_of(chunk_sectors.max(1)) => {
            Ok(sector)
        }
        _ => {
            let or = if key == MAX { ", or max" } else { "" };
            let value = value.to_owned();
            Err(SettingError::NotASector { key, value, range, chunk_sectors, or })
        }
    }
}
