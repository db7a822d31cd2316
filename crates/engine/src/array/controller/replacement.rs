//! Members that take a slot over from one that still does its work.
//!
//! A replacement gets every write of the slot, and what was there before is copied to it. When it has
//! all, the old member is faulty to the array, though nothing is wrong with it: it must not come back
//! with what is old by then. Both have the slot in the table of roles until that moment; the feature
//! bit in its own superblock tells which one is the replacement.

use std::time::Duration;

use crate::backend::{IoError, MemberId};
use crate::geometry::{Geometry, Slot};
use crate::ranges::Ranges;

use super::super::points::Point;
use super::super::rules::Rule;
use super::super::sync::SyncKind;
use super::super::view::MemberView;
use super::progress::Readable;
use super::why_idle::Work;
use super::{CommandError, Controller, Member, MemberState, Reply, WriteMode};

/// How long a replacement waits for the verdict on a write before it takes over.
const AGAIN_AFTER_A_WRITE: Duration = Duration::from_millis(100);

/// The same while no write begins.
const AGAIN_AT_REST: Duration = Duration::from_millis(20);

/// A slot that passes from one member to another, until the superblock of the new one says so.
pub(super) struct HandOver {
    new: MemberId,
    /// What the new one was before.
    was: MemberState,
    old: MemberId,
    slot: Slot,
    /// Whether the old one wants to be replaced.
    wanted: bool,
}

impl HandOver {
    /// Whether a member has its slot again if this is put off.
    pub(super) fn may_give_back_to(&self, id: MemberId) -> bool {
        self.old == id
    }
}

impl Controller {
    /// Orders that a member is replaced: by this spare, or by the next one that is not needed more.
    pub(super) async fn replace(
        &mut self,
        id: MemberId,
        with: Option<MemberId>,
    ) -> Result<Reply, CommandError> {
        let index = self.index_of(id).ok_or(CommandError::NotAMember)?;
        if !self.is_redundant() {
            return Err(CommandError::NoRedundancy);
        }
        self.takes_writes()?;
        let MemberState::InSync(slot) = self.members[index].state else {
            return Err(CommandError::NotReplaceable("it does not hold all data of a slot"));
        };
        if self.is_being_replaced(slot) {
            return Err(CommandError::NotReplaceable("another member is taking its place already"));
        }
        if let Some(with) = with {
            let index = self.index_of(with).ok_or(CommandError::NotAMember)?;
            if self.members[index].state != MemberState::Spare {
                return Err(CommandError::NotReplaceable("what is to replace it is no spare"));
            }
            self.members[index].state = MemberState::Replacing(slot, Readable::NOTHING);
            self.members[index].has_nothing();
            self.spares_got_slots().await;
        }
        self.members[index].wants_replacement = true;
        Ok(Reply::Done)
    }

    fn is_being_replaced(&self, slot: Slot) -> bool {
        let replaces =
            |state| matches!(state, MemberState::Replacing(replaced, _) if replaced == slot);
        self.members.iter().any(|member| replaces(member.state))
    }

    /// Whether someone takes the place of a member that wants to be replaced, or will.
    pub(super) fn can_replace(&self, index: usize) -> bool {
        let MemberState::InSync(slot) = self.members[index].state else { return false };
        let vacant = (0..self.geometry.raid_disks()).filter(|slot| !self.is_held(Slot(*slot)));
        let spares = self.members.iter().filter(|member| member.state == MemberState::Spare);
        self.is_being_replaced(slot) || spares.count() >= vacant.count() + self.to_replace().len()
    }

    /// Slots whose members are to be replaced, and nobody does it yet.
    pub(super) fn to_replace(&self) -> Vec<Slot> {
        let wanting = self.members.iter().filter(|member| member.wants_replacement);
        let slots = wanting.filter_map(|member| match member.state {
            MemberState::InSync(slot) => Some(slot),
            _ => None,
        });
        slots.filter(|slot| !self.is_being_replaced(*slot)).collect()
    }

    pub(super) fn replacing(&self) -> Vec<(MemberId, Slot, Readable)> {
        let members = self.members.iter().filter_map(|member| match member.state {
            MemberState::Replacing(slot, done) => Some((member.id, slot, done)),
            _ => None,
        });
        members.collect()
    }

    /// Those that may go on. Where copies may differ, users were answered from the first that is not
    /// write-mostly: a replacement that is not like its member there could make another one the first, and
    /// what was read as new would be old again. So it comes after resync.
    pub(super) fn may_replace(&self) -> Vec<(MemberId, Slot, Readable)> {
        let has_copies = !matches!(*self.geometry, Geometry::Parity(_));
        let mut replacing = self.replacing();
        if has_copies && !self.unsynced.is_empty() {
            replacing.retain(|&(id, slot, _)| self.are_alike(id, slot));
        }
        replacing
    }

