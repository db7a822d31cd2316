//! Rows whose parity may not fit: what an operator who accepts it may be given.

use std::collections::BTreeSet;

use mdspace_engine::array::Action;
use mdspace_engine::status::{ArrayStatus, MemberState};

use super::operator::What;
use super::{Failure, Simulation};

/// Sectors of the members in which a write may have come half-way since all was well last.
#[derive(Debug, Default)]
pub(super) struct HalfDone(BTreeSet<u64>);

impl Simulation {
    /// A crash comes. `without_power`: what was not durable may be lost.
    pub(super) fn leave_half_done(&mut self, without_power: bool) {
        let sectors = self.model.half_done(without_power);
        self.note_half_done(sectors);
    }

    /// A write may have come half-way in these sectors of the array.
    pub(super) fn note_half_done(&mut self, sectors: impl IntoIterator<Item = u64>) {
        if self.settings.may_accept_doubt() {
            let shape = self.settings.shape();
            let on_members = sectors.into_iter().map(|sector| shape.places(sector)[0].sector);
            self.half_done.0.extend(on_members);
        }
    }

    /// Looks at the array and believes what is in doubt now.
    pub(super) fn accept_doubt_now(&mut self) -> Result<(), Failure> {
        let now = self.world.now();
        self.step_until("the status", |this| this.operator.has_status_since(now))?;
        self.accept_doubt();
        self.step_until("the order to accept doubt", |this| {
            !this.operator.waits_for(What::AcceptDoubt)
        })
    }

    /// Believes parity that a crash or a failed write left in doubt, where the array says that some is.
    pub(super) fn accept_doubt(&mut self) {
        let Some(status) = self.operator.status.clone() else { return };
        if self.settings.paths > 0 || status.doubted.sectors == 0 {
            return;
        }
        self.leave_half_done(false);
        self.may_be_given_anything(&status);
        self.order(What::AcceptDoubt, Action::AcceptDoubt);
    }

    /// What came half-way while the order was under way was accepted too.
    pub(super) fn accepted_doubt(&mut self) {
        self.operator
            .status
            .clone()
            .into_iter()
            .for_each(|status| self.may_be_given_anything(&status));
    }

    /// What members lack, or may lack soon, comes from parity that may not fit.
    pub(super) fn may_be_given_anything(&mut self, status: &ArrayStatus) {
        let shape = self.settings.shape();
        let all_may_be = !self.atlas.is_resynced();
        let has_all = |slot: usize| {
            let mut members = status.members.iter();
            members.any(|member| {
                let holds = member.slot == Some(slot as u32) && !member.replacement;
                let is_sound = member.state == MemberState::InSync && member.bad_ranges == 0;
                holds && is_sound && self.atlas.is_well_named(&member.name)
            })
        };
        let has_all: Vec<bool> = (0..shape.slots()).map(has_all).collect();
        for sector in 0..self.model.len() {
            let place = shape.places(sector)[0];
            let may_be_torn = all_may_be || self.half_done.0.contains(&place.sector);
            if may_be_torn && !has_all[place.slot] {
                self.model.may_be_anything(sector);
            }
        }
    }
}
