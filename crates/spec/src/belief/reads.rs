//! A read: by the lane's view without a claim; after trouble under the claim, by the newest view.

use super::{Belief, Blocks, DEVICES, FOREIGN, Job, Kind, News, Rule, State, View};
use super::{bits, has, place};
use crate::search::{By, Steps};

/// Where each block of a read comes from. Blocks that are not read have no device: [`DEVICES`].
type Sources = [usize; 2];

impl Belief {
    pub(super) fn read_steps(&self, state: &State, lane: usize, steps: &mut Steps<State>) {
        let job = state.jobs[lane];
        match job.kind {
            Kind::Idle if state.left.reads > 0 => {
                for blocks in self.requests() {
                    let mut next = *state;
                    next.left.reads -= 1;
                    self.begin(&mut next, lane);
                    let floor = [0, 1].map(|block| state.answered[block].max(state.seen[block]));
                    let (view, told) = (next.views[lane], self.being_written(state));
                    next.jobs[lane] =
                        Job { kind: Kind::Reads, blocks, view, floor, told, ..Job::default() };
                    let name = || format!("lane {lane} begins a read{}", self.named(blocks));
                    steps.world(name, next);
                }
            }
            Kind::Reads => self.read_direct(state, lane, job, steps),
            Kind::WaitsToRead if state.claim.is_none() => {
                let mut next = *state;
                next.claim = Some(lane as u8);
                next.jobs[lane].kind = Kind::ReadsClaimed;
                steps.array(|| format!("lane {lane}'s read gets the claim"), next);
            }
            Kind::ReadsClaimed => {
                let told = state.news[lane] == News::default() && state.is_recorded();
                let newest = state.views[lane] == state.now && self.all_have_adopted(state);
                if state.broken || told && newest {
                    self.read_claimed(state, lane, job, steps);
                }
            }
            _ => {}
        }
    }

    fn read_direct(&self, state: &State, lane: usize, job: Job, steps: &mut Steps<State>) {
        let view = job.view;
        if self.refuses_reads(state, &job) {
            return self.is_lost(state, lane, job, steps);
        }
        let in_doubt = !self.is_row() && state.doubted(view) & job.blocks != 0;
        let waits = in_doubt && !state.is_recorded() && !state.broken;
        if waits && self.keeps(Rule::ReadsInDoubtRecorded) {
            let why = "of what is in doubt follows a view that is not durable";
            return self.looks_again(state, lane, why, steps);
        }
        let all = if self.is_row() {
            let own = |block: usize| match has(job.blocks, block) {
                true => self.holder(view, block),
                false => Some(DEVICES),
            };
            own(0).zip(own(1)).into_iter().map(|(first, second)| [first, second]).collect()
        } else {
            self.sources(state, view, job.blocks)
        };
        if all.is_empty() && !self.is_row() && !self.keeps(Rule::LostUnderClaim) {
            self.is_lost(state, lane, job, steps);
        } else if all.is_empty() {
            self.looks_again(state, lane, "finds no copy", steps);
        }
        for from in all {
            let gives = |block: usize| state.gives(from[block], self.column(block));
            if bits(job.blocks).all(gives) {
                self.returns(state, lane, job, from, steps);
            } else {
                self.looks_again(state, lane, "meets an error", steps);
            }
        }
    }

    /// The ways to choose copies of a mirror for these blocks.
    fn sources(&self, state: &State, view: View, blocks: Blocks) -> Vec<Sources> {
        let copies = |block: usize| match has(blocks, block) {
            true => view.copies(block).collect(),
            false => vec![DEVICES],
        };
        let in_doubt = state.doubted(view) & blocks != 0;
        let (first, second) = (copies(0), copies(1));
        if !in_doubt || !self.keeps(Rule::FixedCopyInDoubt) {
            let with = |&a: &usize| second.iter().map(move |&b| [a, b]).collect::<Vec<_>>();
            return first.iter().flat_map(with).collect();
        }
        if !self.keeps(Rule::BeliefByBlock) && blocks == 0b11 {
            let whole = first.into_iter().find(|device| second.contains(device));
            return whole.into_iter().map(|device| [device; 2]).collect();
        }
        first.first().zip(second.first()).into_iter().map(|(&a, &b)| [a, b]).collect()
    }

    fn looks_again(&self, state: &State, lane: usize, why: &str, steps: &mut Steps<State>) {
        let mut next = *state;
        next.jobs[lane].kind = Kind::WaitsToRead;
        next.jobs[lane].view = View::default();
        steps.array(|| format!("lane {lane}'s read {why}, and waits for the claim"), next);
    }

