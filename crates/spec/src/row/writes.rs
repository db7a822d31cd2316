//! A write: claim, plan, member writes, judgement, answer.

use super::content::{Content, parity};
use super::{DATA, Job, P, Round, Rows, Rule, SLOT_NAMES, Slots, State, bit, each};
use crate::search::Steps;

impl Rows {
    pub(super) fn write_steps(&self, state: &State, lane: usize, steps: &mut Steps<State>) {
        match state.jobs[lane] {
            Job::Idle => self.claim_to_write(state, lane, steps),
            Job::Plans { block, version } => self.plan(state, lane, block, version, steps),
            Job::Writes(round) => self.member_writes(state, lane, round, steps),
            Job::Settles(round) => self.settle(state, lane, round, steps),
            Job::Reads { .. } | Job::Computes { .. } => {}
        }
    }

    fn claim_to_write(&self, state: &State, lane: usize, steps: &mut Steps<State>) {
        if state.left.writes == 0 || self.is_broken(state) {
            return;
        }
        for block in (0..2).filter(|&block| self.is_free(state, block)) {
            let mut next = *state;
            let version = state.next[block];
            next.left.writes -= 1;
            next.next[block] += 1;
            next.claims[self.claim_of(block)] = Some(lane as u8);
            next.jobs[lane] = Job::Plans { block: block as u8, version };
            let name =
                || format!("lane {lane} gets the claim to write version {version} of D{block}");
            steps.world(name, next);
        }
    }

    /// Reads what the write needs, and computes parity. That is one step: the claim keeps others out.
    fn plan(&self, state: &State, lane: usize, block: u8, version: u8, steps: &mut Steps<State>) {
        let own = usize::from(block);
        let data = Content::of(own, version);
        let readable = !self.missing(state) & self.slots();
        let unfilled = if self.keeps(Rule::WritesReachFilling) { 0 } else { state.filling };
        let to = (bit(own) | self.parities()) & !state.gone() & !unfilled;
        let begin = |to: Slots, parity: [Content; 2], anew: bool, right: bool| {
            let mut next = *state;
            next.intent |= self.keeps(Rule::IntentBeforeData) || state.gone() == 0;
            let round = Round { block, version, parity, to, took: 0, refused: 0, anew, right };
            next.jobs[lane] = Job::Writes(round);
            next
        };
        let trusted = !state.in_doubt || !self.keeps(Rule::DoubtReconstructs);
        let old = bit(own) | self.parities() & to;
        let can_modify = trusted && readable & old == old && to & self.parities() != 0;
        if can_modify {
            let change = data + state.content[own];
            let of = |number: usize| {
                let change = change.times_power(if number == 0 { 0 } else { own as i8 });
                state.content[P + number] + change
            };
            let next = begin(to, [of(0), of(1)], false, !state.in_doubt);
            steps.array(|| format!("lane {lane} reads the old block and parity"), next);
        }
        let is_there = readable & bit(1 - own) != 0;
        let computed = || {
            let has = readable & !bit(1 - own);
            self.compute(1 - own, has, &state.content, state.in_doubt)
        };
        let other = if is_there { Some(state.content[1 - own]) } else { computed() };
        if let Some(other) = other {
            let mut blocks = [data, data];
            blocks[1 - own] = other;
            let next = begin(to, [parity(0, blocks), parity(1, blocks)], true, true);
            let how = if is_there { "reads" } else { "computes" };
            steps
                .array(|| format!("lane {lane} {how} the other block and makes parity anew"), next);
        } else if !can_modify {
            let next = begin(to & DATA, [Content::ZERO; 2], false, false);
            steps.array(|| format!("lane {lane} writes data alone: the other block is lost"), next);
        }
    }

