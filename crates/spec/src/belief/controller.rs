//! The controller: news, views, records; and members that are given up by order.

use super::{Belief, CONTROLLER, DEVICES, LANES, MUST, News, Places, Rule, State, View};
use super::{bits, has, mask, place, places_of};
use crate::search::Steps;

impl Belief {
    pub(super) fn controller_steps(&self, state: &State, steps: &mut Steps<State>) {
        if state.broken {
            return;
        }
        if !state.no_news() && state.is_recorded() {
            let gone = state.news.iter().fold(0, |gone, news| gone | news.gone);
            let drains = bits(gone).any(|device| state.in_flight_on(device));
            if self.keeps(Rule::AdoptNotDrain) || !drains {
                self.publish(state, steps);
            }
        }
        if !state.is_recorded() {
            return self.record(state, steps);
        }
        if state.no_news() {
            self.fill(state, steps);
            self.resync(state, steps);
            self.orders(state, steps);
        }
    }

    /// All news at once: there is one controller.
    fn publish(&self, state: &State, steps: &mut Steps<State>) {
        let mut all = News::default();
        for news in state.news {
            all.gone |= news.gone;
            all.bad |= news.bad;
            all.good |= news.good;
            all.hole |= news.hole;
            all.doubt |= news.doubt;
            all.undoubt |= news.undoubt;
        }
        let mut next = *state;
        next.news = [News::default(); LANES + 1];
        self.apply(&mut next, &all);
        let name = || match next.broken {
            true => "the controller finds the array broken".into(),
            false => format!("the controller publishes: {}", self.told(&all)),
        };
        steps.array(name, next);
    }

    fn apply(&self, state: &mut State, news: &News) {
        let left = state.now.members & !news.gone;
        if news.gone & state.now.members != 0 && !self.bears(state.now, left) {
            state.broken = true;
            if !self.keeps(Rule::BrokenNotRecorded) && left != 0 {
                for device in bits(news.gone) {
                    state.disk = state.disk.without(device);
                }
            }
            return;
        }
        for device in bits(news.gone) {
            state.now = state.now.without(device);
            if !self.keeps(Rule::ListUntilOut) {
                state.now.listed &= !places_of(device);
            }
        }
        self.lists_and_holes(state, news);
        state.now.in_doubt = (state.now.in_doubt & !news.undoubt) | news.doubt;
    }

    /// A refused block is listed on a member in sync, and a hole in one that is being filled.
    fn lists_and_holes(&self, state: &mut State, news: &News) {
        let of = |devices: u8, places: Places| {
            bits(places).filter(|at| has(devices, at / 2)).fold(0u8, |mask, at| mask | 1 << at)
        };
        let judged_now = self.keeps(Rule::NewsJudgedNow);
        let refused = if judged_now { news.bad | news.hole } else { news.bad };
        let bad = of(state.now.members, refused);
        state.now.listed = (state.now.listed & !news.good) | bad;
        let mut holes = of(state.now.filling, news.bad | news.hole);
        if !self.keeps(Rule::FailureMakesHole) {
            holes &= state.now.filled;
        }
        state.now.filled &= !holes;
        state.copied &= !holes;
        for device in (0..DEVICES).filter(|&device| !has(state.now.filling, device)) {
            state.copied &= !places_of(device);
        }
    }

    /// Whether the level bears that only these members are left.
    fn bears(&self, view: View, left: u8) -> bool {
        let held = |slot: usize| bits(left).any(|device| self.slot(view, device) == slot);
        match self.is_row() {
            true => (0..3).filter(|&slot| held(slot)).count() >= 2,
            false => left != 0,
        }
    }

    /// Superblocks and lists, in either order.
    fn record(&self, state: &State, steps: &mut Steps<State>) {
        if let Some(device) = bits(state.now.members).find(|&device| !state.answers(device)) {
            if !has(state.news[CONTROLLER].gone, device) {
                let mut next = *state;
                self.apply(&mut next, &News { gone: 1 << device, ..News::default() });
                next.news[CONTROLLER] = News::default();
                let name =
                    || format!("{} does not take its superblock and is out", self.name(device));
                steps.array(name, next);
            }
            return;
        }
        let (mut roles, mut lists) = (*state, *state);
        roles.disk = View { listed: state.disk.listed, ..state.now };
        lists.disk.listed = state.now.listed;
        if !state.anyone_writes() {
            self.finds_new_ways(&mut roles);
        }
        if roles.disk != state.disk {
            steps.array(|| "superblocks are durable".into(), roles);
        }
        if lists.disk != state.disk {
            steps.array(|| "bad-block lists are durable".into(), lists);
        }
    }

    fn orders(&self, state: &State, steps: &mut Steps<State>) {
        if state.left.choices == 0 {
            return;
        }
        for device in bits(state.now.members) {
            let mut next = *state;
            next.left.choices -= 1;
            next.now = state.now.without(device);
            let enough = if self.is_row() { 2 } else { 1 };
            if next.now.members.count_ones() >= enough {
                let name = format!("{} is failed by order", self.name(device));
                self.give_up(state, next, name, steps);
            }
        }
    }

    /// A member is given up by choice: `next` has the view without it.
    pub(super) fn give_up(
        &self,
        state: &State,
        mut next: State,
        name: String,
        steps: &mut Steps<State>,
    ) {
        let left = |device: usize| !has(next.now.members, device);
        let needed = |column: usize| {
            let first = state.now.copies(column).next();
            has(state.now.in_doubt, column) && first.is_some_and(left)
        };
        let is_needed = !self.is_row() && (0..self.columns()).any(needed);
        let writing = state.anyone_writes();
        if is_needed && self.keeps(Rule::NotGivenUpInDoubt)
            || (state.claim.is_some() || writing) && self.keeps(Rule::GivenUpInQuiet)
        {
            return;
        }
        if writing {
            next.chosen |= state.now.members & !next.now.members;
        }
        for block in 0..self.blocks() {
            let column = self.column(block);
            let may_be_good = |device: usize| {
                let place = place(device, column);
                !state.jobs.iter().any(|job| (job.refused | job.gone) & place != 0)
            };
            let after = self.ways(state, next.now, block, may_be_good);
            let before = self.ways(state, state.now, block, may_be_good);
            if after == 0 && before != 0 {
                if self.keeps(Rule::GivenUpByBlocks) && !writing {
                    return;
                }
                next.ways[block] |= if state.ways[block] != 0 { MUST } else { 0 };
            } else {
                let gives = |device: usize| state.gives(device, column);
                next.ways[block] &= MUST | self.ways(state, next.now, block, gives);
            }
        }
        steps.world(|| name, next);
    }

    /// The members of a view that hold a slot.
    pub(super) fn members_of(&self, view: View, slot: usize) -> u8 {
        mask(bits(view.members).filter(|&device| self.slot(view, device) == slot))
    }
}
