//! How fast a sync task goes: how much of it is in flight, and when the next window may begin.
//!
//! Nothing here has a clock or does anything: the task tells what began and ended, and asks.

use std::collections::VecDeque;
use std::time::Duration;

use super::super::settings::Settings;
use super::super::users::Users;
use super::courtesy::Courtesy;
use super::depth::{Depth, PIECE_SECTORS};
use crate::time::Time;

#[cfg(test)]
mod tests;

/// Sectors in a KiB, the unit of md's speeds.
const KIB_SECTORS: f64 = 2.0;

/// Pieces that one window may be, where so many are in flight that there are enough windows all the
/// same.
const WINDOW_PIECES_MAX: u64 = 4;
const ENOUGH_WINDOWS: u64 = 16;

/// Windows while users are there: 64 KiB, so that they wait less for one.
const SHARED_SECTORS: u64 = PIECE_SECTORS / 2;

/// What a member's queue holds, in pieces: of it users are left their part.
const QUEUE_PIECES: u64 = 32;

/// The least that a window waits, and the most before it is looked again whether it has to.
const SHORTEST: Duration = Duration::from_micros(1);
const PAUSED_AGAIN: Duration = Duration::from_millis(10);

/// Marks between which the speed is told, as md has them.
const MARKS: usize = 10;
const MARK_EVERY: Duration = Duration::from_secs(3);

/// What may be in flight now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flight {
    /// Windows side by side.
    pub(super) windows: usize,
    /// The most sectors of one on each member.
    pub(super) window_sectors: u64,
}

/// The pace of one task.
pub(super) struct Pace {
    depth: Depth,
    courtesy: Courtesy,
    /// Sectors that began before the speed allowed it, as of `settled`.
    debt: f64,
    settled: Time,
    done_sectors: u64,
    marks: VecDeque<(Time, u64)>,
}

impl Pace {
    pub(super) fn new(now: Time) -> Self {
        let marks = [(now, 0)].into();
        let (depth, courtesy) = (Depth::default(), Courtesy::new(now));
        Self { depth, courtesy, debt: 0.0, settled: now, done_sectors: 0, marks }
    }

    /// What may be in flight.
    pub(super) fn flight(&self, settings: &Settings) -> Flight {
        let alone = match settings.sync_io_depth() {
            0 => flight(self.depth.pieces()),
            windows => Flight { windows, window_sectors: PIECE_SECTORS },
        };
        match self.yields(settings) {
            true => alone.at_most(share_sectors(settings)),
            false => alone,
        }
    }

    /// Whether users go first.
    pub(super) fn yields(&self, settings: &Settings) -> bool {
        settings.sync_cache_share() < 100 && self.courtesy.yields(settings)
    }

    /// How long the next window has to wait; `None` when it may begin.
    pub(super) fn wait(
        &mut self,
        now: Time,
        settings: &Settings,
        users: &Users,
    ) -> Option<Duration> {
        self.courtesy.look(now, users, settings, self.done_sectors);
        let most = settings.sync_speed_max().map(f64::from);
        let allowed = self.courtesy.allowed_kib_s();
        let kib_s = most.into_iter().chain(allowed).reduce(f64::min);
        let Some(kib_s) = kib_s else {
            (self.debt, self.settled) = (0.0, now);
            return None;
        };
        let speed = kib_s.max(1.0) * KIB_SECTORS;
        let paid = now.since(self.settled).as_secs_f64() * speed;
        (self.debt, self.settled) = ((self.debt - paid).max(0.0), now);
        if kib_s <= 0.0 {
            return Some(PAUSED_AGAIN);
        }
        // Less than a sector is for the next time; and who waits sleeps, or the clock might stand.
        let wait = Duration::from_secs_f64(self.debt / speed).clamp(SHORTEST, PAUSED_AGAIN);
        (self.debt >= 1.0).then_some(wait)
    }

    /// Takes the beginning of a window.
    pub(super) fn begins(&mut self, sectors: u64) {
        self.debt += sectors as f64;
    }

    /// Takes the end of a window that was in flight for `took`.
    pub(super) fn ended(&mut self, now: Time, sectors: u64, took: Duration, settings: &Settings) {
        let fixed = settings.sync_io_depth() > 0 || settings.sync_speed_max().is_some();
        match fixed || self.courtesy.competes() {
            true => self.depth.disturbed(),
            false => self.depth.ended(now, sectors, took),
        }
        self.done_sectors += sectors;
        if self.marks.back().is_none_or(|(when, _)| now.since(*when) >= MARK_EVERY) {
            self.marks.push_back((now, self.done_sectors));
        }
        if self.marks.len() > MARKS {
            self.marks.pop_front();
        }
    }

    /// Speed over the last half a minute, in KiB/s of one member.
    pub(super) fn speed_kib_s(&self, now: Time) -> u64 {
        let Some((since, done)) = self.marks.front() else { return 0 };
        let span = now.since(*since).as_secs_f64().max(1e-3);
        ((self.done_sectors - done) as f64 / KIB_SECTORS / span) as u64
    }
}

impl Flight {
    /// No more sectors in flight than these, in narrower windows.
    fn at_most(self, sectors: u64) -> Self {
        let most = (sectors / SHARED_SECTORS).max(1) as usize;
        Self { windows: self.windows.min(most), window_sectors: SHARED_SECTORS }
    }
}

/// The part of the stripe cache, and of a member's queue, that a task may fill while users are there.
fn share_sectors(settings: &Settings) -> u64 {
    let queue = QUEUE_PIECES * PIECE_SECTORS;
    let room = match settings.has_parity() {
        true => queue.min(settings.stripe_cache_sectors()),
        false => queue,
    };
    room * u64::from(settings.sync_cache_share()) / 100
}

fn flight(pieces: u64) -> Flight {
    let wide = (pieces / ENOUGH_WINDOWS).clamp(1, WINDOW_PIECES_MAX);
    Flight { windows: (pieces / wide) as usize, window_sectors: wide * PIECE_SECTORS }
}
