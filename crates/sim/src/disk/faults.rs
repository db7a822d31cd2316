//! What is wrong with a disk. A plan sets it; the disk obeys it I/O by I/O.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use mdspace_engine::backend::{IoError, IoErrorKind};
use mdspace_engine::time::Time;

/// Everything that is wrong with one disk now.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// It answers every I/O with "gone".
    pub gone: bool,
    /// Until then there is no space but where something was written before.
    pub full_until: Option<Time>,
    /// It answers nothing.
    pub hang: Option<Hang>,
    /// It answers nothing that is asked of these sectors until then: slowness in one place, and no fault.
    pub held: Option<Held>,
    /// It takes so many times as long.
    pub slowness: Option<u32>,
    /// So many flushes to come fail.
    pub flush_errors: u32,
    unreadable: BTreeMap<u64, Healing>,
    write_errors: Vec<WriteError>,
    mishaps: VecDeque<Mishap>,
}

/// When a hung disk goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hang {
    /// Never.
    ForEver,
    /// Then.
    Until(Time),
}

/// Sectors that are answered late.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Which.
    pub sectors: Range<u64>,
    /// Until then.
    pub until: Time,
}

/// What makes an unreadable sector readable again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Healing {
    /// A write to it.
    Rewrite,
    /// That, or time: it can be read again from then on.
    At(Time),
    /// Nothing.
    Never,
}

/// How often a range refuses writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// The next writes, so many.
    Times(u32),
    /// Every write.
    Sticky,
}

/// What silently becomes of the next write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// It is acknowledged and not done.
    Lost,
    /// It lands so many sectors further on.
    Misdirected(u64),
    /// One of its bits is flipped.
    Flipped,
}

#[derive(Clone, Debug)]
struct WriteError {
    range: Range<u64>,
    persistence: Persistence,
}

const EIO: i32 = 5;
const ENODEV: i32 = 19;
const ENOSPC: i32 = 28;

impl Faults {
    /// Makes `range` unreadable.
    pub fn spoil(&mut self, range: Range<u64>, healing: Healing) {
        self.unreadable.extend(range.map(|sector| (sector, healing)));
    }

    /// Makes writes to `range` fail.
    pub fn refuse_writes(&mut self, range: Range<u64>, persistence: Persistence) {
        self.write_errors.push(WriteError { range, persistence });
    }

    /// Lets the next write that nothing else stops meet `mishap`.
    pub fn befall(&mut self, mishap: Mishap) {
        self.mishaps.push_back(mishap);
    }

    /// It is `now`: what was wrong until then is over.
    pub fn pass(&mut self, now: Time) {
        self.unreadable.retain(|_, healing| !matches!(healing, Healing::At(when) if *when <= now));
        self.full_until = self.full_until.filter(|until| *until > now);
        self.held.take_if(|held| held.until <= now);
        self.hang = self.hang.filter(|hang| !matches!(hang, Hang::Until(until) if *until <= now));
    }

    /// Sectors of a range that it cannot read.
    pub fn unreadable(&self, range: Range<u64>) -> impl Iterator<Item = u64> {
        self.unreadable.range(range).map(|(&sector, _)| sector)
    }

    /// Whether an I/O to `range` could fail, for want of space excepted.
    pub fn touches(&self, range: &Range<u64>) -> bool {
        self.gone
            || self.hang.is_some()
            || self.flush_errors > 0
            || self.unreadable.range(range.clone()).next().is_some()
            || self.write_errors.iter().any(|error| overlap(&error.range, range))
    }

    /// Whether anything is wrong that an I/O could meet.
    pub fn any(&self) -> bool {
        self.touches(&(0..u64::MAX))
    }

    pub(super) fn read(&self, range: &Range<u64>) -> Result<(), IoError> {
        self.present()?;
        match self.unreadable.range(range.clone()).next() {
            Some(_) => Err(error(IoErrorKind::Medium, EIO)),
            None => Ok(()),
        }
    }

    /// `has_space`: whether the range has space behind it already.
    pub(super) fn write(&mut self, range: &Range<u64>, has_space: bool) -> Result<(), IoError> {
        self.present()?;
        if self.full_until.is_some() && !has_space {
            return Err(error(IoErrorKind::NoSpace, ENOSPC));
        }
        if let Some(at) = self.write_errors.iter().position(|e| overlap(&e.range, range)) {
            match &mut self.write_errors[at].persistence {
                Persistence::Times(0 | 1) => drop(self.write_errors.remove(at)),
                Persistence::Times(left) => *left -= 1,
                Persistence::Sticky => {}
            }
            return Err(error(IoErrorKind::Medium, EIO));
        }
        let healed: Vec<u64> = self.unreadable.range(range.clone()).map(|(&at, _)| at).collect();
        for sector in healed {
            if self.unreadable[&sector] != Healing::Never {
                self.unreadable.remove(&sector);
            }
        }
        Ok(())
    }

    pub(super) fn flush(&mut self) -> Result<(), IoError> {
        self.present()?;
        if self.flush_errors > 0 {
            self.flush_errors -= 1;
            return Err(error(IoErrorKind::Other, EIO));
        }
        Ok(())
    }

    pub(super) fn mishap(&mut self) -> Option<Mishap> {
        self.mishaps.pop_front()
    }

    fn present(&self) -> Result<(), IoError> {
        if self.gone { Err(error(IoErrorKind::Gone, ENODEV)) } else { Ok(()) }
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

fn error(kind: IoErrorKind, errno: i32) -> IoError {
    IoError { kind, errno }
}
