//! What can be tuned: md's sysfs keys and ours, what each may be, and where lanes look.
//!
//! [`StartSettings`] are fixed when an array starts; [`Settings`] change while it runs. Keys and
//! values are md's, in sysfs' units, but for `read_policy` and the deadlines, which md has not.

#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;

use crate::backend::Patience;
use crate::geometry::Geometry;
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
    /// Not one of the words that it takes.
    #[error("{key} takes one of {}, not {value:?}", words.join(", "))]
    NotAWord {
        /// The key.
        key: &'static str,
        /// As given.
        value: String,
        /// What it takes.
        words: &'static [&'static str],
    },
    /// Not a sector where it may be.
    #[error(
        "{key} takes whole chunks of {chunk_sectors} sectors from {} to {}{or}, not {value:?}",
        range.start(),
        range.end()
    )]
    NotASector {
        /// The key.
        key: &'static str,
        /// As given.
        value: String,
        /// What it takes, in sectors as resync counts them.
        range: RangeInclusive<u64>,
        /// Multiples of this.
        chunk_sectors: u64,
        /// What else it takes.
        or: &'static str,
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

/// Thousandths in a second.
const MILLIS: u32 = 1000;

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

/// How the copy of a healthy mirror is chosen that answers a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadPolicy {
    /// The first that can be read, by the number of its slot.
    First,
    /// The one whose head is nearest, as md did before it counted what is pending.
    Nearest,
    /// md's rules of today.
    Md,
    /// The one that would answer first.
    #[default]
    Expected,
}

impl ReadPolicy {
    /// The words of `read_policy`, in the order of the policies.
    pub const WORDS: &[&str] = &["first", "nearest", "md", "expected"];
    const ALL: [Self; 4] = [Self::First, Self::Nearest, Self::Md, Self::Expected];
}

/// The levels that have a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Levels {
    /// RAID4, RAID5 and RAID6.
    Parity,
    /// RAID1 and RAID10.
    Mirrors,
    /// Those without redundancy.
    Others,
}

impl From<&Geometry> for Levels {
    fn from(geometry: &Geometry) -> Self {
        match geometry {
            Geometry::Parity(_) => Self::Parity,
            Geometry::Raid1(_) | Geometry::Raid10(_) => Self::Mirrors,
            Geometry::Linear(_) | Geometry::Raid0(_) => Self::Others,
        }
    }
}

/// What may change while the array runs. Lanes read it at every request, nobody but users writes it:
/// on cache lines of its own it costs them nothing.
#[derive(Debug)]
#[repr(align(128))]
pub struct Settings {
    start: StartSettings,
    levels: Levels,
    rmw_level: AtomicU32,
    hedged_reads: AtomicU32,
    accept_doubt: AtomicU32,
    stripe_cache_size: AtomicU32,
    group_thread_cnt: AtomicU32,
    max_stripe_batch: AtomicU32,
    read_policy: AtomicU32,
    read_deadline_ms: AtomicU32,
    write_deadline_ms: AtomicU32,
    max_read_errors: AtomicU32,
    sync_io_depth: AtomicU32,
    sync_speed_min: AtomicU32,
    sync_speed_max: AtomicU32,
    sync_cache_share: AtomicU32,
    sync_latency_target: AtomicU32,
    sync_force_parallel: AtomicU32,
}

/// One key that may change.
struct Key {
    name: &'static str,
    levels: &'static [Levels],
    takes: Takes,
    value: fn(&Settings) -> &AtomicU32,
}

/// What a key may be.
enum Takes {
    Number(RangeInclusive<u32>),
    /// So many seconds, with at most three digits behind the point, as md writes `safe_mode_delay`;
    /// kept as milliseconds.
    Seconds(RangeInclusive<u32>),
    /// So many times as much, with at most three digits behind the point, kept as thousandths; or 0.
    Factor(RangeInclusive<u32>),
    /// KiB/s, or the word for what is kept as 0.
    Speed(RangeInclusive<u32>, &'static str),
    /// One of these; its place among them is what is kept.
    Word(&'static [&'static str]),
}