    /// In a broken array nothing is recorded any more: what a read chose could be another copy after a cut.
    fn refuses_reads(&self, state: &State, job: &Job) -> bool {
        let in_doubt = if self.is_row() { state.marked } else { state.doubted(state.now) };
        let doubted = in_doubt & self.columns_of(job.blocks) != 0;
        self.keeps(Rule::BrokenReadsNoDoubt) && state.broken && doubted
    }

    /// What cannot be read is told and settles; then the block comes from what is left.
    fn read_claimed(&self, state: &State, lane: usize, job: Job, steps: &mut Steps<State>) {
        let view = state.now;
        let mut next = *state;
        let news = self.unreadable(state, view, job.blocks);
        if news != News::default() && !state.broken {
            next.news[lane] = news;
            if !self.keeps(Rule::ReadNewsUnderClaim) {
                next.claim = None;
                next.jobs[lane].kind = Kind::WaitsToRead;
            }
            return steps.array(|| format!("lane {lane}'s read tells: {}", self.told(&news)), next);
        }
        if self.refuses_reads(state, &job) {
            return self.is_lost(state, lane, job, steps);
        }
        let name = || format!("lane {lane} reads under the claim");
        for block in bits(job.blocks) {
            let column = self.column(block);
            let gives = |device: &usize| state.gives(*device, column);
            let direct = match self.is_row() {
                true => self.readers(view, block).find(gives),
                false => view.copies(column).find(gives),
            };
            let version = direct.map(|device| state.content[device][block]);
            let computed =
                || self.computed(state, view, block, |device| state.gives(device, column));
            let Some(version) = version.or_else(computed) else {
                return self.is_lost(state, lane, job, steps);
            };
            if let Some(wrong) = self.wrong_version(state, &job, block, version) {
                return steps.add(By::Array, name, Err(wrong));
            }
            self.note(&mut next, &job, block, version);
        }
        self.end(&mut next, lane);
        steps.array(name, next);
    }

    fn unreadable(&self, state: &State, view: View, blocks: Blocks) -> News {
        let mut news = News::default();
        for block in bits(blocks) {
            let column = self.column(block);
            let mut asked: Vec<usize> = match self.is_row() {
                true => self.holder(view, block).into_iter().collect(),
                false => view.copies(column).take(1).collect(),
            };
            if self.is_row() && asked.is_empty() {
                asked = [1 - block, 2].iter().filter_map(|&slot| self.holder(view, slot)).collect();
            }
            for device in asked {
                if !state.answers(device) {
                    news.gone |= 1 << device;
                } else if !state.gives(device, column) {
                    news.bad |= place(device, column);
                }
            }
        }
        news
    }

    fn returns(
        &self,
        state: &State,
        lane: usize,
        job: Job,
        from: Sources,
        steps: &mut Steps<State>,
    ) {
        let mut next = *state;
        let mut wrong = None;
        for block in bits(job.blocks) {
            let version = state.content[from[block]][block];
            wrong = wrong.or(self.wrong_version(state, &job, block, version));
            self.note(&mut next, &job, block, version);
        }
        self.end(&mut next, lane);
        let name = || {
            let part = |block: usize| {
                let version = state.content[from[block]][block];
                format!("version {version} from {}", self.name(from[block]))
            };
            let parts = bits(job.blocks).map(part).collect::<Vec<_>>();
            format!("lane {lane} reads {}", parts.join(" and "))
        };
        steps.add(By::Array, name, wrong.map_or(Ok(next), Err));
    }

    fn wrong_version(&self, state: &State, job: &Job, block: usize, version: u8) -> Option<String> {
        if version == FOREIGN || version > state.issued[block] {
            return Some("bytes that were never written were read".into());
        }
        let floor = job.floor[block];
        let old = format!("version {version} was read, after version {floor} was answered or read");
        (version < floor).then_some(old)
    }

    /// What was read with nothing under way stays. A read beside a write may have seen either.
    fn note(&self, state: &mut State, job: &Job, block: usize, version: u8) {
        if !has(job.told | self.being_written(state), block) {
            state.seen[block] = state.seen[block].max(version);
        }
    }

    fn is_lost(&self, state: &State, lane: usize, job: Job, steps: &mut Steps<State>) {
        let mut next = *state;
        self.end(&mut next, lane);
        let view = if job.kind == Kind::Reads { job.view } else { state.now };
        let excused = self.refuses_reads(state, &job);
        let wrongly = |block: &usize| {
            let gives = |device| state.gives(device, self.column(*block));
            !excused && state.ways[*block] != 0 && !self.finds(state, view, *block, gives)
        };
        let wrong = bits(job.blocks).find(wrongly);
        let next = wrong.map_or(Ok(next), |block| {
            Err(format!("version {} was answered, and is lost", state.answered[block]))
        });
        steps.add(By::Array, || format!("lane {lane}'s read is answered \"lost\""), next);
    }
}
