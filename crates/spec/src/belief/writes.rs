//! A write: claim, plan, member writes. What follows is in `judging`.

use super::scopes::{GO, HANG, REFUSE};
use super::{Belief, FOREIGN, Job, Kind, News, Payload, Places, Rule, State, View};
use super::{bits, mask, place, places_of};
use crate::search::Steps;

/// What planning comes to.
enum Plan {
    Go {
        to: Places,
        parity: Option<[u8; 2]>,
        right: bool,
    },
    /// A read failed: that must settle first.
    Trouble(News),
    /// There is no member that could hold the block.
    Impossible,
}

impl Belief {
    pub(super) fn write_steps(&self, state: &State, lane: usize, steps: &mut Steps<State>) {
        let job = state.jobs[lane];
        let told = state.news[lane] == News::default();
        let settled = told && state.is_recorded() && self.all_have_adopted(state);
        match job.kind {
            Kind::Idle if state.left.writes > 0 && !state.broken => self.wants(state, lane, steps),
            Kind::Waits | Kind::Plans | Kind::Settles | Kind::Fails
                if state.broken && self.keeps(Rule::BrokenEndsWaits) =>
            {
                self.fails(state, lane, "the array is broken", steps);
            }
            Kind::Waits if state.claim.is_none() => {
                let late = self.keeps(Rule::ViewAfterClaim);
                let view = if late { state.views[lane] } else { job.view };
                self.issue(state, lane, view, true, steps);
            }
            Kind::Plans if settled && state.views[lane] == state.now => {
                self.issue(state, lane, state.now, false, steps);
            }
            Kind::Writes => {
                let ended = job.took | job.refused | job.gone;
                for at in bits(job.to & !ended) {
                    self.member_write(state, lane, at / 2, at % 2, steps);
                }
                if job.to == ended {
                    self.judge(state, lane, steps);
                }
                if !self.keeps(Rule::OnlyForward) && job.refused != 0 {
                    self.issue(state, lane, state.views[lane], false, steps);
                }
            }
            Kind::Settles if told && self.has_settled(state) => {
                let mut next = *state;
                next.jobs[lane].kind = Kind::Writes;
                next.jobs[lane].settled = true;
                self.judge(&next, lane, steps);
            }
            Kind::Fails if settled => self.fails(state, lane, "its columns are in doubt", steps),
            _ => {}
        }
    }

    fn wants(&self, state: &State, lane: usize, steps: &mut Steps<State>) {
        for blocks in self.requests() {
            let mut next = *state;
            next.left.writes -= 1;
            self.begin(&mut next, lane);
            let early = !self.keeps(Rule::ViewAfterClaim);
            let view = if early { next.views[lane] } else { View::default() };
            next.jobs[lane] = Job { kind: Kind::Waits, blocks, view, ..Job::default() };
            steps.world(|| format!("lane {lane} has a write{}", self.named(blocks)), next);
        }
    }

    /// Plans a write under its claim, and sends its member writes.
    fn issue(&self, state: &State, lane: usize, view: View, first: bool, steps: &mut Steps<State>) {
        let mut next = *state;
        next.claim = Some(lane as u8);
        let job = &mut next.jobs[lane];
        job.view = view;
        if first {
            for block in bits(job.blocks) {
                next.issued[block] += 1;
                job.versions[block] = next.issued[block];
            }
        }
        let blocks = job.blocks;
        match self.plan(state, view, job) {
            Plan::Go { to, parity, right } => {
                (job.kind, job.to, job.right) = (Kind::Writes, to, right);
                (job.took, job.refused, job.gone, job.told) = (0, 0, 0, 0);
                (job.has_parity, job.parity) = (parity.is_some(), parity.unwrap_or_default());
                job.was_in_doubt = state.doubted(view) & self.columns_of(blocks) != 0;
                for reader in &mut next.jobs {
                    if matches!(reader.kind, Kind::Reads | Kind::WaitsToRead | Kind::ReadsClaimed) {
                        reader.told |= blocks;
                    }
                }
                if self.is_row() {
                    // While the row is written parity computes nothing that can be relied on.
                    next.ways = next.ways.map(|ways| ways & !super::holders::COMPUTED);
                }
                let job = next.jobs[lane];
                let devices = (0..4).filter(|&device| to & places_of(device) != 0);
                let devices = devices.map(|device| self.name(device)).collect::<Vec<_>>().join(",");
                let what = self.versions(&job);
                let name = || format!("lane {lane} has the claim and writes {what} to {devices}");
                steps.array(name, next);
            }
            Plan::Trouble(news) => {
                job.kind = Kind::Plans;
                next.news[lane] = news;
                let name =
                    || format!("lane {lane} has the claim, cannot read for its plan, and tells");
                steps.array(name, next);
            }
            Plan::Impossible => {
                for block in bits(blocks) {
                    next.ways[block] = 0;
                }
                self.end(&mut next, lane);
                steps.array(|| format!("lane {lane}'s write fails: no member could hold it"), next);
            }
        }
    }

