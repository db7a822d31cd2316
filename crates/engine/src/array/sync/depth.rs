//! How much a sync task keeps in flight: as much as makes the members faster, and no more.
//!
//! What is in flight is speed times response. As long as more in flight brings more speed, members
//! were idle in between; where it only brings longer responses, it waits in their queues, and before
//! whatever users ask of them. Now and then it tries more, and less: a measurement that something else
//! has spoiled must not decide for good.

use std::time::Duration;

use crate::time::Time;

#[cfg(test)]
mod tests;

/// Sectors of a piece on one member: 128 KiB, so that a row of it stays in a core's cache.
pub(super) const PIECE_SECTORS: u64 = 256;

/// Pieces in flight on each member: at first, and at least and at most (8 MiB).
const FIRST: u64 = 4;
const LEAST: u64 = 2;
const MOST: u64 = 64;

/// Twice as much in flight is worth it for so much more speed; half of it is enough for so much of it.
const WORTH: f64 = 1.15;
const ENOUGH: f64 = 0.98;

/// Responses that are so much longer, without more speed, are too long.
const TOO_LONG: f64 = 2.0;

/// Least time of one measurement, and measurements before something is tried again.
const EPOCH: Duration = Duration::from_millis(4);
const REST: u32 = 32;

/// Pieces in flight, found by trying.
pub(super) struct Depth {
    pieces: u64,
    epoch: Epoch,
    /// What is being tried, and what the depth before it brought.
    trial: Option<(Trial, Measured)>,
    /// What is tried next.
    next: Trial,
    /// What it brought when it was settled.
    settled: Option<Measured>,
    /// The last response was too long: half of it was perhaps from before whatever changed.
    slow: bool,
    rest: u32,
}

/// A change of which nobody knows yet whether it is for the better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trial {
    Twice,
    Half,
}

impl Trial {
    fn other(self) -> Self {
        match self {
            Self::Twice => Self::Half,
            Self::Half => Self::Twice,
        }
    }
}

/// What ended since some time.
struct Epoch {
    began: Option<Time>,
    /// Pieces that began before and do not count.
    stale: u64,
    sectors: u64,
    windows: u32,
    waited: Duration,
}

/// Speed in sectors a second, and the mean response.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Measured {
    speed: f64,
    response: f64,
}

impl Default for Depth {
    fn default() -> Self {
        let epoch = Epoch::after(0);
        let (trial, settled, next) = (None, None, Trial::Twice);
        Self { pieces: FIRST, epoch, trial, next, settled, slow: false, rest: 0 }
    }
}

impl Depth {
    /// Pieces to keep in flight on each member.
    pub(super) fn pieces(&self) -> u64 {
        self.pieces
    }

    /// Takes the end of a window that was in flight for `took`.
    pub(super) fn ended(&mut self, now: Time, sectors: u64, took: Duration) {
        self.epoch.add(now, sectors, took);
        let enough = 4 * self.pieces * PIECE_SECTORS;
        if let Some(measured) = self.epoch.measured(now, enough) {
            self.epoch = Epoch::after(0);
            self.decide(measured);
        }
    }

    /// What ends next says nothing: something else than this bounds what is in flight.
    pub(super) fn disturbed(&mut self) {
        self.epoch = Epoch::after(self.pieces);
        self.trial = None;
    }

    fn decide(&mut self, measured: Measured) {
        match (self.trial.take(), self.settled) {
            (Some((Trial::Twice, before)), _) if measured.speed < before.speed * WORTH => {
                self.change(self.pieces / 2);
                self.settle(before);
            }
            (Some((Trial::Half, before)), _) if measured.speed < before.speed * ENOUGH => {
                self.change(self.pieces * 2);
                self.settle(before);
            }
            (Some((trial, _)), _) => self.begin(trial, measured),
            (None, Some(settled)) if measured.is_too_long(&settled) => {
                if std::mem::replace(&mut self.slow, true) {
                    self.begin(Trial::Half, measured);
                }
            }
            (None, _) if self.rest > 0 => self.rest -= 1,
            (None, _) => {
                let next = self.next;
                self.next = next.other();
                self.begin(next, measured);
            }
        }
    }

    fn begin(&mut self, trial: Trial, before: Measured) {
        match trial {
            Trial::Twice if self.pieces < MOST => self.change(self.pieces * 2),
            Trial::Half if self.pieces > LEAST => self.change(self.pieces / 2),
            _ => return self.settle(before),
        }
        self.trial = Some((trial, before));
    }

    fn settle(&mut self, measured: Measured) {
        (self.settled, self.slow) = (Some(measured), false);
        self.rest = REST;
    }

    fn change(&mut self, pieces: u64) {
        self.epoch = Epoch::after(self.pieces.max(pieces));
        self.pieces = pieces.clamp(LEAST, MOST);
    }
}

impl Measured {
    /// Whether members take much longer than they did, and bring no more.
    fn is_too_long(&self, settled: &Self) -> bool {
        self.response > settled.response * TOO_LONG && self.speed < settled.speed * WORTH
    }
}

impl Epoch {
    fn after(stale: u64) -> Self {
        Self { began: None, stale, sectors: 0, windows: 0, waited: Duration::ZERO }
    }

    fn add(&mut self, now: Time, sectors: u64, took: Duration) {
        if self.stale > 0 {
            self.stale = self.stale.saturating_sub(sectors.div_ceil(PIECE_SECTORS));
            return;
        }
        if self.began.is_none() {
            // What ended first began before: it marks the time and no more.
            self.began = Some(now);
            return;
        }
        self.sectors += sectors;
        self.windows += 1;
        self.waited += took;
    }

    fn measured(&self, now: Time, enough: u64) -> Option<Measured> {
        let span = now.since(self.began?);
        let ripe = self.sectors >= enough && span >= EPOCH;
        ripe.then(|| Measured {
            speed: self.sectors as f64 / span.as_secs_f64(),
            response: self.waited.as_secs_f64() / f64::from(self.windows),
        })
    }
}
