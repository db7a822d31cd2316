//! Power cuts: caches go, a member may be lost too, and the array is assembled.

use std::iter;

use super::{ACTORS, DEVICE_NAMES, DEVICES, Flush, Flushes, Job, Role, State, bit, each};
use crate::search::{By, Steps};

impl Flushes {
    pub(super) fn cuts(&self, state: &State, steps: &mut Steps<State>) {
        if state.left.cuts == 0 || state.broken {
            return;
        }
        for cut in without_caches(state) {
            for lost in iter::once(None).chain((0..DEVICES).map(Some)) {
                assemble(cut, lost, steps);
            }
        }
    }
}

/// Every way in which the caches may go.
fn without_caches(state: &State) -> Vec<State> {
    let mut cut = *state;
    cut.left.cuts -= 1;
    cut.jobs = [Job::Idle; ACTORS];
    cut.flushes = [[Flush::None; DEVICES]; ACTORS];
    let mut all = vec![cut];
    for device in 0..DEVICES {
        let found = state.devices[device];
        if found.role == Role::Unused {
            continue;
        }
        let with = |cut: &State, version| {
            let mut cut = *cut;
            let kept = &mut cut.devices[device];
            (kept.reads, kept.durable, kept.cached, kept.late) = (version, version, 0, 0);
            (kept.role, kept.marked, kept.failed_unheard) = (found.recorded, false, false);
            cut
        };
        all = all.iter().flat_map(|cut| found.survivors().map(move |v| with(cut, v))).collect();
    }
    all
}

/// Copies that differ are made equal from the first one, if the bitmap says that they may differ.
fn assemble(mut state: State, lost: Option<usize>, steps: &mut Steps<State>) {
    if let Some(device) = lost {
        if state.devices[device].role != Role::InSync || state.in_sync() == bit(device) {
            return;
        }
        state.devices[device].role = Role::Out;
        state.record();
    }
    let Some(first) = each(state.in_sync()).next() else { return };
    let version = state.devices[first].reads;
    let other = each(state.in_sync()).find(|&device| state.devices[device].reads != version);
    let promised = state.promised;
    let next = if version < promised {
        Err(format!("a flush promised version {promised}, and reads give {version}"))
    } else if let Some(other) = other.filter(|_| !state.bit) {
        let (first, other) = (DEVICE_NAMES[first], DEVICE_NAMES[other]);
        Err(format!("{first} and {other} differ, and the bitmap marks nothing"))
    } else {
        for device in each(state.in_sync()) {
            (state.devices[device].reads, state.devices[device].durable) = (version, version);
        }
        state.answered = version;
        Ok(state)
    };
    let name = || {
        let lost = lost.map_or(String::new(), |lost| format!(", {} is lost", DEVICE_NAMES[lost]));
        format!("power is cut{lost}; the array is assembled and reads version {version}")
    };
    steps.add(By::World, name, next);
}