    fn plan(&self, state: &State, view: View, job: &Job) -> Plan {
        let reached = |column: usize| {
            let filling = bits(view.filling).filter(move |&device| {
                self.keeps(Rule::WritesReachFilling) || view.holds(device, column)
            });
            view.members | mask(filling)
        };
        if !self.is_row() {
            let places = bits(job.blocks)
                .flat_map(|column| bits(reached(column)).map(move |device| place(device, column)));
            let to = places.fold(0, |to, place| to | place);
            return Plan::Go { to, parity: None, right: true };
        }
        let of_slot = |slot: usize| {
            let devices = bits(reached(0)).filter(|&device| self.slot(view, device) == slot);
            devices.fold(0, |places, device| places | place(device, 0))
        };
        let mut parity = NewParity { versions: None, right: true, news: News::default() };
        if of_slot(2) != 0 {
            parity.make(self, state, view, job);
        }
        if parity.news != News::default() {
            return Plan::Trouble(parity.news);
        }
        let mut to = bits(job.blocks).fold(0, |to, block| to | of_slot(block));
        if parity.versions.is_some() {
            to |= of_slot(2);
        }
        let held = |block: usize| self.holders(view, block).next().is_some();
        let can = bits(job.blocks).all(|block| held(block) || parity.versions.is_some());
        if to == 0 || !can {
            return Plan::Impossible;
        }
        let sent = parity.versions.is_some() || of_slot(2) == 0;
        Plan::Go { to, parity: parity.versions, right: parity.right && sent }
    }

    fn member_write(
        &self,
        state: &State,
        lane: usize,
        device: usize,
        column: usize,
        steps: &mut Steps<State>,
    ) {
        let (job, place) = (state.jobs[lane], place(device, column));
        let payload = self.payload(&job, device, column);
        let what = || format!("lane {lane}'s write to {}{}", self.name(device), self.at(column));
        let mut next = *state;
        if !state.answers(device) {
            next.jobs[lane].gone |= place;
            return steps.array(|| format!("{} fails: the member is gone", what()), next);
        }
        next.jobs[lane].took |= place;
        self.land(&mut next, device, column, payload);
        steps.array(|| format!("{} is done", what()), next);
        if state.left.faults == 0 {
            return;
        }
        for landed in [false, true] {
            let mut next = *state;
            if landed {
                self.land(&mut next, device, column, payload);
            }
            let how = if landed { " and has landed" } else { "" };
            let mut refused = next;
            self.fault(&mut refused, device, Some(column));
            refused.jobs[lane].refused |= place;
            if self.scope.kinds & REFUSE != 0 {
                steps.world(|| format!("{} is refused{how}", what()), refused);
            }
            self.fault(&mut next, device, None);
            next.jobs[lane].gone |= place;
            next.away |= 1 << device;
            if self.scope.kinds & GO != 0 {
                steps.world(|| format!("{} fails, the member goes{how}", what()), next);
            }
        }
        if self.scope.kinds & HANG != 0 && state.late.is_none() {
            let mut next = *state;
            self.fault(&mut next, device, None);
            next.jobs[lane].gone |= place;
            next.late = Some((device as u8, column as u8, payload.0, payload.1));
            steps.world(|| format!("{} hangs and is given up", what()), next);
        }
    }

    fn payload(&self, job: &Job, device: usize, column: usize) -> Payload {
        match self.is_row() {
            false => (1 << column, job.versions),
            true => match self.slot(job.view, device) {
                2 => (0b11, job.parity),
                slot => (1 << slot, job.versions),
            },
        }
    }

    pub(super) fn versions(&self, job: &Job) -> String {
        let version = |block: usize| {
            let of = if self.blocks() == 1 { String::new() } else { format!(" of block {block}") };
            format!("version {}{of}", job.versions[block])
        };
        bits(job.blocks).map(version).collect::<Vec<_>>().join(" and ")
    }
}

/// Parity as it is made for a write.
struct NewParity {
    versions: Option<[u8; 2]>,
    right: bool,
    news: News,
}

impl NewParity {
    fn make(&mut self, model: &Belief, state: &State, view: View, job: &Job) {
        if job.blocks == 0b11 {
            self.versions = Some(job.versions);
            return;
        }
        let own = usize::from(job.blocks == 0b10);
        let blind = !model.keeps(Rule::ReconstructInDoubt);
        if state.doubted(view) == 0 || blind {
            let old = self.read(model, state, view, own);
            let parity = self.read(model, state, view, 2);
            self.versions = old.zip(parity).map(|(old, parity)| modified(job, own, old, parity));
        }
        if self.versions.is_none() {
            let other = self.read(model, state, view, 1 - own);
            self.versions = other.map(|other| {
                let mut versions = job.versions;
                versions[1 - own] = other[1 - own];
                versions
            });
        }
    }

    /// Reads a slot for the plan, or notes why that failed.
    fn read(&mut self, model: &Belief, state: &State, view: View, slot: usize) -> Option<[u8; 2]> {
        let device = model.holder(view, slot)?;
        if !state.answers(device) {
            self.news.gone |= 1 << device;
        } else if !state.gives(device, 0) {
            self.news.bad |= place(device, 0);
        } else {
            return Some(state.content[device]);
        }
        None
    }
}

/// Old parity plus old block plus new block.
fn modified(job: &Job, own: usize, old: [u8; 2], parity: [u8; 2]) -> [u8; 2] {
    let mut new = parity;
    if parity[own] == old[own] {
        new[own] = job.versions[own];
    } else if old[own] != job.versions[own] {
        new[own] = FOREIGN;
    }
    new
}
