//! What happens to the array: faults, late writes, power cuts.

use std::iter;

use super::scopes::{GO, UNREADABLE};
use super::{Belief, Job, LANES, News, Rule, State, View, bits, has, mask, place};
use crate::search::{By, Steps};

impl Belief {
    pub(super) fn faults(&self, state: &State, steps: &mut Steps<State>) {
        if state.left.faults == 0 {
            return;
        }
        for device in bits(state.now.members).filter(|&device| state.answers(device)) {
            if self.scope.kinds & GO != 0 {
                let mut next = *state;
                self.fault(&mut next, device, None);
                next.away |= 1 << device;
                steps.world(|| format!("{} goes", self.name(device)), next);
            }
            for column in (0..self.columns()).filter(|_| self.scope.kinds & UNREADABLE != 0) {
                let place = place(device, column);
                if (state.unreadable | state.now.listed) & place == 0 {
                    let mut next = *state;
                    self.fault(&mut next, device, Some(column));
                    next.unreadable |= place;
                    let at = self.at(column);
                    let name = || format!("{} becomes unreadable{at}", self.name(device));
                    steps.world(name, next);
                }
            }
        }
    }

    pub(super) fn late_write(&self, state: &State, steps: &mut Steps<State>) {
        if let Some((device, column, blocks, versions)) = state.late {
            let device = usize::from(device);
            let mut next = *state;
            next.late = None;
            if state.answers(device) {
                self.land(&mut next, device, usize::from(column), (blocks, versions));
            }
            steps.world(|| format!("the late write lands on {}", self.name(device)), next);
        }
    }

    /// Members keep what they took. Who was away is back; one may be lost for good. The array is assembled
    /// by superblocks and lists, and what was being written is in doubt.
    pub(super) fn cuts(&self, state: &State, steps: &mut Steps<State>) {
        if state.left.cuts == 0 {
            return;
        }
        for lost in iter::once(None).chain((0..self.devices()).map(Some)) {
            let mut next = *state;
            next.left.cuts -= 1;
            if let Some(device) = lost {
                let may = state.left.faults > 0 && !has(state.lost, device);
                if !may || !has(state.disk.members, device) {
                    continue;
                }
                self.fault(&mut next, device, None);
                next.lost |= 1 << device;
            }
            let name = || match lost {
                None => "power is cut; the array is assembled".into(),
                Some(lost) => {
                    format!("power is cut, {} is lost; the array is assembled", self.name(lost))
                }
            };
            let view = bits(next.lost).fold(state.disk, View::without);
            let enough = if self.is_row() { 2 } else { 1 };
            if view.members.count_ones() >= enough {
                self.assemble(state, &mut next, view);
                steps.world(name, next);
            } else if next.lost == 0 {
                let wrong = "the array does not come back by a plain assemble";
                steps.add(By::World, name, Err(wrong.into()));
            }
        }
    }

    fn assemble(&self, state: &State, next: &mut State, mut view: View) {
        let writers = mask((0..LANES).filter(|&lane| state.is_writing(lane)));
        let blocks = bits(writers).map(|lane| self.columns_of(state.jobs[lane].blocks));
        view.in_doubt |= blocks.fold(state.marked, |columns, more| columns | more);
        (next.now, next.disk, next.copied) = (view, view, view.filled);
        (next.away, next.late, next.marked, next.claim) = (0, None, 0, None);
        next.broken = false;
        next.jobs = [Job::default(); LANES];
        next.news = [News::default(); LANES + 1];
        let asleep = self.keeps(Rule::SleeperAdoptsFirst);
        next.views = [if asleep { View::default() } else { view }; LANES];
        if self.is_row() && view.in_doubt != 0 {
            next.ways = next.ways.map(|ways| ways & !super::holders::COMPUTED);
        }
    }
}