    /// Whether a replacement is write-mostly if the member in its slot is.
    fn are_alike(&self, id: MemberId, slot: Slot) -> bool {
        let holds = |member: &&Member| member.id == id || member.state == MemberState::InSync(slot);
        let mut both = self.members.iter().filter(holds);
        let mostly = both.next().map(|member| member.superblock.flags.write_mostly());
        both.all(|other| Some(other.superblock.flags.write_mostly()) == mostly)
    }

    /// Goes on with these replacements.
    pub(super) fn start_replacement(&mut self, replacing: &[(MemberId, Slot, Readable)]) {
        let slots = replacing.iter().map(|(_, slot, _)| *slot).collect();
        let members: Vec<MemberId> = replacing.iter().map(|(id, ..)| *id).collect();
        let todo = self.not_filled(&members, Ranges::of(0..self.member_sectors()));
        self.start(SyncKind::Replace(slots), members, todo);
    }

    /// Where members are lost whose replacements have all of their slots, those are the members. Writes that are not
    /// judged yet are judged by that.
    pub(super) fn promote_filled(&mut self, lost: &[MemberId]) {
        for (id, slot, _) in self.replacing() {
            let is_lost = |member: &Member| {
                member.state == MemberState::InSync(slot) && lost.contains(&member.id)
            };
            if self.is_heir(id, lost)
                && self.members.iter().any(is_lost)
                && let Some(index) = self.index_of(id)
            {
                self.members[index].state = MemberState::InSync(slot);
            }
        }
    }

    /// Whether a member has all of a slot for good that it is to take over, and is not among these.
    pub(super) fn is_heir(&self, id: MemberId, lost: &[MemberId]) -> bool {
        let end = self.member_sectors();
        let is_full = |member: &Member| member.replaces() && member.is_filled(end);
        let mut members = self.members.iter();
        !lost.contains(&id) && members.any(|member| member.id == id && is_full(member))
    }

    /// Where a member is lost that was being replaced, its replacement is a member that lacks some data.
    pub(super) fn promote_replacements(&mut self) {
        for (id, slot, done) in self.replacing() {
            if !self.is_held(slot)
                && let Some(index) = self.index_of(id)
            {
                self.members[index].state = MemberState::Recovering(slot, done);
            }
        }
    }

    /// Replacements that have all data of their slots take them over. Copies may have come to differ since they
    /// were begun: then some take over after resync.
    pub(super) async fn replaced(&mut self, members: &[MemberId]) {
        self.checkpoint(u64::MAX).await;
        if self.mode == WriteMode::Broken {
            return;
        }
        self.array.points.reach(Point::MemberIsFilled);
        let end = self.member_sectors();
        let may: Vec<MemberId> = self.may_replace().into_iter().map(|(id, ..)| id).collect();
        let waits = |member: &Member| member.replaces() && !may.contains(&member.id);
        let filled = |member: &&Member| {
            // One whose member has failed meanwhile has taken over.
            let is_full = member.filled_to().is_some() && member.is_filled(end);
            members.contains(&member.id) && !waits(member) && is_full
        };
        let filled: Vec<MemberId> =
            self.members.iter().filter(filled).map(|member| member.id).collect();
        // Lanes write to the old members as well until superblocks give them up. Where it does not come to that,
        // those lack nothing.
        for id in filled {
            // What it has not answered yet it may refuse.
            let old = self.replaced_by(id);
            let judged = self.array.rules.keep(Rule::WritesAreJudgedByBlocks);
            // Nor may it be known to fail, by a write that is not judged before another member has answered it.
            let may =
                |this: &Self| !(this.array.flushes.distrusts(id) || judged && this.has_refused(id));
            let goes = match old {
                Some(old) => self.may_go_at_rest(&[old], may).await,
                None => may(self),
            };
            if !goes {
                let kept = self.keeps_rest();
                let wait = if kept { AGAIN_AT_REST } else { AGAIN_AFTER_A_WRITE };
                self.sync.why_idle.add(self.later(Work::Replacement, wait));
                continue;
            }
            self.takes_over(id);
            let goes_on = self.update_superblocks().await;
            self.hand_over = None;
            if !goes_on {
                break;
            }
        }
        // Lanes that still read the old member and lanes that no longer write it: a write is answered
        // only when there are none of the former any more.
        let epoch = self.publish();
        self.array.views.adopted(epoch).await;
        self.have_left();
        self.array.views.settle();
        self.set_clearing_alarm();
    }

