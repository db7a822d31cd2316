//! A read: of the block's own member, or computed by the others.

use super::content::Content;
use super::{DATA, Job, Rows, Rule, SLOT_NAMES, SLOTS, Slots, State, bit, each};
use crate::search::{By, Steps};

impl Rows {
    pub(super) fn read_steps(&self, state: &State, lane: usize, steps: &mut Steps<State>) {
        match state.jobs[lane] {
            Job::Idle if state.left.reads > 0 && !self.is_broken(state) => {
                for block in 0..2 {
                    let mut next = *state;
                    next.left.reads -= 1;
                    let floor = state.answered[block];
                    next.jobs[lane] = Job::Reads { block: block as u8, floor };
                    steps.world(|| format!("lane {lane} begins to read D{block}"), next);
                }
            }
            Job::Reads { block, floor } => self.read(state, lane, block, floor, steps),
            Job::Computes { block, floor, has, got } => {
                self.gather(state, lane, (block, floor), has, got, steps);
            }
            _ => {}
        }
    }

    fn read(&self, state: &State, lane: usize, block: u8, floor: u8, steps: &mut Steps<State>) {
        let own = usize::from(block);
        if self.missing(state) & bit(own) == 0 {
            return self.end_read(state, lane, (block, floor), Some(state.content[own]), steps);
        }
        if self.keeps(Rule::ComputedUnderClaim) && !self.is_free(state, own) {
            return;
        }
        let mut next = *state;
        if self.keeps(Rule::ComputedUnderClaim) {
            next.claims[self.claim_of(own)] = Some(lane as u8);
        }
        next.jobs[lane] = Job::Computes { block, floor, has: 0, got: [Content::ZERO; SLOTS] };
        steps.array(|| format!("lane {lane} is to compute D{block} by the others"), next);
    }

    fn gather(
        &self,
        state: &State,
        lane: usize,
        (block, floor): (u8, u8),
        has: Slots,
        got: [Content; SLOTS],
        steps: &mut Steps<State>,
    ) {
        let own = usize::from(block);
        let wanted = self.slots() & !self.missing(state) & !bit(own);
        for slot in each(wanted & !has) {
            let (mut has, mut got) = (has, got);
            has |= bit(slot);
            got[slot] = state.content[slot];
            let mut next = *state;
            next.jobs[lane] = Job::Computes { block, floor, has, got };
            steps.array(|| format!("lane {lane} has read {}", SLOT_NAMES[slot]), next);
        }
        if wanted & !has == 0 {
            let computed = self.compute(own, has, &got, state.in_doubt);
            let mut next = *state;
            let is_back = self.missing(state) & bit(own) == 0;
            if computed.is_none() && is_back && self.keeps(Rule::LostLooksAgain) {
                next.release(lane);
                next.jobs[lane] = Job::Reads { block, floor };
                steps.array(|| format!("lane {lane} looks at {} again", SLOT_NAMES[own]), next);
                return;
            }
            // P and Q have agreed, over a data block that is there: the row is of one time.
            next.in_doubt &= computed.is_none() || has != self.slots() & !bit(own);
            self.end_read(&next, lane, (block, floor), computed, steps);
        }
    }

    fn end_read(
        &self,
        state: &State,
        lane: usize,
        (block, floor): (u8, u8),
        content: Option<Content>,
        steps: &mut Steps<State>,
    ) {
        let own = usize::from(block);
        let mut next = *state;
        next.end_job(lane);
        let Some(content) = content else {
            let next = self.wrongly_lost(state, own).map_or(Ok(next), |why| Err(why.into()));
            return steps.add(
                By::Array,
                || format!("lane {lane} says that D{block} is lost"),
                next,
            );
        };
        let (what, wrong) = match content.version_of(own) {
            None => ("other bytes".into(), Some("bytes that were never written were read".into())),
            Some(version) => {
                let old = format!("version {version} was read after {floor} was answered");
                (format!("version {version}"), (version < floor).then_some(old))
            }
        };
        let name = || format!("lane {lane} reads {what} of D{block}");
        steps.add(By::Array, name, wrong.map_or(Ok(next), Err));
    }

    /// Why a block may not be called lost here.
    fn wrongly_lost(&self, state: &State, block: usize) -> Option<&'static str> {
        let missing = state.gone() | state.listed | state.filling;
        if state.fresh[block] && state.answered[block] > 0 {
            return Some("no fault since it was answered, and the block is lost");
        }
        if !state.in_doubt && missing.count_ones() as usize <= self.scope.parities {
            return Some(
                "the row is not in doubt and lacks no more than it bears, and the block is lost",
            );
        }
        let compared = self.scope.parities == 2 && missing == bit(block) && missing & DATA != 0;
        let by = |number: usize| {
            let parity = state.content[super::P + number];
            super::content::by_parity(number, parity, block, state.content[1 - block])
        };
        (compared && by(0) == by(1)).then_some("P and Q compute it alike, and the block is lost")
    }
}