impl Key {
    const fn number(
        name: &'static str,
        range: RangeInclusive<u32>,
        value: fn(&Settings) -> &AtomicU32,
    ) -> Self {
        Self { name, levels: &[Levels::Parity], takes: Takes::Number(range), value }
    }

    /// How long members may take, on levels that can do without one.
    const fn deadline(name: &'static str, value: fn(&Settings) -> &AtomicU32) -> Self {
        Self { name, levels: REDUNDANT, takes: Takes::Seconds(0..=3600), value }
    }

    fn parse(&self, value: &str) -> Result<u32, SettingError> {
        match &self.takes {
            Takes::Number(range) => in_range(self.name, value, range.clone()),
            Takes::Seconds(range) => self.thousandths(value, range),
            Takes::Factor(_) if value.trim() == "0" => Ok(0),
            Takes::Factor(range) => self.thousandths(value, range),
            Takes::Speed(_, word) if value.trim() == *word => Ok(0),
            Takes::Speed(range, _) => in_range(self.name, value, range.clone()),
            Takes::Word(words) => {
                let place = words.iter().position(|word| *word == value.trim());
                let refused =
                    || SettingError::NotAWord { key: self.name, value: value.to_owned(), words };
                place.map(|place| place as u32).ok_or_else(refused)
            }
        }
    }

    fn thousandths(&self, value: &str, range: &RangeInclusive<u32>) -> Result<u32, SettingError> {
        let inside = |kept: &u32| *kept <= range.end() * MILLIS && *kept >= range.start() * MILLIS;
        let refused = || SettingError::OutOfRange {
            key: self.name,
            value: value.to_owned(),
            range: range.clone(),
        };
        millis(value.trim()).filter(inside).ok_or_else(refused)
    }

    fn text(&self, value: u32) -> String {
        match &self.takes {
            Takes::Number(_) => value.to_string(),
            Takes::Seconds(_) | Takes::Factor(_) => seconds(value),
            Takes::Speed(_, word) if value == 0 => (*word).to_owned(),
            Takes::Speed(..) => value.to_string(),
            Takes::Word(words) => words[value as usize].to_owned(),
        }
    }
}

/// The levels that can do without a member.
const REDUNDANT: &[Levels] = &[Levels::Parity, Levels::Mirrors];

/// Decimal seconds as milliseconds; finer parts of a second are refused.
fn millis(value: &str) -> Option<u32> {
    let (whole, part) = value.split_once('.').unwrap_or((value, ""));
    if part.len() > 3 || !part.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let part: u32 = format!("{part:0<3}").parse().ok()?;
    whole.parse::<u32>().ok()?.checked_mul(MILLIS)?.checked_add(part)
}

/// Milliseconds as decimal seconds.
fn seconds(millis: u32) -> String {
    match millis % MILLIS {
        0 => (millis / MILLIS).to_string(),
        part => format!("{}.{part:03}", millis / MILLIS).trim_end_matches('0').to_owned(),
    }
}

/// Every key that may change and what it takes, in the order in which they are listed. A key enters
/// here with its effect.
const KEYS: &[Key] = &[
    Key::number("rmw_level", 0..=2, |settings| &settings.rmw_level),
    Key::number("hedged_reads", 0..=1, |settings| &settings.hedged_reads),
    Key::number("accept_doubt", 0..=1, |settings| &settings.accept_doubt),
    Key::number("stripe_cache_size", 17..=262_144, |settings| &settings.stripe_cache_size),
    Key::number("group_thread_cnt", 0..=8192, |settings| &settings.group_thread_cnt),
    Key::number("max_stripe_batch", 1..=256, |settings| &settings.max_stripe_batch),
    Key {
        name: "read_policy",
        levels: &[Levels::Mirrors],
        takes: Takes::Word(ReadPolicy::WORDS),
        value: |settings| &settings.read_policy,
    },
    Key::deadline("read_deadline", |settings| &settings.read_deadline_ms),
    Key::deadline("write_deadline", |settings| &settings.write_deadline_ms),
    Key {
        name: "max_read_errors",
        levels: REDUNDANT,
        takes: Takes::Number(0..=i32::MAX as u32),
        value: |settings| &settings.max_read_errors,
    },
    Key {
        name: "sync_io_depth",
        levels: REDUNDANT,
        takes: Takes::Number(0..=SYNC_IO_DEPTH_MAX),
        value: |settings| &settings.sync_io_depth,
    },
    Key {
        name: SYNC_SPEED_MIN,
        levels: REDUNDANT,
        takes: Takes::Speed(1..=SYNC_SPEED_MOST, "system"),
        value: |settings| &settings.sync_speed_min,
    },
    Key {
        name: SYNC_SPEED_MAX,
        levels: REDUNDANT,
        takes: Takes::Speed(1..=SYNC_SPEED_MOST, "none"),
        value: |settings| &settings.sync_speed_max,
    },
    Key {
        name: "sync_cache_share",
        levels: REDUNDANT,
        takes: Takes::Number(1..=100),
        value: |settings| &settings.sync_cache_share,
    },
    Key {
        name: "sync_latency_target",
        levels: REDUNDANT,
        takes: Takes::Factor(1..=1000),
        value: |settings| &settings.sync_latency_target,
    },
    Key {
        name: "sync_force_parallel",
        levels: REDUNDANT,
        takes: Takes::Number(0..=1),
        value: |settings| &settings.sync_force_parallel,
    },
];

