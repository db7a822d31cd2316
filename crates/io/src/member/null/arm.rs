//! Where a disk's heads are, and how long they take to be elsewhere.

use std::time::Duration;

use mdspace_engine::time::Time;

use super::drive::Rotation;

/// The mean of the root of the distance between two places of a line of length 1.
const MEAN_ROOT: f64 = 8.0 / 15.0;

/// The arm of a disk with one rate all over. A seek costs the root of its distance above that to
/// the next track, as an arm does that speeds up half the way; then the sector must come around.
/// Sectors that follow the last ones cost nothing: the disk has read ahead, or kept the write.
#[derive(Debug)]
pub(super) struct Arm {
    turn: Duration,
    track_sectors: u64,
    sectors: f64,
    track_seek: f64,
    /// From the first track to the last, above `track_seek`; in seconds, as that is.
    stroke: f64,
    next_sector: u64,
}

impl Arm {
    pub(super) fn new(rotation: &Rotation, bytes_per_second: u64, sectors: u64) -> Self {
        let turn = Duration::from_secs(60) / u32::try_from(rotation.turns_per_minute).unwrap_or(1);
        let track_seek = rotation.track_seek.as_secs_f64();
        Self {
            turn,
            track_sectors: ((turn.as_secs_f64() * bytes_per_second as f64) as u64 / 512).max(1),
            sectors: sectors as f64,
            track_seek,
            stroke: (rotation.seek.as_secs_f64() - track_seek).max(0.0) / MEAN_ROOT,
            next_sector: 0,
        }
    }

    /// Moves to an extent at `at` and past it. `queued` I/Os, this one among them, were there to
    /// choose the nearest from.
    pub(super) fn reach(&mut self, at: Time, sector: u64, sectors: u64, queued: usize) -> Duration {
        let distance = self.next_sector.abs_diff(sector);
        self.next_sector = sector + sectors;
        if distance == 0 {
            return Duration::ZERO;
        }
        let seek = self.seek(distance);
        (seek + self.wait_for(sector, at + seek)).mul_f64(shortened(queued))
    }

    fn seek(&self, distance: u64) -> Duration {
        if distance < self.track_sectors {
            return Duration::ZERO;
        }
        let part = (distance as f64 / self.sectors).min(1.0);
        Duration::from_secs_f64(self.track_seek + self.stroke * part.sqrt())
    }

    /// From `at` until the sector comes around.
    fn wait_for(&self, sector: u64, at: Time) -> Duration {
        let turn = self.turn.as_nanos() as u64;
        let place = (sector % self.track_sectors) as f64 / self.track_sectors as f64;
        let there = (place * turn as f64) as u64;
        Duration::from_nanos((there + turn - at.as_nanos() % turn) % turn)
    }
}

/// What is left of seek and rotation where a disk may choose among `queued` I/Os: half with 16, as
/// a 7200/min disk goes from 85 random reads a second to 170 by its specification.
fn shortened(queued: usize) -> f64 {
    1.0 / (1.0 + (queued.max(1) as f64).log2() / 4.0)
}

#[cfg(test)]
mod tests;
