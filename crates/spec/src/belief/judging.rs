//! The end of a write: the verdict on each column, what is to be recorded, and the answer.

use super::{Belief, Columns, DEVICES, Devices, Job, Kind, LANES, MUST, News, Rule, State, View};
use super::{bits, has, mask, place, places_of};
use crate::search::{By, Steps};
use crate::verdict::{Column, Outcome, Slot, Verdict};

/// The verdicts on all columns of a write, as one.
struct Judgement {
    outcome: Outcome,
    news: News,
    may_end_doubt: Columns,
    /// Places that are being filled and whose failure is told by this.
    told: u8,
}

impl Belief {
    /// What a write waits for: durable records, as far as the rules ask for them, and the lanes.
    pub(super) fn has_settled(&self, state: &State) -> bool {
        let (now, disk) = (state.now, state.disk);
        let roles = View { listed: now.listed, ..disk } == now;
        (roles || !self.keeps(Rule::RecordedBeforeAnswer))
            && (disk.listed == now.listed || !self.keeps(Rule::ListedBeforeAnswer))
            && self.all_have_adopted(state)
    }

    /// All member writes have ended, or what they met has settled.
    pub(super) fn judge(&self, state: &State, lane: usize, steps: &mut Steps<State>) {
        let job = state.jobs[lane];
        // What a lane knows is the view that it has adopted: the newest, once all has settled.
        let view = state.views[lane];
        let judged = self.judgement(state, &job, view);
        let mut next = *state;
        next.jobs[lane].told |= judged.told;
        let news = judged.news;
        match judged.outcome {
            Outcome::Answer if self.another_reads_old(state, lane, &job) => {}
            Outcome::Answer => {
                self.answer(state, lane, steps);
                if judged.may_end_doubt != 0 {
                    next.jobs[lane].kind = Kind::Settles;
                    next.news[lane].undoubt = judged.may_end_doubt;
                    let name = || format!("lane {lane}: the doubt of what it wrote is to end");
                    steps.array(name, next);
                }
            }
            Outcome::Record => {
                next.jobs[lane].kind = Kind::Settles;
                next.news[lane] = news;
                if !self.keeps(Rule::ClaimUntilSettled) {
                    next.claim = None;
                }
                let name =
                    || format!("lane {lane} tells what is to be recorded: {}", self.told(&news));
                steps.array(name, next);
            }
            Outcome::Error | Outcome::Broken
                if self.keeps(Rule::ErrorByNewestView)
                    && !state.broken
                    && (!state.is_recorded() || view != state.now) => {}
            Outcome::Error => {
                let doubts = self.keeps(Rule::ErrorLeavesDoubt);
                let doubt = if doubts { self.columns_of(job.blocks) } else { 0 };
                next.jobs[lane].kind = Kind::Fails;
                next.news[lane] =
                    News { doubt, gone: news.gone, hole: news.hole, ..News::default() };
                let name =
                    || format!("lane {lane}: a block is not held; its doubt is to be recorded");
                steps.array(name, next);
            }
            Outcome::Broken => {
                // The controller says whether it is so. If not, this ends as any other error.
                let gone = mask((0..DEVICES).filter(|&d| job.gone & places_of(d) != 0));
                let doubt = self.columns_of(job.blocks);
                next.jobs[lane].kind = Kind::Fails;
                next.news[lane] = News { gone, doubt, ..News::default() };
                steps.array(|| format!("lane {lane}: more are gone than the level bears"), next);
            }
        }
    }

    fn judgement(&self, state: &State, job: &Job, view: View) -> Judgement {
        let mut all = Judgement {
            outcome: Outcome::Answer,
            news: News::default(),
            may_end_doubt: 0,
            told: 0,
        };
        for column in bits(self.columns_of(job.blocks)) {
            let verdict = self.verdict(state, job, view, column, &mut all.news);
            self.passed_over(state, job, view, column, &mut all);
            if verdict.end_doubt {
                all.news.undoubt |= 1 << column;
            }
            if verdict.may_end_doubt {
                let by_whole = self.keeps(Rule::DoubtEndsByWhole);
                all.may_end_doubt |= if by_whole { 1 << column } else { 0b11 };
            }
            all.outcome = all.outcome.max(verdict.outcome);
        }
        if !self.keeps(Rule::NewsJudgedNow) && !job.settled {
            let unfilled =
                |at: &usize| has(job.view.filling, at / 2) && !job.view.holds(at / 2, at % 2);
            let early = mask(bits(job.refused).filter(unfilled));
            all.news.hole |= all.news.bad & early;
            all.news.bad &= !early;
        }
        if state.broken {
            all.outcome = Outcome::Broken;
        }
        if all.outcome == Outcome::Answer && all.news != News::default() {
            all.outcome = Outcome::Record;
        }
        if job.settled && !self.keeps(Rule::AskedAgain) {
            all.outcome = Outcome::Answer;
        }
        all
    }

