//! What can be set while an array runs. Any thread may ask and set; lanes look at each request.

use crate::sync::atomic::{AtomicU32, Ordering};

use super::Array;
use super::plan::RmwLevel;

/// The values in force.
pub(crate) struct Settings {
    rmw_level: AtomicU32,
}

/// A value that a key does not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} takes {lowest} to {highest}")]
pub struct OutOfRange {
    /// The key, by md's name.
    pub key: &'static str,
    /// The lowest value that it takes.
    pub lowest: u32,
    /// The highest.
    pub highest: u32,
}

impl Default for Settings {
    /// What md starts with.
    fn default() -> Self {
        Self { rmw_level: AtomicU32::new(RmwLevel::default() as u32) }
    }
}

impl Settings {
    #[inline]
    pub(super) fn rmw_level(&self) -> RmwLevel {
        match self.rmw_level.load(Ordering::Relaxed) {
            0 => RmwLevel::Never,
            1 => RmwLevel::FewerReads,
            _ => RmwLevel::Preferred,
        }
    }
}

impl Array {
    /// Which writes of less than a row read old data and parity (`rmw_level`): 0 none, 1 those that
    /// read less that way, 2 also those that read as much.
    pub fn rmw_level(&self) -> u32 {
        self.settings.rmw_level() as u32
    }

    /// Sets `rmw_level` for the writes from now on: 0 to 2.
    pub fn set_rmw_level(&self, level: u32) -> Result<(), OutOfRange> {
        self.settings.rmw_level.store(within("rmw_level", level, 0..=2)?, Ordering::Relaxed);
        Ok(())
    }
}

fn within(
    key: &'static str,
    value: u32,
    range: std::ops::RangeInclusive<u32>,
) -> Result<u32, OutOfRange> {
    let (lowest, highest) = range.clone().into_inner();
    range.contains(&value).then_some(value).ok_or(OutOfRange { key, lowest, highest })
}
