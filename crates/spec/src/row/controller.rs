//! Who is out, resync and filling; and losses and power cuts.

use super::content::{Content, parity};
use super::{DATA, Job, LANES, P, Rows, Rule, SLOT_NAMES, State, bit, each};
use crate::search::Steps;

impl Rows {
    pub(super) fn controller_steps(&self, state: &State, steps: &mut Steps<State>) {
        for slot in each(state.dead & !state.out) {
            if !self.is_broken(state) {
                let mut next = *state;
                next.out |= bit(slot);
                next.filling &= !bit(slot);
                next.copied &= !bit(slot);
                steps.array(|| format!("the controller takes {} out", SLOT_NAMES[slot]), next);
            }
        }
        if state.recorded_out != state.out {
            let mut next = *state;
            (next.recorded_out, next.recorded_filling) = (state.out, state.filling);
            steps.array(|| "the controller records who is out".into(), next);
        }
        self.resync(state, steps);
        self.fill(state, steps);
    }

    /// Makes parity anew from data, under the claim.
    fn resync(&self, state: &State, steps: &mut Steps<State>) {
        let data_is_there = self.missing(state) & DATA == 0;
        if !state.in_doubt
            || !data_is_there
            || state.claims != [None; 2]
            || state.dead & !state.out != 0
        {
            return;
        }
        let mut next = *state;
        let made = self.parities() & !state.gone();
        for slot in each(made) {
            next.content[slot] = parity(slot - P, [state.content[0], state.content[1]]);
        }
        next.listed &= !made;
        next.in_doubt = false;
        steps.array(|| "the controller resyncs the row".into(), next);
    }

    /// A spare comes in for an empty slot, gets the row, and is called in sync.
    fn fill(&self, state: &State, steps: &mut Steps<State>) {
        if self.is_broken(state) {
            return;
        }
        for slot in each(state.recorded_out & state.out & state.dead) {
            if state.left.fills > 0 {
                let mut next = *state;
                next.left.fills -= 1;
                for slots in
                    [&mut next.dead, &mut next.out, &mut next.recorded_out, &mut next.listed]
                {
                    *slots &= !bit(slot);
                }
                next.filling |= bit(slot);
                next.recorded_filling |= bit(slot);
                next.content[slot] = Content::FOREIGN;
                steps.world(
                    || format!("a spare begins to be filled for {}", SLOT_NAMES[slot]),
                    next,
                );
            }
        }
        for slot in each(state.filling & !state.dead) {
            let name = SLOT_NAMES[slot];
            if state.copied & bit(slot) != 0 {
                let mut next = *state;
                next.filling &= !bit(slot);
                next.recorded_filling &= !bit(slot);
                next.copied &= !bit(slot);
                steps.array(|| format!("the controller calls {name} in sync"), next);
            } else if let Some((copying, content)) = state.copying {
                let mut next = *state;
                next.copying = None;
                if usize::from(copying) == slot {
                    next.content[slot] = content;
                    next.copied |= bit(slot);
                }
                steps.array(|| format!("the controller has written the row to {name}"), next);
            } else if let Some(content) = self.row_for(state, slot) {
                let mut next = *state;
                if self.keeps(Rule::FilledUnderClaim) {
                    if state.claims != [None; 2] {
                        continue;
                    }
                    next.content[slot] = content;
                    next.copied |= bit(slot);
                    steps.array(|| format!("the controller copies the row to {name}"), next);
                } else {
                    next.copying = Some((slot as u8, content));
                    steps.array(|| format!("the controller has read the row for {name}"), next);
                }
            }
        }
    }

    /// What belongs in a slot, if it can be known.
    fn row_for(&self, state: &State, slot: usize) -> Option<Content> {
        let readable = self.slots() & !self.missing(state) & !bit(slot);
        let block = |block: usize| match readable & bit(block) {
            0 => self.compute(block, readable & !bit(block), &state.content, state.in_doubt),
            _ => Some(state.content[block]),
        };
        match slot.checked_sub(P) {
            Some(number) => Some(parity(number, [block(0)?, block(1)?])),
            None => block(slot),
        }
    }

    pub(super) fn losses(&self, state: &State, steps: &mut Steps<State>) {
        if state.left.losses == 0 || self.is_broken(state) {
            return;
        }
        for slot in each(self.slots() & !state.dead) {
            let mut next = *state;
            next.left.losses -= 1;
            next.dead |= bit(slot);
            next.fresh = [false; 2];
            steps.world(|| format!("{} goes", SLOT_NAMES[slot]), next);
        }
    }

    /// Members keep what they took. Whoever is on record as out stays out; whoever went and is not may be
    /// there again.
    pub(super) fn cuts(&self, state: &State, steps: &mut Steps<State>) {
        if state.left.cuts == 0 || self.is_broken(state) {
            return;
        }
        let unrecorded = state.dead & !state.recorded_out;
        let mut after_cut = *state;
        after_cut.left.cuts -= 1;
        after_cut.fresh = [false; 2];
        after_cut.in_doubt |= state.intent;
        after_cut.claims = [None; 2];
        after_cut.jobs = [Job::Idle; LANES];
        (after_cut.copied, after_cut.copying) = (0, None);
        let mut assemble = |what: String, mut next: State| {
            next.out = state.recorded_out | next.dead;
            next.recorded_out = next.out;
            next.filling = state.recorded_filling & !next.out;
            next.recorded_filling = next.filling;
            if !self.is_broken(&next) {
                steps.world(|| format!("power is cut{what}; the array is assembled"), next);
            }
        };
        assemble(String::new(), after_cut);
        if unrecorded != 0 {
            let back = State { dead: state.dead & !unrecorded, ..after_cut };
            assemble(", and who went is there again".into(), back);
        }
        if state.left.losses > 0 {
            for slot in each(self.slots() & !state.gone()) {
                let mut lost = after_cut;
                lost.left.losses -= 1;
                lost.dead |= bit(slot);
                assemble(format!(", {} stays away", SLOT_NAMES[slot]), lost);
            }
        }
    }
}