    /// The verdict on one column. What it asks to be recorded of devices becomes news.
    fn verdict(
        &self,
        state: &State,
        job: &Job,
        view: View,
        column: usize,
        news: &mut News,
    ) -> Verdict {
        let (holders, written): (Vec<Option<usize>>, u8) = match self.is_row() {
            true => ((0..3).map(|slot| self.first_of(state, view, slot)).collect(), job.blocks),
            false => ((0..self.devices()).map(Some).collect(), 1),
        };
        let mut slots = Vec::new();
        for (slot, holder) in holders.iter().enumerate() {
            let is_written = !self.is_row() || slot == 2 || has(job.blocks, slot);
            let of = |device| self.slot_of(state, view, job, device, column, is_written);
            let mut found = holder.map_or(Slot::Out, of);
            let second = self.second_of(view, slot, *holder);
            if let Some(better) = second.map(of).filter(|s| matches!(s, Slot::Took | Slot::Kept)) {
                // The replacement holds the block. What its old member lacks is recorded all the same.
                match found {
                    Slot::Refused => news.bad |= place(holder.unwrap_or(DEVICES - 1), column),
                    Slot::Gone => news.gone |= 1 << holder.unwrap_or(DEVICES - 1),
                    _ => {}
                }
                if found != Slot::Healed {
                    found = better;
                }
            }
            slots.push(found);
        }
        let verdict = Column {
            level: self.scope.level,
            slots: &slots,
            written,
            in_doubt: job.was_in_doubt && has(view.in_doubt | state.disk.in_doubt, column),
            parity_right: job.right,
            credulous: self.credulous(),
        }
        .verdict();
        let devices = |slots: u8| bits(slots).filter_map(|slot| holders[slot]);
        devices(verdict.list).for_each(|device| news.bad |= place(device, column));
        devices(verdict.unlist).for_each(|device| news.good |= place(device, column));
        devices(verdict.out).for_each(|device| news.gone |= 1 << device);
        verdict
    }

    /// In a row: the device that a slot is judged by.
    fn first_of(&self, state: &State, view: View, slot: usize) -> Option<usize> {
        let by = |view| self.holders(view, slot).next();
        let filling = || bits(view.filling).find(|&device| self.slot(view, device) == slot);
        by(view).or_else(|| by(self.records(state))).or_else(filling)
    }

    /// In a row: the replacement of a member that is still there.
    fn second_of(&self, view: View, slot: usize, first: Option<usize>) -> Option<usize> {
        if !self.is_row() || !self.keeps(Rule::ReplacementIsRead) {
            return None;
        }
        self.holders(view, slot).find(|&device| first.is_some_and(|first| first != device))
    }

    fn slot_of(
        &self,
        state: &State,
        view: View,
        job: &Job,
        device: usize,
        column: usize,
        is_written: bool,
    ) -> Slot {
        let place = place(device, column);
        let records = self.records(state);
        let in_records = records.holds(device, column);
        let listed = (view.listed & place != 0, records.listed & place != 0);
        let still_listed = listed.0 || listed.1 && self.keeps(Rule::ListedCounts);
        if !view.holds(device, column) {
            return match in_records {
                _ if has(view.filling, device) => Slot::Unfilled,
                true => Slot::Gone,
                false => Slot::Out,
            };
        }
        if job.gone & place != 0 {
            return Slot::Gone;
        }
        match (is_written, job.took & place != 0) {
            (false, _) if listed.0 || listed.1 => Slot::Bad,
            (false, _) if in_records => Slot::Kept,
            (false, _) => Slot::Unfilled,
            (true, true) if !in_records => Slot::Unfilled,
            (true, true) if still_listed => Slot::Healed,
            (true, true) => Slot::Took,
            (true, false) if listed == (true, true) => Slot::Bad,
            (true, false) => Slot::Refused,
        }
    }

    /// Devices that lack the write and are no slot of the column: who left by this view and is still
    /// believed by the records, and who is being filled.
    fn passed_over(
        &self,
        state: &State,
        job: &Job,
        view: View,
        column: usize,
        all: &mut Judgement,
    ) {
        let disk = state.disk;
        let left: Devices = self.records(state).members & !view.members & !view.filling;
        for device in bits(left) {
            let concerned = !self.is_row() || self.concerns(disk, device, column, job.blocks);
            if concerned && job.took & place(device, column) == 0 {
                all.news.gone |= 1 << device;
            }
        }
        for device in bits(view.filling) {
            let place = place(device, column);
            let concerned = !self.is_row() || self.concerns(view, device, column, job.blocks);
            let not_sent = !self.keeps(Rule::WritesReachFilling) && job.to & place == 0;
            if !concerned || (job.took | job.told) & place != 0 || not_sent {
                continue;
            }
            if job.gone & place != 0 {
                all.news.gone |= 1 << device;
            } else {
                all.news.hole |= place;
            }
            all.told |= place;
        }
    }

