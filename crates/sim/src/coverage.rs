//! In how many seeds the engine came to each point of its orderings: troubles can only come where it goes.

use std::fmt;

use mdspace_engine::array::Point;
use mdspace_sim::simulation::Outcome;

/// Seeds by point.
#[derive(Default)]
pub(super) struct Coverage {
    seeds: u64,
    reached: [u64; Point::ALL.len()],
}

impl Coverage {
    /// Counts a seed.
    pub(super) fn add(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        for (count, point) in self.reached.iter_mut().zip(Point::ALL) {
            *count += u64::from(outcome.reached >> (*point as u32) & 1 == 1);
        }
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (point, count) in Point::ALL.iter().zip(self.reached) {
            writeln!(f, "{:<24} {count:>8} of {} seeds", point.name(), self.seeds)?;
        }
        let never = Point::ALL.iter().zip(self.reached).filter(|(_, count)| *count == 0);
        let names: Vec<&str> = never.map(|(point, _)| point.name()).collect();
        match names.is_empty() {
            true => writeln!(f, "every point was reached"),
            false => writeln!(f, "never reached: {}", names.join(", ")),
        }
    }
}