const SYNC_SPEED_MIN: &str = "sync_speed_min";
const SYNC_SPEED_MAX: &str = "sync_speed_max";

/// 4 TiB/s: no member is faster.
const SYNC_SPEED_MOST: u32 = u32::MAX;

/// `sync_speed_min` unless it is set, in KiB/s.
const SYNC_SPEED_MIN_DEFAULT: u32 = 50 << 10;

/// Windows of 128 KiB on each member: 32 MiB of memory for each.
const SYNC_IO_DEPTH_MAX: u32 = 256;

impl Settings {
    /// The values of an array that starts.
    pub fn new(start: StartSettings, levels: Levels) -> Self {
        // What cannot do without a member can only wait for it.
        // As md: on parity levels it fails a member with more of them than it has stripes.
        let read_errors = if levels == Levels::Parity { 256 } else { 20 };
        let deadline = |ms| AtomicU32::new(if REDUNDANT.contains(&levels) { ms } else { 0 });
        Self {
            start,
            levels,
            rmw_level: AtomicU32::new(RmwLevel::default() as u32),
            hedged_reads: AtomicU32::new(1),
            accept_doubt: AtomicU32::new(0),
            stripe_cache_size: AtomicU32::new(super::cache::DEFAULT_SIZE),
            group_thread_cnt: AtomicU32::new(0),
            max_stripe_batch: AtomicU32::new(32),
            read_policy: AtomicU32::new(ReadPolicy::default() as u32),
            read_deadline_ms: deadline(MILLIS),
            write_deadline_ms: deadline(10 * MILLIS),
            max_read_errors: AtomicU32::new(read_errors),
            sync_io_depth: AtomicU32::new(0),
            sync_speed_min: AtomicU32::new(SYNC_SPEED_MIN_DEFAULT),
            sync_speed_max: AtomicU32::new(0),
            sync_cache_share: AtomicU32::new(25),
            sync_latency_target: AtomicU32::new(2 * MILLIS),
            sync_force_parallel: AtomicU32::new(0),
        }
    }

    /// Whether the keys of parity levels are there.
    pub fn has_parity(&self) -> bool {
        self.levels == Levels::Parity
    }

    /// Sets a key; every lane heeds it from its next request on.
    pub fn set(&self, key: &str, value: &str) -> Result<(), SettingError> {
        for fixed in [STRIPE_SIZE, STRIPE_HASH_LOCKS] {
            if key == fixed && self.has_parity() {
                return Err(SettingError::Fixed { key: fixed });
            }
        }
        let found = self.keys().find(|known| known.name == key);
        let key = found.ok_or_else(|| SettingError::Unknown { key: key.to_owned() })?;
        let number = self.between_speeds(key, key.parse(value)?)?;
        (key.value)(self).store(number, Ordering::Relaxed);
        Ok(())
    }

