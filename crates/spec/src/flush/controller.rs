//! Who is out, who comes in, and the clearing pass of the bitmap.

use super::{CONTROLLER, DEVICE_NAMES, DEVICES, Devices, Flush, Flushes, Job, Role, Rule, State};
use super::{bit, each};
use crate::search::Steps;

impl Flushes {
    pub(super) fn controller_steps(&self, state: &State, steps: &mut Steps<State>) {
        for device in 0..DEVICES {
            take_out(state, device, steps);
            self.take_in(state, device, steps);
        }
        match state.jobs[CONTROLLER] {
            Job::Idle => self.begin_pass(state, steps),
            Job::Clear { half_done, ended, to } => {
                self.pass(state, half_done, ended, to, steps);
            }
            Job::Fill { device, copied: false } => self.copy(state, device as usize, steps),
            Job::Fill { device, copied: true } => self.call_in_sync(state, device as usize, steps),
            Job::Write { .. } | Job::Flush { .. } => unreachable!("the controller serves no user"),
        }
    }

    fn begin_pass(&self, state: &State, steps: &mut Steps<State>) {
        let whole = state.is_whole() || !self.keeps(Rule::ClearWhenWhole);
        let quiet = !state.is_writing() || !self.keeps(Rule::ClearWhenQuiet);
        let allowed = state.left.passes > 0 && !state.broken && self.may_flush(state);
        if state.bit && whole && quiet && allowed {
            let mut next = *state;
            let to = state.in_sync();
            next.left.passes -= 1;
            next.jobs[CONTROLLER] = Job::Clear { half_done: false, ended: false, to };
            if self.keeps(Rule::ClearAfterFlush) {
                next.send_flush(CONTROLLER, to);
            }
            steps.world(|| "the controller begins a clearing pass".into(), next);
        }
    }

    /// The pass has two halves: the header, and the bit.
    fn pass(
        &self,
        state: &State,
        half_done: bool,
        ended: bool,
        to: Devices,
        steps: &mut Steps<State>,
    ) {
        let failed = |device: usize| {
            state.devices[device].marked || state.flushes[CONTROLLER][device] == Flush::Bad
        };
        let changed = !(state.is_whole() && state.in_sync() == to);
        let changed = changed && self.keeps(Rule::ClearWhenWhole);
        let flushing = |device: usize| state.flushes[CONTROLLER][device].is_under_way();
        let mut next = *state;
        if ended || state.broken || changed || each(to).any(failed) {
            if !each(to).any(flushing) {
                next.end_job(CONTROLLER);
                steps.array(|| "the controller gives the clearing pass up".into(), next);
            }
            return;
        }
        let flushed = each(to).all(|device| self.believes(state, CONTROLLER, device));
        if flushed || !self.keeps(Rule::ClearAfterFlush) {
            let is_header = self.keeps(Rule::HeaderBeforeBits) != half_done;
            if is_header {
                next.events_cleared = state.events;
            } else {
                next.bit = false;
            }
            next.jobs[CONTROLLER] = Job::Clear { half_done: true, ended, to };
            if half_done {
                next.end_job(CONTROLLER);
            }
            let what =
                if is_header { "writes the header (events_cleared)" } else { "clears the bit" };
            steps.array(|| format!("the controller {what}"), next);
        }
    }

    /// Under the claim of the block.
    fn copy(&self, state: &State, device: usize, steps: &mut Steps<State>) {
        let source = each(state.in_sync()).find(|&source| !state.devices[source].marked);
        let Some(source) = source.filter(|_| !state.is_writing() && self.may_flush(state)) else {
            return;
        };
        let version = state.devices[source].reads;
        let mut next = *state;
        let filled = &mut next.devices[device];
        if filled.reads != version || self.keeps(Rule::FillWritesAll) {
            (filled.reads, filled.cached) = (version, filled.cached | 1 << version);
        }
        next.jobs[CONTROLLER] = Job::Fill { device: device as u8, copied: true };
        if self.keeps(Rule::FlushBeforeInSync) {
            next.send_flush(CONTROLLER, bit(device));
        }
        let name = DEVICE_NAMES[device];
        steps.array(|| format!("the controller copies version {version} to {name}"), next);
    }

    fn call_in_sync(&self, state: &State, device: usize, steps: &mut Steps<State>) {
        let flushed = self.believes(state, CONTROLLER, device);
        let durable = flushed || !self.keeps(Rule::FlushBeforeInSync);
        if durable && !state.devices[device].marked && !state.broken {
            let mut next = *state;
            next.devices[device].role = Role::InSync;
            next.record();
            next.end_job(CONTROLLER);
            steps.array(|| format!("the controller calls {} in sync", DEVICE_NAMES[device]), next);
        }
    }

    /// A device comes back, or a spare comes in.
    fn take_in(&self, state: &State, device: usize, steps: &mut Steps<State>) {
        let (name, found) = (DEVICE_NAMES[device], state.devices[device]);
        let is_left = found.role == Role::Out && found.recorded == Role::Out;
        let free = state.written().count_ones() < 2 && state.in_sync() != 0;
        let idle = state.jobs[CONTROLLER] == Job::Idle && !state.broken && state.left.fills > 0;
        if !(free && idle && (is_left || found.role == Role::Unused))
            || (self.keeps(Rule::QuietBeforeReuse) && !state.is_quiet_on(device))
        {
            return;
        }
        let mut next = *state;
        next.left.fills -= 1;
        (next.devices[device].marked, next.devices[device].failed_unheard) = (false, false);
        let was_in_sync = found.says_in_sync || !self.keeps(Rule::BitmapOnlyForInSync);
        let known = is_left && found.events >= state.events_cleared && was_in_sync;
        if known && !state.bit {
            next.devices[device].role = Role::InSync;
            next.record();
            steps.world(|| format!("{name} comes back by bitmap, with nothing to copy"), next);
        } else if !state.is_writing() {
            next.devices[device].role = Role::Filling;
            next.record();
            next.jobs[CONTROLLER] = Job::Fill { device: device as u8, copied: false };
            steps.world(|| format!("the controller begins to fill {name}"), next);
        }
    }
}

fn take_out(state: &State, device: usize, steps: &mut Steps<State>) {
    let (name, found) = (DEVICE_NAMES[device], state.devices[device]);
    let in_use = matches!(found.role, Role::InSync | Role::Filling);
    let borne = in_use && state.in_sync() & !bit(device) != 0;
    let mut next = *state;
    let left = &mut next.devices[device];
    (left.role, left.marked, left.failed_unheard) = (Role::Out, false, false);
    if borne && found.marked {
        if matches!(state.jobs[CONTROLLER], Job::Fill { device: filled, .. } if filled as usize == device)
        {
            next.end_job(CONTROLLER);
        }
        steps.array(|| format!("the controller takes {name} out"), next);
    } else if borne && state.left.orders > 0 && state.jobs[CONTROLLER] == Job::Idle {
        next.left.orders -= 1;
        steps.world(|| format!("the controller takes {name} out by a user's order"), next);
    }
    if found.role == Role::Out && found.recorded != Role::Out {
        let mut next = *state;
        next.record();
        steps.array(|| format!("the controller records that {name} is out"), next);
    }
}
