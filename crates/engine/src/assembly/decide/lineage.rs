//! Whether superblocks can be of one history.
//!
//! Every update of an array counts its events and goes to all members that are at work, so the superblock
//! of a member that left shows the array as it was then, and the freshest shows what became of it.
//! Unless parts of the array were started without each other, and each went on by itself. Superblocks
//! keep no past, but two things do not come about in one history:
//!
//! - A member that is up to date does not know another that is: each was in the other's last update,
//!   or in the one before it. Or two of them have one number, or one slot.
//! - A state without a future. Whatever came after it was done by members that it lists, and those of
//!   them that were never heard of again are too few left over to have done that. Unless it is that of a
//!   hand-over which those who saw it begin have not heard to have ended.
//!
//! Members that failed and were replaced one after another may have no member in common with the
//! freshest, and call each other faulty: that alone proves nothing.

#[cfg(test)]
mod tests;

use mdspace_format::{Features, Role, Superblock};

use super::Candidate;
use crate::geometry::{Geometry, Slot};

/// Whether `one` is used together with `model`, as its superblock stands: in the slot that it was in,
/// and not more than the update behind that a crash interrupted.
pub(super) fn serves(one: &Superblock, model: &Superblock) -> bool {
    one.own_role().slot().is_some() && lists(model, one) && one.events.abs_diff(model.events) <= 1
}

/// Whether `one` is used together with `model` and does not know it. One whose recovery is at its
/// start may have got its slot in the very update that the other missed; nothing of it is read.
pub(super) fn is_stranger(one: &Superblock, model: &Superblock) -> bool {
    let has_data = |superblock: &Superblock| superblock.recovery_offset_sectors != Some(0);
    serves(one, model) && has_data(one) && has_data(model) && !lists(one, model)
}

/// Whether `one` gives `other` the slot that it believes to have.
fn lists(one: &Superblock, other: &Superblock) -> bool {
    one.roles.get(other.dev_number as usize) == Some(&other.own_role())
}

/// What the superblocks at hand can tell about the past.
pub(super) struct Lineage<'a> {
    pub(super) candidates: &'a [Candidate],
    pub(super) geometry: &'a Geometry,
}

impl Lineage<'_> {
    /// A member with a slot that cannot be of one history with `model`.
    pub(super) fn apart_from(&self, model: usize) -> Option<usize> {
        let newest = &self.candidates[model].superblock;
        (0..self.candidates.len()).find(|&index| {
            let other = &self.candidates[index].superblock;
            let apart = match serves(other, newest) {
                true => {
                    is_stranger(other, newest)
                        || self.has_twin(index, newest)
                        || self.has_rival(index, newest)
                }
                false => !self.went_on(other, newest),
            };
            index != model && other.own_role().slot().is_some() && apart
        })
    }

    /// Whether another member would serve under the same number. No two can have been members at once.
    fn has_twin(&self, index: usize, newest: &Superblock) -> bool {
        let one = &self.candidates[index].superblock;
        let others = self.candidates.iter().map(|candidate| &candidate.superblock);
        others.enumerate().any(|(at, other)| {
            at != index && other.dev_number == one.dev_number && serves(other, newest)
        })
    }

    /// Whether another member would serve in the same slot, and one of them knows better: it has taken the slot
    /// over in an update that failed before the others had it.
    fn has_rival(&self, index: usize, newest: &Superblock) -> bool {
        let holds = |superblock: &Superblock| !superblock.features.contains(Features::REPLACEMENT);
        let one = &self.candidates[index].superblock;
        let others = self.candidates.iter().map(|candidate| &candidate.superblock);
        others.enumerate().any(|(at, other)| {
            at != index
                && other.own_role() == one.own_role()
                && holds(one)
                && holds(other)
                && serves(other, newest)
                && !(lists(one, other) && lists(other, one))
        })
    }

    /// Whether the array can have gone on to `newest` after it was as `old` shows it.
    fn went_on(&self, old: &Superblock, newest: &Superblock) -> bool {
        let outlived = |slot: Slot| {
            let mut numbers =
                (0..).zip(&old.roles).filter(|(_, role)| **role == Role::Slot(slot.0));
            numbers.any(|(number, _)| !self.ended_with(old, number, newest))
        };
        let heir = lists(old, newest) && !self.ended_with(old, newest.dev_number, newest);
        heir || self.geometry.enough(&outlived) || self.came_to_nothing(old, newest)
    }

    /// Whether the update that `old` shows handed it the slot of `newest`, and came to nothing: a member that it
    /// counts on knows both in that slot, and is used together with `newest`. Nothing is done under an update
    /// before all that it counts on have it.
    fn came_to_nothing(&self, old: &Superblock, newest: &Superblock) -> bool {
        let knows_both = |other: &Superblock| {
            lists(old, other) && lists(other, old) && lists(other, newest) && serves(other, newest)
        };
        old.own_role() == newest.own_role()
            && self.candidates.iter().map(|candidate| &candidate.superblock).any(|other| {
                other.dev_number != old.dev_number
                    && other.dev_number != newest.dev_number
                    && knows_both(other)
            })
    }

    /// Whether the member of this number saw no update after `old`. One that is not at hand may have.
    fn ended_with(&self, old: &Superblock, number: u32, newest: &Superblock) -> bool {
        number == old.dev_number
            || self.candidates.iter().map(|candidate| &candidate.superblock).any(|other| {
                other.dev_number == number
                    && other.events <= old.events
                    && other.events + 1 >= old.events
                    && lists(other, old)
                    && !serves(other, newest)
            })
    }
}