    /// Neither of the two speeds goes past the other.
    fn between_speeds(&self, key: &Key, value: u32) -> Result<u32, SettingError> {
        let range = match (key.name, self.sync_speed_max()) {
            (SYNC_SPEED_MIN, most) => 1..=most.unwrap_or(SYNC_SPEED_MOST),
            (SYNC_SPEED_MAX, _) if value > 0 => self.sync_speed_min()..=SYNC_SPEED_MOST,
            _ => return Ok(value),
        };
        let value = if value == 0 { SYNC_SPEED_MIN_DEFAULT } else { value };
        let refused = || SettingError::OutOfRange {
            key: key.name,
            value: value.to_string(),
            range: range.clone(),
        };
        range.contains(&value).then_some(value).ok_or_else(refused)
    }

    /// The keys of the array's level that may change.
    fn keys(&self) -> impl Iterator<Item = &'static Key> {
        let levels = self.levels;
        KEYS.iter().filter(move |key| key.levels.contains(&levels))
    }

    /// Every key with its value.
    pub fn values(&self) -> Vec<(&'static str, String)> {
        let text = |key: &Key| key.text((key.value)(self).load(Ordering::Relaxed));
        let mut values: Vec<_> = self.keys().map(|key| (key.name, text(key))).collect();
        if self.has_parity() {
            values.push((STRIPE_SIZE, self.start.stripe_size.to_string()));
            values.push((STRIPE_HASH_LOCKS, self.start.stripe_hash_locks.to_string()));
        }
        values
    }

    /// How long a read of a member is waited for before others answer for it.
    #[inline]
    pub(super) fn read_patience(&self) -> Patience {
        Patience::from_micros(self.read_deadline_ms.load(Ordering::Relaxed) * 1000)
    }

    /// How long a member may take for anything else before it is failed.
    #[inline]
    pub(super) fn write_patience(&self) -> Patience {
        Patience::from_micros(self.write_deadline_ms.load(Ordering::Relaxed) * 1000)
    }

    /// Read errors within an hour that a member may have mended.
    pub(super) fn max_read_errors(&self) -> u32 {
        self.max_read_errors.load(Ordering::Relaxed)
    }

    /// Windows of a sync task side by side; 0: as many as makes the members faster.
    pub(super) fn sync_io_depth(&self) -> usize {
        self.sync_io_depth.load(Ordering::Relaxed) as usize
    }

    /// Below this speed, in KiB/s of a member, a sync task heeds no user.
    pub(super) fn sync_speed_min(&self) -> u32 {
        self.sync_speed_min.load(Ordering::Relaxed)
    }

    /// The most that a sync task may do, in KiB/s of a member.
    pub(super) fn sync_speed_max(&self) -> Option<u32> {
        Some(self.sync_speed_max.load(Ordering::Relaxed)).filter(|&most| most > 0)
    }

    /// In a hundred of what may be in flight, so much is for a sync task while users are there.
    pub(super) fn sync_cache_share(&self) -> u32 {
        self.sync_cache_share.load(Ordering::Relaxed)
    }

    /// By how much slow requests of users may get slower over a sync task.
    pub(super) fn sync_latency_target(&self) -> Option<f64> {
        let thousandths = self.sync_latency_target.load(Ordering::Relaxed);
        (thousandths > 0).then(|| f64::from(thousandths) / f64::from(MILLIS))
    }

    /// Whether sync tasks start though another array syncs on the same devices.
    pub(super) fn sync_force_parallel(&self) -> bool {
        self.sync_force_parallel.load(Ordering::Relaxed) > 0
    }

    /// Sectors of each member that the stripe cache has room for.
    pub(super) fn stripe_cache_sectors(&self) -> u64 {
        u64::from(self.stripe_cache_size()) * u64::from(self.start.unit_sectors())
    }

    /// How the copy to read is chosen.
    #[inline]
    pub(super) fn read_policy(&self) -> ReadPolicy {
        ReadPolicy::ALL[self.read_policy.load(Ordering::Relaxed) as usize]
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

    /// Whether a lone write may read more of its row than it needs.
    pub(super) fn hedged_reads(&self) -> bool {
        self.hedged_reads.load(Ordering::Relaxed) > 0
    }

    /// Whether parity that a crash left in doubt is believed, as md does.
    pub(super) fn accepts_doubt(&self) -> bool {
        self.accept_doubt.load(Ordering::Relaxed) > 0
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