    fn member_writes(&self, state: &State, lane: usize, round: Round, steps: &mut Steps<State>) {
        let pending = round.to & !(round.took | round.refused);
        let version = round.version;
        if pending == 0 {
            let mut next = *state;
            next.jobs[lane] = Job::Settles(round);
            steps.array(|| format!("lane {lane}: all its member writes have ended"), next);
            return;
        }
        if !self.keeps(Rule::OnlyForward) && round.took != 0 && self.missing(state) != 0 {
            let mut next = *state;
            next.jobs[lane] = Job::Plans { block: round.block, version };
            steps.array(|| format!("lane {lane} misses a member and plans again"), next);
        }
        for slot in each(pending) {
            let name = SLOT_NAMES[slot];
            let mut refused = *state;
            refused.jobs[lane] = Job::Writes(Round { refused: round.refused | bit(slot), ..round });
            if state.dead & bit(slot) != 0 {
                steps.array(|| format!("lane {lane}'s write to {name} fails"), refused);
                continue;
            }
            let mut took = *state;
            took.content[slot] = match slot.checked_sub(P) {
                Some(number) => round.parity[number],
                None => Content::of(slot, version),
            };
            took.jobs[lane] = Job::Writes(Round { took: round.took | bit(slot), ..round });
            steps.array(|| format!("{name} takes its part of version {version}"), took);
            if state.left.losses > 0 {
                refused.left.losses -= 1;
                refused.fresh = [false; 2];
                steps.world(|| format!("{name} refuses its part of version {version}"), refused);
            }
        }
    }

    fn settle(&self, state: &State, lane: usize, round: Round, steps: &mut Steps<State>) {
        let known = state.dead & !state.out == 0;
        let recorded = state.recorded_out == state.out || !self.keeps(Rule::RecordedBeforeAnswer);
        let broken = self.is_broken(state);
        if !(known && recorded || broken) {
            return;
        }
        let (own, version) = (usize::from(round.block), round.version);
        let mut next = *state;
        let refused = round.refused & !state.gone();
        if self.keeps(Rule::RefusalMakesHole) {
            next.copied &= !(refused & state.filling);
        }
        next.listed &= !round.took;
        next.listed |= refused & !state.filling;
        let missing = self.missing(&next);
        let verdict = self.judge(state, &round, missing);
        if (verdict.held || !self.keeps(Rule::JudgedByBlocks)) && !broken {
            next.answered[own] = next.answered[own].max(version);
            next.fresh[own] = true;
            let ends = match self.keeps(Rule::DoubtEndsWhole) {
                true => verdict.whole && self.keeps(Rule::WholeWriteEndsDoubt),
                false => true,
            };
            next.in_doubt &= !ends;
            next.end_job(lane);
            steps.array(|| format!("lane {lane} answers version {version} of D{own}"), next);
        } else {
            next.listed = state.listed & !round.took;
            next.in_doubt |= self.keeps(Rule::FailedWriteLeavesDoubt);
            next.end_job(lane);
            let name = || format!("lane {lane} answers version {version} of D{own} with an error");
            steps.array(name, next);
        }
    }

    /// Whether every block is held, and whether the row is of one time again.
    fn judge(&self, state: &State, round: &Round, missing: Slots) -> Verdict {
        let own = usize::from(round.block);
        let direct = |block: usize| {
            missing & bit(block) == 0 && (block != own || round.took & bit(block) != 0)
        };
        let lost = (0..2).filter(|&block| !direct(block)).count();
        // Parity that was there and is not of this round is of an older time.
        let there = self.parities() & !missing;
        let good = if round.right { (there & round.took).count_ones() as usize } else { 0 };
        let held = lost == 0 || lost <= good;
        // The other block was lost before, and only the written one is there.
        let other_lost_before =
            state.in_doubt && self.missing(state) & bit(1 - own) != 0 && !round.anew;
        let all_parity = round.anew && there & !round.took == 0;
        Verdict {
            held: held || (direct(own) && other_lost_before),
            whole: held && (all_parity || (there == 0 && lost == 0)),
        }
    }
}

struct Verdict {
    held: bool,
    whole: bool,
}