    /// Whether another lane still reads a place that did not take the write.
    fn another_reads_old(&self, state: &State, lane: usize, job: &Job) -> bool {
        let reads_old = |other: usize| {
            let view = state.views[other];
            let old = |device: usize, column: usize| {
                let untouched_parity =
                    self.is_row() && !job.has_parity && self.slot(view, device) == 2;
                self.concerns(view, device, column, job.blocks)
                    && job.took & place(device, column) == 0
                    && view.reads(device, column)
                    && !untouched_parity
            };
            state.jobs[other].kind != Kind::Idle
                && (0..self.devices()).any(|d| (0..self.columns()).any(|column| old(d, column)))
        };
        let others = (0..LANES).filter(|&other| other != lane);
        self.keeps(Rule::AdoptedBeforeAnswer) && others.into_iter().any(reads_old)
    }

    fn answer(&self, state: &State, lane: usize, steps: &mut Steps<State>) {
        let job = state.jobs[lane];
        let mut next = *state;
        for block in bits(job.blocks) {
            next.answered[block] = next.answered[block].max(job.versions[block]);
        }
        self.end(&mut next, lane);
        for block in 0..self.blocks() {
            let written = has(job.blocks, block);
            if !self.is_row() && !written {
                continue;
            }
            next.ways[block] = self.true_ways(&next, block);
            if next.ways[block] == 0 && written && !self.was_held(&next, &job, block) {
                next.ways[block] = MUST;
            }
        }
        let what = self.versions(&job);
        steps.array(|| format!("lane {lane} answers the write of {what}"), next);
    }

    /// Whether the records name one that took the block: if it cannot be read now, a fault came later.
    fn was_held(&self, state: &State, job: &Job, block: usize) -> bool {
        let (records, disk) = (self.records(state), state.disk);
        let view = View {
            members: records.members & disk.members,
            listed: records.listed | disk.listed,
            filled: disk.filled,
            ..records
        };
        let took = |device: usize| {
            let slot = self.slot(view, device);
            let untouched = self.is_row() && !has(job.blocks, slot) && slot != 2;
            job.took & place(device, self.column(block)) != 0 || untouched
        };
        self.ways(state, view, block, took) != 0
    }

    pub(super) fn fails(&self, state: &State, lane: usize, why: &str, steps: &mut Steps<State>) {
        let job = state.jobs[lane];
        let mut next = *state;
        if matches!(job.kind, Kind::Settles | Kind::Fails) && state.broken {
            next.marked |= self.columns_of(job.blocks);
        }
        self.end(&mut next, lane);
        for block in 0..self.blocks() {
            if has(job.blocks, block) {
                next.ways[block] = 0;
            } else if self.is_row() {
                next.ways[block] |= self.true_ways(&next, block);
            }
        }
        let took = |device: &usize| {
            let at =
                |column| job.took & place(*device, column) != 0 && state.gives(*device, column);
            (0..self.columns()).any(at)
        };
        let next = match bits(state.chosen).find(took).filter(|_| !state.broken) {
            None => Ok(next),
            Some(device) => {
                let name = self.name(device);
                Err(format!("the write fails, and {name} took it, which was given up by choice"))
            }
        };
        steps.add(
            By::Array,
            || format!("lane {lane}'s write is answered with an error: {why}"),
            next,
        );
    }

    pub(super) fn told(&self, news: &News) -> String {
        let places = |places: u8| {
            let named = |at: usize| format!("{}{}", self.name(at / 2), self.at(at % 2));
            bits(places).map(named).collect::<Vec<_>>().join(",")
        };
        let devices = bits(news.gone).map(|device| self.name(device)).collect::<Vec<_>>().join(",");
        let parts = [
            (news.gone, format!("{devices} out")),
            (news.bad, format!("{} listed", places(news.bad))),
            (news.good, format!("{} off the list", places(news.good))),
            (news.hole, format!("a hole in {}", places(news.hole))),
            (news.doubt, "doubt".into()),
            (news.undoubt, "the end of doubt".into()),
        ];
        let parts = parts.into_iter().filter(|(mask, _)| *mask != 0);
        parts.map(|(_, words)| words).collect::<Vec<_>>().join("; ")
    }
}
