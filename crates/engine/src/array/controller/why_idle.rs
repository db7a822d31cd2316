//! Why something that the array needs does not run: one set of reasons, and what ends each.

use crate::time::Time;

#[cfg(test)]
mod tests;

/// What a sync task is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Filling members that lack data.
    Recovery,
    /// Copying members to those that replace them.
    Replacement,
    /// Making redundancy right.
    Resync,
    /// A check or repair that a user asked for.
    Request,
}

/// Why it does not run now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// A user wants nothing to start by itself.
    Frozen,
    /// The array takes no writes.
    ReadOnly,
    /// Too many members are lost.
    Broken,
    /// The array is about to end.
    Stopping,
    /// It ran and could not do all, and nothing has changed since. What a resync could not do is known by
    /// range: see [`unresolved`](super::Controller::unresolved).
    Failed(Work),
    /// It found no space behind a member, or waits for the verdict on a write. It is tried again at this time. Of a
    /// resync what had no space is known by range: see [`without_room`](super::Controller::without_room).
    Later(Work, Time),
}

/// What may end a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Something is not as it was: a member came, went or is something else, doubt ended, writes may go
    /// again.
    Change,
    /// A user wants what is needed to run.
    GoOn,
    /// A user wants nothing to start by itself.
    Freeze,
    /// A user asks for a check or repair.
    Request,
    /// A resync made redundancy right, or a write did where a member that is filled lacks something.
    Resynced,
    /// It is so late now.
    Clock(Time),
}

/// The reasons that hold now.
#[derive(Default)]
pub(super) struct WhyIdle(Vec<Reason>);

impl WhyIdle {
    /// Adds a reason. The last word about one work counts.
    pub(super) fn add(&mut self, reason: Reason) {
        self.0.retain(|known| !known.is_replaced_by(reason));
        self.0.push(reason);
    }

    /// Adds or takes away a reason that the array's state gives.
    pub(super) fn holds(&mut self, reason: Reason, holds: bool) {
        self.0.retain(|known| *known != reason);
        self.0.extend(holds.then_some(reason));
    }

    /// Takes away what ends with this.
    pub(super) fn happened(&mut self, event: Event) {
        self.0.retain(|reason| !reason.ends_with(event));
        if event == Event::Freeze {
            self.0.push(Reason::Frozen);
        }
    }

    /// Whether this would end any of them.
    pub(super) fn waits_for(&self, event: Event) -> bool {
        self.0.iter().any(|reason| reason.ends_with(event))
    }

    /// Whether anything keeps this from running.
    pub(super) fn keeps(&self, work: Work) -> bool {
        self.0.iter().any(|reason| reason.keeps(work))
    }

    /// Whether nothing runs, whatever it is.
    pub(super) fn keeps_all(&self) -> bool {
        self.0.iter().any(|reason| reason.work().is_none())
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.0.contains(&Reason::Frozen)
    }

    /// When the clock ends the next reason.
    pub(super) fn next_alarm(&self) -> Option<Time> {
        let alarm = |reason: &Reason| match reason {
            Reason::Later(_, again) => Some(*again),
            _ => None,
        };
        self.0.iter().filter_map(alarm).min()
    }
}

impl Reason {
    /// What alone it keeps from running.
    fn work(self) -> Option<Work> {
        match self {
            Self::Frozen | Self::ReadOnly | Self::Broken | Self::Stopping => None,
            Self::Failed(work) | Self::Later(work, _) => Some(work),
        }
    }

    fn keeps(self, work: Work) -> bool {
        self.work().is_none_or(|kept| kept == work)
    }

    fn is_replaced_by(self, newer: Self) -> bool {
        self == newer || self.work().is_some() && self.work() == newer.work()
    }

    fn ends_with(self, event: Event) -> bool {
        match (self, event) {
            (Self::Frozen, Event::GoOn | Event::Request | Event::Freeze) => true,
            (Self::Frozen, _) => false,
            // The array's state alone says so.
            (Self::ReadOnly | Self::Broken | Self::Stopping, _) => false,
            (Self::Failed(_) | Self::Later(..), Event::Change) => true,
            (Self::Failed(_) | Self::Later(..), Event::GoOn | Event::Freeze) => true,
            (Self::Failed(_) | Self::Later(..), Event::Request) => false,
            // A block that could not be computed may be now.
            (Self::Failed(work), Event::Resynced) => work != Work::Resync,
            (Self::Later(..), Event::Resynced) => false,
            (Self::Failed(_), Event::Clock(_)) => false,
            (Self::Later(_, again), Event::Clock(now)) => now >= again,
        }
    }
}
