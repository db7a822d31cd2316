//! What is read where members may contradict each other, and when something else is read there.
//!
//! In doubt each block has one member that users are answered from: its *pick*. Of a parity row that is the member in
//! the block's own slot, of a mirror the first copy that is [believed](super::mirror::believed). What another copy has,
//! or parity gives, may be older or newer. It is given where the pick is never read again as it was: it was
//! written again, its list on the device names the block, or the other members' superblocks say that it is out. Else a
//! later read would give the old block again, with nothing written between.

use std::ops::Range;

use crate::backend::MemberId;
use crate::geometry::{Geometry, Slot};
use crate::ranges::Ranges;
use crate::request::RequestError;

use super::array_lane::ArrayLane;
use super::claims::{Claim, Columns, Mode};
use super::news::News;
use super::rules::Rule;
use super::view::{ArrayView, MemberView, WriteMode};

impl ArrayView {
    /// Whether members may contradict each other in these sectors, as resync counts them.
    pub(super) fn has_picks(&self, range: &Range<u64>) -> bool {
        match *self.geometry {
            Geometry::Parity(_) => self.doubted.overlaps(range),
            _ => !self.trusted(range),
        }
    }

    /// Whether what a slot has here may be read again as it was, though it is not read now: it `is_unreadable` just now,
    /// or memory alone lists it, and no list does after a restart.
    pub(super) fn may_be_read_again(
        &self,
        slot: Slot,
        sectors: &Range<u64>,
        is_unreadable: bool,
    ) -> bool {
        let is_listed = |member: &MemberView| member.bad_in_memory.overlaps(sectors);
        is_unreadable || self.member(slot).is_some_and(is_listed)
    }

    /// Whether no member that is written in a slot gives these sectors of it any more. Where nothing may be written
    /// that is so for as long as the array runs.
    fn is_given_up(&self, slot: Slot, sectors: &Range<u64>) -> bool {
        let is_listed = |member: &MemberView| match self.mode {
            WriteMode::ReadOnly => member.bad.overlaps(sectors),
            _ => !member.may_give_again(sectors),
        };
        self.writers(slot).all(is_listed)
    }
}

impl MemberView {
    /// Whether these sectors hold data of it that are read, now or after a crash: its list on the device names none of
    /// them.
    pub(super) fn may_give_again(&self, sectors: &Range<u64>) -> bool {
        let is_listed = self.bad.overlaps(sectors) && !self.bad_in_memory.overlaps(sectors);
        sectors.end <= self.filled_sectors && !self.holes.overlaps(sectors) && !is_listed
    }
}

impl ArrayLane {
    /// Claims columns to read them. `range`: the same as resync counts. In doubt the claim is exclusive, for the pick
    /// may have to be written. Whether they are in doubt a write before it may have decided.
    pub(super) async fn claim_to_read(
        &self,
        row: u64,
        columns: Columns,
        mode: Mode,
        range: &Range<u64>,
    ) -> (Claim<'_>, Mode) {
        let has_picks = || self.with_view(|view| view.has_picks(range));
        let mode = if has_picks() { Mode::Exclusive } else { mode };
        let claim = self.array.claims.acquire(row, columns.clone(), mode).await;
        if mode == Mode::Exclusive || !has_picks() {
            return (claim, mode);
        }
        drop(claim);
        (self.array.claims.acquire(row, columns, Mode::Exclusive).await, Mode::Exclusive)
    }

    /// The view that says which member is the pick must hold after a crash too. False when the array broke before
    /// it did: a restart may believe another one.
    pub(super) async fn pick_is_durable(&self) -> bool {
        if !self.array.rules.keep(Rule::PicksAreDurable) {
            return true;
        }
        loop {
            let view = self.view();
            let holds = self.array.views.settled_up_to(&view).await;
            if self.with_view(|now| now.epoch == view.epoch) {
                return holds;
            }
        }
    }

    /// Waits until the array does without a member. False when it broke over it.
    pub(super) async fn is_out_for_good(&self, member: MemberId) -> bool {
        let views = &self.array.views;
        !self.array.rules.keep(Rule::PicksAreDurable)
            || views.settled_without(&[member]).await
            || views.current().mode != WriteMode::Broken
    }

    /// Why a block is not given. A stopped array waits for no member, and what it does not wait for is not lost.
    pub(super) fn lost_or_stopped(&self) -> RequestError {
        match self.with_view(|view| view.mode) {
            WriteMode::Stopped => RequestError::Stopped,
            _ => RequestError::Lost,
        }
    }

    /// Has lists name the block of a pick that could not be read nor written again, on the member in its slot and the one
    /// that replaces it. False where it may be read again as it was.
    pub(super) async fn gives_up(
        &self,
        claim: &Claim<'_>,
        slot: Slot,
        sectors: &Range<u64>,
    ) -> bool {
        if !self.array.rules.keep(Rule::PicksAreGivenUpFirst) {
            return true;
        }
        let views = &self.array.views;
        let view = views.current();
        if matches!(view.mode, WriteMode::Broken | WriteMode::Stopped) {
            return false;
        }
        let block = Ranges::of(sectors.clone());
        for member in view.writers(slot).filter(|member| member.may_give_again(sectors)) {
            self.tell(claim, News::Unfilled, member.id, &block).await;
        }
        // This lane may not have adopted what the last list says by now.
        views.current().is_given_up(slot, sectors) && self.pick_is_durable().await
    }
}
