//! The members that a lane has met: those of its view, and those that left it and may owe the lane an answer.

use std::cell::RefCell;

use smallvec::SmallVec;

use crate::backend::MemberId;

use super::view::ArrayView;

/// By handle, for no view names a member that has left the array.
#[derive(Default)]
pub(super) struct Met(RefCell<SmallVec<[MemberId; 8]>>);

impl Met {
    /// Adds the members of a view.
    pub(super) fn add(&self, view: &ArrayView) {
        let mut met = self.0.borrow_mut();
        for member in view.devices() {
            if !met.contains(&member.id) {
                met.push(member.id);
            }
        }
    }

    /// Forgets all but those that `owe` an answer. Not while a round is under way: by an older view it may still
    /// write to a member that owes nothing.
    pub(super) fn forget_unless(&self, owe: impl Fn(MemberId) -> bool) {
        self.0.borrow_mut().retain(|member| owe(*member));
    }

    /// Whether any of them `owes` an answer.
    pub(super) fn any(&self, owes: impl Fn(MemberId) -> bool) -> bool {
        self.0.borrow().iter().any(|member| owes(*member))
    }
}
