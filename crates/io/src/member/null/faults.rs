//! When a drive goes wrong.

use std::time::Duration;

use mdspace_engine::time::Time;

use super::drive::FaultRates;
use super::random::Random;

#[derive(Debug)]
pub(super) struct Faults {
    rates: FaultRates,
    limps_until: Time,
}

/// What becomes of one I/O.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fate {
    /// A medium error; only reads and writes know it.
    pub(super) fails: bool,
    /// How much longer the work takes.
    pub(super) factor: f64,
    /// For how long nothing happens before it.
    pub(super) hangs: Duration,
}

impl Faults {
    pub(super) fn new(rates: FaultRates) -> Self {
        Self { rates, limps_until: Time::ZERO }
    }

    /// The fate of an I/O that begins at `at`.
    pub(super) fn draw(&mut self, at: Time, random: &mut Random) -> Fate {
        let fails = random.happens(self.rates.error);
        let hangs = random.happens(self.rates.hang);
        if random.happens(self.rates.limp) {
            self.limps_until = at + self.rates.limp_time;
        }
        Fate {
            fails,
            factor: if at < self.limps_until { self.rates.limp_factor } else { 1.0 },
            hangs: if hangs { self.rates.hang_time } else { Duration::ZERO },
        }
    }
}
