//! What a round, or a reconstruction, asked of members and did not get.

use smallvec::SmallVec;

use super::plan::Place;

/// Places of a row that gave nothing in this very attempt.
#[derive(Debug, Default)]
pub(super) struct Unread {
    places: SmallVec<[(Place, Cause); 2]>,
    /// Whether what cannot be done without late members waits for them.
    waiting: Waiting,
}

/// Whether late members are asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Waiting {
    /// Not as long as it can be done without them.
    #[default]
    NotYet,
    /// They are, and have all the time that they need.
    Now,
    /// They are not: whoever asks comes back another time.
    Never,
}

/// Why a place gave nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Its sectors cannot be read; others of the member can.
    Unreadable,
    /// Its member has not answered in time.
    Late,
    /// Its member failed.
    Lost,
}

impl Unread {
    pub(super) fn insert(&mut self, place: Place, cause: Cause) {
        self.places.push((place, cause));
    }

    /// Whether `place` is not to be asked again.
    pub(super) fn has(&self, place: Place) -> bool {
        self.places.iter().any(|(known, _)| *known == place)
    }

    /// Whether the member of `place` has not answered in time.
    pub(super) fn is_late(&self, place: Place) -> bool {
        self.places.contains(&(place, Cause::Late))
    }

    /// Whether nothing was missed, and nobody is waited for.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty() && !self.waits()
    }

    /// Whether `place` has sectors that cannot be read.
    pub(super) fn is_unreadable(&self, place: Place) -> bool {
        self.places.contains(&(place, Cause::Unreadable))
    }

    /// Places with sectors that cannot be read.
    pub(super) fn unreadable(&self) -> impl Iterator<Item = Place> {
        let unreadable = self.places.iter().filter(|(_, cause)| *cause == Cause::Unreadable);
        unreadable.map(|(place, _)| *place)
    }

    /// Of a sync task, which holds no claim while it waits for a member.
    pub(super) fn of_sync() -> Self {
        Self { waiting: Waiting::Never, ..Self::default() }
    }

    /// Whether it is a sync task that asks.
    pub(super) fn is_of_sync(&self) -> bool {
        self.waiting == Waiting::Never
    }

    /// Whether members that let reads pass their deadlines are asked all the same.
    pub(super) fn waits(&self) -> bool {
        self.waiting == Waiting::Now
    }

    /// Whether someone let a read pass its deadline.
    pub(super) fn any_late(&self) -> bool {
        self.places.iter().any(|(_, cause)| *cause == Cause::Late)
    }

    /// Whether someone has sectors that cannot be read.
    pub(super) fn any_unreadable(&self) -> bool {
        self.places.iter().any(|(_, cause)| *cause == Cause::Unreadable)
    }

    /// The array has changed: what gave nothing may give something now.
    pub(super) fn ask_again(&mut self) {
        self.places.clear();
    }

    /// From now on late members are waited for. False when they were already, or may not be: it cannot
    /// be done.
    pub(super) fn wait_for_late(&mut self) -> bool {
        let begins = self.waiting == Waiting::NotYet;
        if begins {
            self.waiting = Waiting::Now;
            self.places.retain(|(_, cause)| *cause != Cause::Late);
        }
        begins
    }
}
