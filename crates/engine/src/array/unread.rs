//! What a round, or a reconstruction, asked of members and did not get.

use smallvec::SmallVec;

use crate::backend::MemberId;

use super::plan::Place;

/// Looks at most at what waits for a late member.
pub(super) const LOOKS_MAX: u8 = 3;

/// Members that gave nothing for their place of a row in this very attempt. Another member may have come
/// into the slot since, and has not been asked.
#[derive(Debug, Default)]
pub(super) struct Unread {
    missed: SmallVec<[Missed; 2]>,
    /// Whether what cannot be done without late members waits for them.
    waiting: Waiting,
    /// How often it was looked at again while it waited.
    looks: u8,
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

#[derive(Clone, Copy, Debug)]
struct Missed {
    place: Place,
    member: MemberId,
    cause: Cause,
}

/// Why a member gave nothing.
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
    pub(super) fn insert(&mut self, place: Place, member: MemberId, cause: Cause) {
        self.missed.push(Missed { place, member, cause });
    }

    /// Whether the member is not to be asked for `place` again.
    pub(super) fn has(&self, place: Place, member: MemberId) -> bool {
        self.missed.iter().any(|missed| missed.place == place && missed.member == member)
    }

    /// Whether the member has not answered for `place` in time.
    pub(super) fn is_late(&self, place: Place, member: MemberId) -> bool {
        self.because_of(Cause::Late).any(|late| late.place == place && late.member == member)
    }

    fn because_of(&self, cause: Cause) -> impl Iterator<Item = &Missed> {
        self.missed.iter().filter(move |missed| missed.cause == cause)
    }

    /// Whether nothing was missed, and nobody is waited for.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.missed.is_empty() && !self.waits()
    }

    /// Whether `place` has sectors that cannot be read.
    pub(super) fn is_unreadable(&self, place: Place) -> bool {
        self.because_of(Cause::Unreadable).any(|missed| missed.place == place)
    }

    /// Members that failed and did not give `place`.
    pub(super) fn failed(&self, place: Place) -> impl Iterator<Item = MemberId> {
        let here = self.because_of(Cause::Lost).filter(move |missed| missed.place == place);
        here.map(|missed| missed.member)
    }

    /// Members with sectors that cannot be read.
    pub(super) fn unreadable(&self) -> impl Iterator<Item = MemberId> {
        self.because_of(Cause::Unreadable).map(|missed| missed.member)
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
        self.because_of(Cause::Late).next().is_some()
    }

    /// Whether someone has sectors that cannot be read.
    pub(super) fn any_unreadable(&self) -> bool {
        self.because_of(Cause::Unreadable).next().is_some()
    }

    /// The array has changed: what gave nothing may give something now.
    pub(super) fn ask_again(&mut self) {
        self.missed.clear();
    }

    /// Whether what waits for a late member is looked at again when another one answers. Members that are slow, and late
    /// now and then, must not keep it from its end.
    pub(super) fn may_look_again(&self) -> bool {
        self.looks < LOOKS_MAX
    }

    /// A late member answers again: it may do without those that are waited for.
    pub(super) fn look_again(&mut self) {
        self.looks += 1;
        if self.waits() {
            self.waiting = Waiting::NotYet;
        }
    }

    /// From now on late members are waited for. False when they were already, or may not be: it cannot
    /// be done.
    pub(super) fn wait_for_late(&mut self) -> bool {
        let begins = self.waiting == Waiting::NotYet;
        if begins {
            self.waiting = Waiting::Now;
            self.missed.retain(|missed| missed.cause != Cause::Late);
        }
        begins
    }
}
