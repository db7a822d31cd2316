//! What a round, or a reconstruction, asked of members and did not get.

use std::time::Duration;

use smallvec::SmallVec;

use crate::backend::MemberId;

use super::plan::Place;
use super::rules::{Rule, keep};

/// Members that gave nothing for their place of a row in this very attempt. Another member may have come
/// into the slot since, and has not been asked.
#[derive(Clone, Debug, Default)]
pub(super) struct Unread {
    missed: SmallVec<[Missed; 2]>,
    /// Whether what cannot be done without late members waits for them.
    waiting: Waiting,
    /// How often others were asked again meanwhile.
    looks: Looks,
}

/// How often a wait for a late member ended because others seemed to suffice. The waits get ever longer: others that are
/// late again and again keep no slow member from its answer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Looks(u32);

/// The shortest wait for a late member before others are asked again.
const FIRST_LOOK_AFTER: Duration = Duration::from_secs(1);

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

impl Looks {
    /// How long to wait before the next one.
    pub(super) fn next(self) -> Duration {
        match keep(Rule::LateOnesAreLookedAtAgain) {
            true => FIRST_LOOK_AFTER.saturating_mul(1 << self.0.min(31)),
            false => Duration::from_secs(u32::MAX.into()),
        }
    }

    pub(super) fn count(&mut self) {
        self.0 += 1;
    }
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

    /// How long a late member is waited for before others are asked again.
    pub(super) fn next_look(&self) -> Duration {
        self.looks.next()
    }

    /// The same with nobody waited for, and this member late.
    pub(super) fn without(&self, place: Place, member: MemberId) -> Self {
        let mut without = Self { waiting: Waiting::NotYet, looks: self.looks, ..self.clone() };
        without.looks.count();
        without.insert(place, member, Cause::Late);
        without
    }

    /// Whether late members are to be waited for where it cannot be done without them.
    pub(super) fn may_wait(&self) -> bool {
        self.waiting == Waiting::NotYet
    }

    /// The same without the members of which some sectors cannot be read, and others can.
    pub(super) fn of_whole_members(&self) -> Self {
        let mut of_whole = self.clone();
        of_whole.missed.retain(|missed| missed.cause != Cause::Unreadable);
        of_whole
    }

    /// From now on late members are waited for. False when they were already, or may not be: it cannot
    /// be done.
    pub(super) fn wait_for_late(&mut self) -> bool {
        let begins = self.may_wait();
        if begins {
            self.waiting = Waiting::Now;
            self.missed.retain(|missed| missed.cause != Cause::Late);
        }
        begins
    }
}