    /// The member whose slot a replacement is to take over.
    fn replaced_by(&self, id: MemberId) -> Option<MemberId> {
        let (_, slot, _) = self.replacing().into_iter().find(|(other, ..)| *other == id)?;
        let holds = |member: &&Member| member.state == MemberState::InSync(slot);
        self.members.iter().find(holds).map(|member| member.id)
    }

    /// Whether a replacement lacks something of a write that is not judged yet: it goes for that, and what the
    /// member in its slot has took it.
    fn has_refused(&self, id: MemberId) -> bool {
        let before = self.view_now(&self.array.views.current());
        let mut after = before.clone();
        for (slot, member) in before.replacements.iter().filter(|(_, member)| member.id == id) {
            let (filled_sectors, recorded_sectors) = (u64::MAX, u64::MAX);
            let there = MemberView { filled_sectors, recorded_sectors, ..member.clone() };
            after.slots[usize::from(slot.0)] = Some(there);
            after.replacements.retain(|(_, other)| other.id != id);
        }
        !self.compare_doubt(&before, &after).added.is_empty()
    }

    /// A member that has all data of its slot takes it over. The member that had the slot becomes faulty, if it has
    /// not failed before: then nothing is handed over.
    fn takes_over(&mut self, id: MemberId) {
        let Some(index) = self.index_of(id) else { return };
        let was = self.members[index].state;
        let (MemberState::Replacing(slot, _) | MemberState::Recovering(slot, _)) = was else {
            return;
        };
        let holds = |member: &&mut Member| member.state == MemberState::InSync(slot);
        if let Some(old) = self.members.iter_mut().find(holds) {
            old.state = MemberState::Faulty;
            let wanted = std::mem::take(&mut old.wants_replacement);
            self.hand_over = Some(HandOver { new: id, was, old: old.id, slot, wanted });
        }
        self.members[index].state = MemberState::InSync(slot);
    }

    /// Writes every live member's superblock. Those of members that have come to hold all of a slot go first: only
    /// when they are durable is it said who is out. Else a crash between the superblocks of one update, or a
    /// new member that fails in it, could leave an array that counts on neither. Those of members that are being
    /// filled come next: one may promise less than before, and would be believed where another says that all is clean.
    pub(super) async fn write_all_superblocks(&mut self) -> Vec<(MemberId, IoError)> {
        let ordered = self.array.rules.keep(Rule::ReplacementsAreRecordedFirst);
        let is_new = |member: &&Member| ordered && member.is_yet_to_be_in_sync();
        let new: Vec<MemberId> =
            self.members.iter().filter(is_new).map(|member| member.id).collect();
        let mut failed = self.write_superblocks(&|member| new.contains(&member.id)).await;
        if !failed.is_empty() {
            let without: Vec<MemberId> = failed.iter().map(|(id, _)| *id).collect();
            if self.hand_over.as_ref().is_some_and(|by| without.contains(&by.new)) {
                self.put_off_hand_over();
            }
            // Where they are needed no other is to hear that those are out whose slots they have.
            if self.is_reserved.get() || !self.bears_loss_of(&without) {
                return failed;
            }
            // The others get this update all the same, with nothing handed over: it is counted, and a crash in
            // the next one must not leave some of them two behind.
            self.stamp(self.events);
        }
        self.hand_over = None;
        let is_filled = |member: &Member| ordered && member.filled_to().is_some();
        for filled in [true, false] {
            let is_next =
                |member: &Member| !new.contains(&member.id) && is_filled(member) == filled;
            failed.extend(self.write_superblocks(&is_next).await);
            // One that is filled and failed is copied anew where it is found behind the others.
            if !failed.is_empty() && self.is_reserved.get() {
                return failed;
            }
        }
        failed
    }

    /// Has superblocks promise no more than members have that are being filled. What else they lack was told by
    /// what is about to go.
    pub(super) async fn take_back_promises(&mut self) -> bool {
        let any_filled = self.members.iter().any(|member| member.filled_to().is_some());
        !any_filled || self.update_superblocks().await
    }

    /// An update that was to hand a slot over has failed before the new member's superblock said so: the old
    /// one still has it.
    pub(super) fn put_off_hand_over(&mut self) {
        let Some(HandOver { new, was, old, slot, wanted }) = self.hand_over.take() else { return };
        for member in &mut self.members {
            if member.id == new {
                member.state = was;
            } else if member.id == old {
                member.state = MemberState::InSync(slot);
                member.wants_replacement = wanted;
            }
        }
    }
}
