//! What devices do with what was sent, and the delivery of their answers.

use super::State;
use super::{ACTOR_NAMES, ACTORS, CONTROLLER, DEVICE_NAMES, DEVICES, Flush, Flushes, Role, Rule};
use crate::search::Steps;

impl Flushes {
    pub(super) fn device_steps(&self, state: &State, steps: &mut Steps<State>) {
        for device in 0..DEVICES {
            late_write(state, device, steps);
            for actor in 0..ACTORS {
                match state.flushes[actor][device] {
                    Flush::Sent => does_flush(state, actor, device, steps),
                    Flush::Done { good } => self.delivery(state, actor, device, good, steps),
                    Flush::None | Flush::Good { .. } | Flush::Bad => {}
                }
            }
        }
    }

    fn delivery(
        &self,
        state: &State,
        actor: usize,
        device: usize,
        good: bool,
        steps: &mut Steps<State>,
    ) {
        let mut next = *state;
        let others = (0..ACTORS).filter(|&other| other != actor);
        let under_way = others.filter(|&other| state.flushes[other][device].is_under_way());
        let overlaps = under_way.fold(0, |overlaps, other| overlaps | 1 << other);
        next.flushes[actor][device] = if good { Flush::Good { overlaps } } else { Flush::Bad };
        for other in 0..ACTORS {
            if let Flush::Good { overlaps } = &mut next.flushes[other][device] {
                *overlaps &= !(1 << actor);
            }
        }
        if !good {
            let in_use = state.devices[device].role != Role::Out;
            let told = self.keeps(Rule::MarkAtOnce) || actor == CONTROLLER;
            next.devices[device].failed_unheard = in_use && !told;
            if in_use && told {
                next.mark(device, self);
            }
        }
        let result = if good { "good" } else { "failed" };
        let (to, device) = (ACTOR_NAMES[actor], DEVICE_NAMES[device]);
        steps.array(|| format!("{device}'s {result} flush is delivered to {to}"), next);
    }
}

/// A device that failed a flush calls its cache clean, although some of it is gone.
fn does_flush(state: &State, actor: usize, device: usize, steps: &mut Steps<State>) {
    let (name, of) = (DEVICE_NAMES[device], ACTOR_NAMES[actor]);
    let dirty = state.devices[device].cached != 0;
    let mut next = *state;
    next.flushes[actor][device] = Flush::Done { good: true };
    if dirty {
        next.devices[device].durable = next.devices[device].reads;
        next.devices[device].cached = 0;
    }
    steps.array(|| format!("{name} does the flush of {of}"), next);
    if !dirty || state.left.failures == 0 {
        return;
    }
    for version in state.devices[device].survivors() {
        let mut next = *state;
        next.left.failures -= 1;
        next.flushes[actor][device] = Flush::Done { good: false };
        let failed = &mut next.devices[device];
        (failed.durable, failed.cached, failed.failed_unheard) = (version, 0, true);
        steps.world(|| format!("{name} fails the flush of {of} and keeps version {version}"), next);
    }
}

fn late_write(state: &State, device: usize, steps: &mut Steps<State>) {
    let version = state.devices[device].late;
    if version != 0 {
        let mut next = *state;
        let late = &mut next.devices[device];
        (late.reads, late.cached, late.late) = (version, late.cached | 1 << version, 0);
        steps.world(|| format!("{} takes version {version} late", DEVICE_NAMES[device]), next);
    }
}
