//! Redundancy that a crash or a failed write left in doubt, and how doubt ends.

use std::ops::Range;

use mdspace_format::Role;

use crate::backend::{IoError, MemberId};
use crate::geometry::{Geometry, Slot};
use crate::ranges::Ranges;

use super::super::rules::Rule;
use super::membership::Lacks;
use super::why_idle::Event;
use super::{CommandError, Controller, Member, Reply, WriteMode};

/// Most pieces of doubt that writes leave behind.
const PIECES_MAX: usize = 1 << 14;

impl Controller {
    /// Ends the doubt of ranges in which P and Q agree on a missing block: those rows are of one time.
    pub(super) async fn doubt_resolved(&mut self, ranges: &Ranges) {
        let is_lacked = self.lacked_by_filled(ranges).await;
        for range in ranges.iter() {
            self.is_synced(&range);
        }
        if self.doubted.is_empty() {
            self.happened(Event::Change);
        } else if is_lacked {
            self.happened(Event::Resynced);
        }
        self.tell_all_of_doubt().await;
    }

    /// Whether some of it has not come to a member that is filled, perhaps because it was in doubt.
    async fn lacked_by_filled(&self, ranges: &Ranges) -> bool {
        for member in self.members.iter().filter(|member| member.filled_to().is_some()) {
            let Role::Slot(slot) = member.role() else { continue };
            let on_member = self.on_members(ranges.clone(), &[Slot(slot)]).await;
            if !member.not_filled().both(&on_member).is_empty() {
                return true;
            }
        }
        false
    }

    /// Nothing is in doubt in a range any more. What became of tries to make it right says nothing of a later doubt.
    /// Where the array breaks doubt stays: members that failed are on no superblock, and are believed after a restart.
    pub(super) fn is_synced(&mut self, range: &Range<u64>) {
        if self.mode == WriteMode::Broken && self.array.rules.keep(Rule::BrokenArraysSettleNothing)
        {
            return;
        }
        for ranges in [
            &mut self.unsynced,
            &mut self.doubted,
            &mut self.unaccepted,
            &mut self.accepted_for_all,
            &mut self.unresolved,
            &mut self.without_room,
        ] {
            ranges.remove(range);
        }
        self.sync.giving_way.is_right(range);
        // It counts no more than that: it would only take up room.
        self.outliers.forget(range);
    }

    /// Ends the doubt of ranges that writes have made whole since: parity was made anew there, or every copy
    /// written, and every member that is believed took it. No lane needs to hear of it at once.
    pub(super) async fn doubt_made_whole(&mut self, ranges: &Ranges) {
        let here = |range: &Range<u64>| self.doubted.overlaps(range);
        let in_doubt: Ranges = ranges.iter().filter(here).collect();
        if in_doubt.is_empty() {
            return;
        }
        // Doubt in too many pieces costs more than it brings: resync ends it. Who needs such a row asks the mailbox, as
        // long as there is room.
        if self.doubted.iter().count() > PIECES_MAX
            && self.array.mailbox.stays_whole(&in_doubt, PIECES_MAX)
        {
            return;
        }
        let all = self.array.mailbox.whole();
        self.doubt_resolved(&all.iter().chain(in_doubt.iter()).collect()).await;
    }

    /// What waited for the end of doubt must not meet it again in an old view.
    async fn tell_all_of_doubt(&mut self) {
        let epoch = self.publish();
        self.array.views.adopted(epoch).await;
        self.array.views.settle();
    }

    /// Believes parity that is in doubt, as md does. What lacks a block is computed from it from now on,
    /// and what waited for that goes on.
    pub(super) async fn accept_doubt(&mut self) -> Result<Reply, CommandError> {
        if self.mode == WriteMode::Broken {
            return Err(self.broken());
        }
        if self.in_doubt().is_empty() {
            return Err(CommandError::NothingInDoubt);
        }
        self.believe_parity().await;
        Ok(Reply::Done)
    }

    /// The same, where the user wants it always (`accept_doubt`).
    pub(super) async fn accept_doubt_if_told(&mut self) {
        let told = self.array.settings.accepts_doubt() && self.mode != WriteMode::Broken;
        if told && !self.in_doubt().is_empty() {
            self.believe_parity().await;
        }
    }

