//! Filling, replacement, re-adding and resync.

use super::{Belief, Columns, Payload, Rule, State, View, bits, has, mask, place, places_of};
use crate::search::Steps;

impl Belief {
    pub(super) fn fill(&self, state: &State, steps: &mut Steps<State>) {
        if state.now.filling == 0 && state.left.fills > 0 {
            self.begin_to_fill(state, steps);
        }
        if let Some(device) = bits(state.now.filling).next() {
            self.copy(state, device, steps);
            if state.copied & !state.now.filled != 0 {
                let mut next = *state;
                next.now.filled |= state.copied;
                let name = || format!("the controller reports what {} has got", self.name(device));
                steps.array(name, next);
            }
            self.call_in_sync(state, device, steps);
        }
    }

    /// A member comes back to its slot, or the spare to any, also to replace a member.
    fn begin_to_fill(&self, state: &State, steps: &mut Steps<State>) {
        let spare = self.slots();
        for device in (0..self.devices()).filter(|&device| !has(state.now.members, device)) {
            let busy = self.keeps(Rule::QuietBeforeReuse) && state.in_flight_on(device);
            if !state.answers(device) || busy {
                continue;
            }
            for slot in (0..self.slots()).filter(|&slot| device == spare || device == slot) {
                let old = bits(self.members_of(state.now, slot)).next();
                if old.is_some() && !(device == spare && self.scope.replace) {
                    continue;
                }
                let mut next = *state;
                next.left.fills -= 1;
                next.now.filling = 1 << device;
                next.now.listed &= !places_of(device);
                if device == spare {
                    next.now.spare_slot = slot as u8;
                }
                next.unreadable &= !places_of(device);
                next.copied = 0;
                let name = || {
                    let old =
                        old.map_or(String::new(), |old| format!(" to replace {}", self.name(old)));
                    format!("the controller begins to fill {}{old}", self.name(device))
                };
                steps.world(name, next);
            }
        }
    }

    /// Under the claim.
    fn copy(&self, state: &State, device: usize, steps: &mut Steps<State>) {
        let all = (0..super::LANES).all(|lane| self.has_adopted(state, lane));
        let early = self.keeps(Rule::AdoptedBeforeCopy) && !all;
        if state.claim.is_some() || early || !state.answers(device) {
            return;
        }
        let slot = self.slot(state.now, device);
        for column in (0..self.columns()).filter(|&c| state.copied & place(device, c) == 0) {
            if let Some(payload) = self.source(state, slot, column, device) {
                let mut next = *state;
                next.copied |= place(device, column);
                self.land(&mut next, device, column, payload);
                let at = self.at(column);
                steps.array(|| format!("the controller copies to {}{at}", self.name(device)), next);
            }
        }
    }

    fn call_in_sync(&self, state: &State, device: usize, steps: &mut Steps<State>) {
        let all = (0..self.columns()).fold(0, |all, column| all | place(device, column));
        let in_doubt = state.now.in_doubt != 0 && self.keeps(Rule::InSyncAfterDoubt);
        if state.now.filled & all != all || in_doubt {
            return;
        }
        let slot = self.slot(state.now, device);
        let old = bits(self.members_of(state.now, slot)).find(|_| device == self.slots());
        let mut next = *state;
        if let Some(old) = old {
            next.now = next.now.without(old);
        }
        next.now.members |= 1 << device;
        (next.now.filling, next.now.filled, next.copied) = (0, 0, 0);
        let name = format!("the controller calls {} in sync", self.name(device));
        if let Some(old) = old {
            let name = format!("{name}, and {} leaves", self.name(old));
            return self.give_up(state, next, name, steps);
        }
        if state.nothing_is_open() {
            self.finds_new_ways(&mut next);
        }
        steps.array(|| name, next);
    }

    /// What belongs in a slot, from whom it may be taken.
    fn source(&self, state: &State, slot: usize, column: usize, to: usize) -> Option<Payload> {
        let view = state.now.without(to);
        let gives = |device: &usize| state.gives(*device, column);
        if !self.is_row() {
            let from = view.copies(column).find(gives)?;
            return Some((1 << column, state.content[from]));
        }
        let own = if slot == 2 { 0b11 } else { 1 << slot };
        if let Some(from) = self.readers(view, slot).find(gives) {
            return Some((own, state.content[from]));
        }
        if slot == 2 {
            let [first, second] = [0, 1].map(|slot| self.readers(view, slot).find(gives));
            let versions = [state.content[first?][0], state.content[second?][1]];
            return Some((own, versions));
        }
        let computed = self.computed(state, view, slot, |device| gives(&device));
        computed.map(|version| (own, [version; 2]))
    }

    /// By block, or without that rule the whole range from one copy.
    pub(super) fn resync(&self, state: &State, steps: &mut Steps<State>) {
        let in_doubt = state.now.in_doubt;
        if state.claim.is_some() || in_doubt == 0 {
            return;
        }
        let windows: Vec<Columns> = match self.keeps(Rule::BeliefByBlock) {
            true => bits(in_doubt).map(|column| 1 << column).collect(),
            false => vec![in_doubt],
        };
        for window in windows {
            let mut next = *state;
            let absent = bits(state.now.members).find(|&device| !state.answers(device));
            if let Some(device) = absent.filter(|_| self.keeps(Rule::ResyncAsksToo)) {
                next.news[super::CONTROLLER].gone |= 1 << device;
                let name = || format!("{} does not take the resync", self.name(device));
                steps.array(name, next);
                continue;
            }
            let filling = self.keeps(Rule::RewritesReachFilling);
            let filling = if filling { state.now.filling } else { 0 };
            let answering = |devices: u8| mask(bits(devices).filter(|&d| state.answers(d)));
            let (members, filling) = (answering(state.now.members), answering(filling));
            let done = match self.is_row() {
                true => self.resync_row(state, &mut next, members, filling),
                false => self.resync_copies(state, &mut next, window, members | filling),
            };
            if done.is_none() {
                continue;
            }
            next.now.in_doubt &= !window;
            if state.nothing_is_open() {
                self.finds_new_ways(&mut next);
            }
            steps.array(|| "the controller resyncs what is in doubt, under the claim".into(), next);
        }
    }

    /// Makes parity anew, and every second copy of a block equal to the first.
    fn resync_row(&self, state: &State, next: &mut State, members: u8, filling: u8) -> Option<()> {
        let view: View = state.now;
        let from = [0, 1].map(|slot| self.holder(view, slot).filter(|&d| state.gives(d, 0)));
        let from = [from[0]?, from[1]?];
        let versions = [0, 1].map(|block| state.content[from[block]][block]);
        for device in bits(members | filling) {
            match self.slot(view, device) {
                2 => self.land(next, device, 0, (0b11, versions)),
                slot if has(filling, device) && !from.contains(&device) => {
                    self.land(next, device, 0, (1 << slot, versions));
                }
                _ => {}
            }
        }
        Some(())
    }

    fn resync_copies(
        &self,
        state: &State,
        next: &mut State,
        window: Columns,
        to: u8,
    ) -> Option<()> {
        let view = state.now;
        let has_all = |device: &usize| {
            bits(window).all(|column| view.reads(*device, column) && state.gives(*device, column))
        };
        let mut copies = bits(view.members).chain(bits(view.filling)).filter(has_all);
        let same = self.keeps(Rule::SameCopyForAll);
        let from = if same { copies.next() } else { copies.last() }?;
        for column in bits(window) {
            for device in bits(to) {
                self.land(next, device, column, (1 << column, state.content[from]));
            }
        }
        Some(())
    }
}
