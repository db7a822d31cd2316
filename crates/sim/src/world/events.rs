//! What is to happen, ordered by time and, within one instant, by chance.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use mdspace_engine::lane::LaneId;
use mdspace_engine::time::Time;

use super::flight::FlightId;
use super::wires::WireIndex;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// An alarm that the caller of `step` set.
    Alarm(u64),
    /// A lane runs what is ready.
    Turn(LaneId),
    /// The disk does what was asked.
    Effect(FlightId),
    /// The disk says so.
    Finish(FlightId),
    /// The lane stops waiting.
    Deadline(FlightId),
    /// What a multipath device asked of the world is done.
    Wish(u64),
    /// A server that was stopped goes on.
    Thaw(WireIndex),
}

#[derive(Debug, Default)]
pub(super) struct EventQueue {
    /// By time, then by a random number, then by order of arrival.
    waiting: BinaryHeap<Reverse<(Time, u64, u64, Event)>>,
    arrivals: u64,
}

impl EventQueue {
    pub(super) fn add(&mut self, when: Time, tie: u64, event: Event) {
        self.arrivals += 1;
        self.waiting.push(Reverse((when, tie, self.arrivals, event)));
    }

    pub(super) fn next(&mut self) -> Option<(Time, Event)> {
        self.waiting.pop().map(|Reverse((when, _, _, event))| (when, event))
    }

    /// Forgets everything but alarms.
    pub(super) fn retain_alarms(&mut self) {
        self.waiting.retain(|Reverse((.., event))| matches!(event, Event::Alarm(_)));
    }
}