    /// Takes parity in doubt as it is. Where as many members lack their blocks as there are parities nothing is left
    /// that could disagree; else the rows stay in doubt until resync has made the rest agree. So they do where memory
    /// alone lists a block: after a restart it is read as it was, unless what is accepted is written there before.
    async fn believe_parity(&mut self) {
        self.fill_accepted_anew();
        self.accepted_for_all = self.doubted.both(&self.nothing_disagrees(Lacks::Now));
        let ends = match self.array.rules.keep(Rule::AcceptedIsWrittenFirst) {
            true => Lacks::ForGood,
            false => Lacks::Now,
        };
        for range in self.nothing_disagrees(ends).iter() {
            self.accepted_for_all.remove(&range);
            self.doubted.remove(&range);
            self.outliers.forget(&range);
        }
        self.trust_initial_parity();
        self.unaccepted = Ranges::default();
        self.happened(Event::Change);
        self.tell_all_of_doubt().await;
        // What a rebuild has left out because of it is filled by the next one, which goes on where this one is.
        if self.sync.fills_members() {
            self.end_sync();
        }
    }

    /// What a rebuild has begun in rows whose doubt is accepted does not count: it is gone round there, or what it
    /// computes does not fit the parity that is believed from now on.
    fn fill_accepted_anew(&mut self) {
        let accepted = self.in_doubt();
        let filled = self.members.iter().filter(|member| member.slot().is_some());
        let begun = filled.map(|member| {
            let mut begun = member.not_filled();
            begun.remove(&(self.begun_to(member.id)..u64::MAX));
            (member.id, accepted.both(&begun))
        });
        let begun: Vec<_> = begun.filter(|(_, begun)| !begun.is_empty()).collect();
        if !begun.is_empty() {
            self.lack_again(&begun);
        }
    }

    /// The user accepted doubt for what was missing then: not where a member has its blocks that goes now.
    pub(super) fn accepted_without(&mut self, failed: &[(MemberId, IoError)]) {
        for (id, _) in failed {
            let goes = |member: &&Member| member.id == *id && member.slot().is_some();
            let Some(member) = self.members.iter().find(goes) else { continue };
            let mut held = self.doubted.clone();
            member.not_filled().iter().for_each(|range| held.remove(&range));
            for range in held.iter() {
                self.accepted_for_all.remove(&range);
                self.unaccepted.insert(range);
            }
        }
    }

    /// Where a block that is missing or listed as bad cannot be computed, for its parity is in doubt, as
    /// [`ArrayView::in_doubt`](super::super::view::ArrayView::in_doubt) has it: what was accepted before is parity for
    /// one block of the row. Mirrors are not among it: one copy of theirs is believed.
    pub(super) fn in_doubt(&self) -> Ranges {
        if self.doubted.is_empty() || !matches!(*self.geometry, Geometry::Parity(_)) {
            return Ranges::default();
        }
        let mut in_doubt = self.unaccepted.clone();
        let mut of_two = self.doubted.both(&self.lacked_by(2, Lacks::Now));
        self.accepted_for_all.iter().for_each(|range| of_two.remove(&range));
        of_two.iter().for_each(|range| in_doubt.insert(range));
        in_doubt
    }

    /// Whether a resync of `todo` may end doubt.
    pub(super) fn resolves_doubt(&self, todo: &Ranges) -> bool {
        todo.iter().any(|range| self.doubted.overlaps(&range))
    }

    /// What resync can make right now below `end`, and has not tried in vain. What a crash left in doubt comes before
    /// the rest, and before any member is filled: until then a block that is lost besides stays lost.
    pub(super) fn to_resync(&self, end: u64) -> Option<Ranges> {
        let parity = matches!(*self.geometry, Geometry::Parity(_));
        // A lost block comes from parity: it takes one to believe, and another one to make right.
        if parity && self.degraded() >= usize::from(self.geometry.max_failures()) {
            return None;
        }
        let mut todo = match self.doubted.is_empty() {
            true => self.unsynced.clone(),
            false => self.doubted.clone(),
        };
        let left = || {
            self.unresolved
                .iter()
                .chain(self.without_room.iter())
                .chain(std::iter::once(end..u64::MAX))
        };
        left().for_each(|range| todo.remove(&range));
        if todo.is_empty() && !self.doubted.is_empty() {
            todo = self.unsynced.clone();
            left().chain(self.doubted.iter()).for_each(|range| todo.remove(&range));
        }
        Some(todo).filter(|todo| !todo.is_empty())
    }
}
