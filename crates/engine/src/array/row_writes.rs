//! Writes of one lane to parity rows that members have not answered yet.
//!
//! One of them may be refused still. Then its row is torn, and nothing else gives the block of a member that was given
//! up meanwhile, though it works. So before a member is given up by choice no such write begins for a moment, and
//! each lane says whether any is under way.

use std::cell::{Cell, RefCell};

use smallvec::SmallVec;

use crate::backend::MemberId;

#[derive(Default)]
pub(super) struct RowWrites {
    /// How many each member has.
    members: RefCell<SmallVec<[(MemberId, u32); 8]>>,
    /// Writes of rows of which a part went wrong, and other parts are under way. Nobody has been told yet.
    torn: Cell<u32>,
}

impl RowWrites {
    pub(super) fn begin(&self, member: MemberId) {
        let mut members = self.members.borrow_mut();
        match members.iter_mut().find(|(id, _)| *id == member) {
            Some((_, count)) => *count += 1,
            None => members.push((member, 1)),
        }
    }

    pub(super) fn end(&self, member: MemberId) {
        let mut members = self.members.borrow_mut();
        let at = members.iter().position(|(id, _)| *id == member);
        let at = at.expect("a write that ends has begun");
        members[at].1 -= 1;
        if members[at].1 == 0 {
            members.swap_remove(at);
        }
    }

    pub(super) fn tears(&self) {
        self.torn.set(self.torn.get() + 1);
    }

    pub(super) fn torn_one_ends(&self) {
        self.torn.set(self.torn.get() - 1);
    }

    /// Whether any is under way, but for those that went well as far as they have ended, and that only members have
    /// still which do not `stay`: what these refuse is gone with them.
    pub(super) fn any_on(&self, stays: impl Fn(MemberId) -> bool) -> bool {
        self.torn.get() > 0 || self.members.borrow().iter().any(|(id, _)| stays(*id))
    }
}

#[cfg(test)]
mod tests;
