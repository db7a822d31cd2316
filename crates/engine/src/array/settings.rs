//! What can be tuned: md's sysfs keys of the parity levels, what each may be, and where lanes look.
//!
//! [`StartSettings`] are fixed when an array starts; [`Settings`] change while it runs. Keys and
//! values are md's, in sysfs' units.

#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;

use crate::sync::atomic::{AtomicU32, Ordering};

use super::plan::RmwLevel;

/// Why a key was not set. The array runs on as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// Not a key, or not one of this array's level.
    #[error("the array has no key {key}")]
    Unknown {
        /// As given.
        key: String,
    },
    /// Only the start of the array decides it.
    #[error("{key} is fixed when the array starts")]
    Fixed {
        /// The key.
        key: &'static str,
    },
    /// It says how things are.
    #[error("{key} can be read, not set")]
    ReadOnly {
        /// The key.
        key: &'static str,
    },
    /// Not a number, or one outside the range.
    #[error("{key} takes a number from {} to {}, not {value:?}", range.start(), range.end())]
    OutOfRange {
        /// The key.
        key: &'static str,
        /// As given.
        value: String,
        /// What it takes.
        range: RangeInclusive<u32>,
    },
    /// A number inside the range that is not a power of two.
    #[error("{key} takes a power of two from {} to {}, not {value}", range.start(), range.end())]
    NotAPowerOfTwo {
        /// The key.
        key: &'static str,
        /// As given.
        value: u32,
        /// What it takes.
        range: RangeInclusive<u32>,
    },
}

const STRIPE_SIZE: &str = "stripe_size";
const STRIPE_HASH_LOCKS: &str = "stripe_hash_locks";

/// What is fixed when an array starts. Nothing of it stands on the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartSettings {
    stripe_size: u32,
    stripe_hash_locks: u32,
}

impl Default for StartSettings {
    /// Units of 4 KiB, 32 locks: md's 2026 series found 32 to be enough for 22 cores.
    fn default() -> Self {
        Self { stripe_size: 4096, stripe_hash_locks: 32 }
    }
}

impl StartSettings {
    /// Sets a key: `stripe_size` in bytes, or `stripe_hash_locks`.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SettingError> {
        match key {
            STRIPE_SIZE => self.stripe_size = power_of_two(STRIPE_SIZE, value, 4096..=65536)?,
            STRIPE_HASH_LOCKS => {
                self.stripe_hash_locks = power_of_two(STRIPE_HASH_LOCKS, value, 8..=256)?;
            }
            _ => return Err(SettingError::Unknown { key: key.to_owned() }),
        }
        Ok(())
    }

    /// Unit of claims, pre-reads and parity, in sectors.
    pub fn unit_sectors(self) -> u32 {
        self.stripe_size / 512
    }

    /// Shards of the table of claims.
    pub fn stripe_hash_locks(self) -> usize {
        self.stripe_hash_locks as usize
    }
}

fn power_of_two(
    key: &'static str,
    value: &str,
    range: RangeInclusive<u32>,
) -> Result<u32, SettingError> {
    let number = in_range(key, value, range.clone())?;
    match number.is_power_of_two() {
        true => Ok(number),
        false => Err(SettingError::NotAPowerOfTwo { key, value: number, range }),
    }
}

fn in_range(
    key: &'static str,
    value: &str,
    range: RangeInclusive<u32>,
) -> Result<u32, SettingError> {
    match value.trim().parse() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(SettingError::OutOfRange { key, value: value.to_owned(), range }),
    }
}

/// What may change while the array runs. Lanes read it at every request, nobody but users writes it:
/// on cache lines of its own it costs them nothing.
#[derive(Debug)]
#[repr(align(128))]
pub struct Settings {
    start: StartSettings,
    rmw_level: AtomicU32,
    stripe_cache_size: AtomicU32,
    group_thread_cnt: AtomicU32,
    max_stripe_batch: AtomicU32,
}

/// One key that may change.
struct Key {
    name: &'static str,
    range: RangeInclusive<u32>,
    value: fn(&Settings) -> &AtomicU32,
}

/// Every key that may change and what it takes, in the order in which they are listed. A key enters
/// here with its effect.
const KEYS: &[Key] = &[
    Key { name: "rmw_level", range: 0..=2, value: |settings| &settings.rmw_level },
    Key {
        name: "stripe_cache_size",
        range: 17..=262_144,
        value: |settings| &settings.stripe_cache_size,
    },
    Key { name: "group_thread_cnt", range: 0..=8192, value: |settings| &settings.group_thread_cnt },
    Key { name: "max_stripe_batch", range: 1..=256, value: |settings| &settings.max_stripe_batch },
];

impl Settings {
    /// The values of an array that starts.
    pub fn new(start: StartSettings) -> Self {
        Self {
            start,
            rmw_level: AtomicU32::new(RmwLevel::default() as u32),
            stripe_cache_size: AtomicU32::new(super::cache::DEFAULT_SIZE),
            group_thread_cnt: AtomicU32::new(0),
            max_stripe_batch: AtomicU32::new(32),
        }
    }

    /// Sets a key; every lane heeds it from its next request on.
    pub fn set(&self, key: &str, value: &str) -> Result<(), SettingError> {
        for fixed in [STRIPE_SIZE, STRIPE_HASH_LOCKS] {
            if key == fixed {
                return Err(SettingError::Fixed { key: fixed });
            }
        }
        let found = KEYS.iter().find(|known| known.name == key);
        let key = found.ok_or_else(|| SettingError::Unknown { key: key.to_owned() })?;
        let number = in_range(key.name, value, key.range.clone())?;
        (key.value)(self).store(number, Ordering::Relaxed);
        Ok(())
    }

    /// Every key with its value.
    pub fn values(&self) -> Vec<(&'static str, u32)> {
        let live = KEYS.iter().map(|key| (key.name, (key.value)(self).load(Ordering::Relaxed)));
        let fixed = [
            (STRIPE_SIZE, self.start.stripe_size),
            (STRIPE_HASH_LOCKS, self.start.stripe_hash_locks),
        ];
        live.chain(fixed).collect()
    }

    /// Most stripes (one `stripe_size` of a row, on every member) that the cache keeps.
    #[inline]
    pub(super) fn stripe_cache_size(&self) -> u32 {
        self.stripe_cache_size.load(Ordering::Relaxed)
    }

    /// Which writes of less than a row read old data and parity.
    #[inline]
    pub(super) fn rmw_level(&self) -> RmwLevel {
        match self.rmw_level.load(Ordering::Relaxed) {
            0 => RmwLevel::Never,
            1 => RmwLevel::FewerReads,
            _ => RmwLevel::Preferred,
        }
    }

    /// Workers asked for on each NUMA node.
    pub(super) fn group_thread_cnt(&self) -> usize {
        self.group_thread_cnt.load(Ordering::Relaxed) as usize
    }

    /// Writes that a worker takes at once.
    #[inline]
    pub(super) fn max_stripe_batch(&self) -> usize {
        self.max_stripe_batch.load(Ordering::Relaxed) as usize
    }
}
