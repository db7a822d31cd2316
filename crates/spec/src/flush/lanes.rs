//! Users' writes and flushes.

use super::{
    ACTOR_NAMES, CONTROLLER, DEVICE_NAMES, Devices, Flush, Flushes, Job, Role, Rule, State,
};
use super::{bit, each};
use crate::search::Steps;

impl Flushes {
    pub(super) fn lane_steps(&self, state: &State, lane: usize, steps: &mut Steps<State>) {
        match state.jobs[lane] {
            Job::Idle => self.begin(state, lane, steps),
            Job::Write { version, to, landed } => {
                self.write(state, lane, (version, to, landed), steps);
            }
            Job::Flush { promises, to } => self.flush(state, lane, promises, to, steps),
            Job::Fill { .. } | Job::Clear { .. } => unreachable!("lanes write and flush"),
        }
    }

    /// The lanes are alike, so lane 0 alone writes: there is one block and one claim.
    fn begin(&self, state: &State, lane: usize, steps: &mut Steps<State>) {
        if state.broken {
            return;
        }
        let name = ACTOR_NAMES[lane];
        if lane == 0 && state.left.versions > 0 {
            let mut next = *state;
            next.left.versions -= 1;
            next.next += 1;
            next.jobs[lane] = Job::Write { version: state.next, to: state.written(), landed: 0 };
            next.bit |= self.keeps(Rule::BitBeforeData);
            if let Job::Clear { ended, .. } = &mut next.jobs[CONTROLLER]
                && self.keeps(Rule::WriteEndsPass)
            {
                (*ended, next.bit) = (true, true);
            }
            steps.world(|| format!("{name} begins to write version {}", state.next), next);
        }
        if state.left.flushes > 0 && state.answered > state.promised && self.may_flush(state) {
            let mut next = *state;
            let to = state.written();
            next.left.flushes -= 1;
            next.jobs[lane] = Job::Flush { promises: state.answered, to };
            next.send_flush(lane, to);
            let promises = state.answered;
            steps.world(|| format!("{name} sends flushes, to promise version {promises}"), next);
        }
    }

    fn write(
        &self,
        state: &State,
        lane: usize,
        (version, to, landed): (u8, Devices, Devices),
        steps: &mut Steps<State>,
    ) {
        for device in each(to & !landed) {
            let mut next = *state;
            next.jobs[lane] = Job::Write { version, to, landed: landed | bit(device) };
            next.devices[device].reads = version;
            next.devices[device].cached |= 1 << version;
            steps.array(|| format!("{} takes version {version}", DEVICE_NAMES[device]), next);
        }
        let waits = each(to & !landed).any(|device| state.devices[device].role != Role::Out);
        let held = each(landed).any(|device| state.devices[device].role == Role::InSync);
        if !waits && held && self.answers(state) {
            let mut next = *state;
            next.bit = true; // where BitBeforeData is off it is set here
            next.answered = version;
            next.jobs[lane] = Job::Idle;
            for device in each(to & !landed) {
                next.devices[device].late = version;
            }
            let name = ACTOR_NAMES[lane];
            steps.array(|| format!("{name} answers the write of version {version}"), next);
        }
    }

    fn flush(
        &self,
        state: &State,
        lane: usize,
        promises: u8,
        to: Devices,
        steps: &mut Steps<State>,
    ) {
        let name = ACTOR_NAMES[lane];
        let is_out = |device: usize| state.devices[device].role == Role::Out;
        if each(to).any(|device| state.flushes[lane][device].is_under_way() && !is_out(device)) {
            return;
        }
        let mut next = *state;
        if !self.keeps(Rule::MarkAtOnce) {
            for device in each(to).filter(|&device| state.flushes[lane][device] == Flush::Bad) {
                next.mark(device, self);
            }
        }
        let marked = next.devices.map(|device| device.marked);
        let believed = |device: usize| !marked[device] && self.believes(state, lane, device);
        let undecided = |device: usize| {
            let failed = marked[device] || state.flushes[lane][device] == Flush::Bad;
            !is_out(device) && !believed(device) && !failed
        };
        if each(to).any(undecided) {
            return;
        }
        let held = each(to).any(|d| state.devices[d].role == Role::InSync && believed(d));
        let all = each(to).all(|device| is_out(device) || believed(device));
        if held && all && self.answers(state) && !next.broken {
            next.promised = next.promised.max(promises);
            next.end_job(lane);
            steps.array(
                || format!("{name} answers the flush: version {promises} is promised"),
                next,
            );
        } else if !held {
            next.end_job(lane);
            steps.array(|| format!("{name} answers the flush with an error"), next);
        } else if next != *state {
            steps.array(|| format!("{name} tells which device failed"), next);
        }
    }
}
