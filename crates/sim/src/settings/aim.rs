//! Troubles that come at chosen moments: half-way through the engine's orderings.

use std::fmt;
use std::time::Duration;

use mdspace_engine::array::Point;
use serde::{Deserialize, Serialize};

use super::{Happening, words};

/// Something that happens when the engine comes to a point. The aims of a run take turns: the next one is
/// looked for when this one has come, or comes right after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aim {
    /// The point.
    #[serde(with = "words::point")]
    pub point: Point,
    /// What happens there. None: the next aim waits for this point to come first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub happening: Option<Happening>,
    /// To the disk, or the lane, with this number. None: to any.
    pub disk: Option<u16>,
    /// One in so many times; 0: whether the engine comes to the point or not.
    pub one_in: u64,
    /// Up to so much later: some orderings can only be broken in the time until the next point.
    pub late_by: Duration,
}

impl Aim {
    /// The same, and not later.
    #[must_use]
    pub fn at_once(self) -> Self {
        Self { late_by: Duration::ZERO, ..self }
    }

    /// Whether it follows the one before, wherever the engine is.
    pub fn follows(self) -> bool {
        self.one_in == 0
    }
}

impl fmt::Display for Aim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { point, happening, disk, one_in, late_by } = self;
        let late_by = late_by.as_micros();
        match happening {
            Some(happening) => write!(f, "{happening:?}")?,
            None => write!(f, "nothing")?,
        }
        if let Some(disk) = disk {
            write!(f, " to d{disk}")?;
        }
        if self.follows() {
            return write!(f, " then, up to {late_by} us later");
        }
        write!(f, " at 1 {} of {one_in} up to {late_by} us later", point.name())
    }
}
