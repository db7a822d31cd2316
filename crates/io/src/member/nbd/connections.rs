//! The connections of an export: one for each lane that is counted on, made before it is.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use mdspace_engine::lane::LaneId;
use mdspace_engine::sync::Mutex;

/// A connection on its way to its lane.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) socket: OwnedFd,
    /// It may serve at once: it is the first one. The others are proved again before that. A copy of the device was the
    /// same as long as nothing had been written.
    pub(crate) is_told: bool,
}

#[derive(Debug)]
pub(super) struct Connections(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Lanes that have one, and whether it may serve.
    lanes: BTreeMap<LaneId, bool>,
    /// Those that their lanes have not taken up yet.
    waiting: BTreeMap<LaneId, Made>,
    /// The server has ended one of them.
    one_is_lost: bool,
}

impl Connections {
    /// The first lane's, which the others are compared with.
    pub(super) fn new(first: OwnedFd) -> Self {
        let (lane, made) = (LaneId(0), Made { socket: first, is_told: true });
        let (lanes, waiting) = ([(lane, true)].into(), [(lane, made)].into());
        Self(Mutex::new(State { lanes, waiting, one_is_lost: false }))
    }

    pub(super) fn add(&self, lane: LaneId, made: Made) {
        let mut state = self.0.lock();
        state.lanes.insert(lane, made.is_told);
        state.waiting.insert(lane, made);
    }

    /// Gives back what its lane cannot take up yet, if it is not lost meanwhile.
    pub(super) fn give_back(&self, lane: LaneId, made: Made) {
        let mut state = self.0.lock();
        if state.lanes.contains_key(&lane) {
            state.waiting.insert(lane, made);
        }
    }

    /// Whether a lane needs one. None does where the member is lost.
    pub(super) fn lack(&self, lane: LaneId) -> bool {
        let state = self.0.lock();
        !state.one_is_lost && !state.lanes.contains_key(&lane)
    }

    /// Whether one that may serve waits for a lane.
    pub(super) fn wait_for(&self, lane: LaneId) -> bool {
        self.0.lock().waiting.get(&lane).is_some_and(|made| made.is_told)
    }

    pub(super) fn take(&self, lane: LaneId) -> Option<Made> {
        self.0.lock().waiting.remove(&lane)
    }

    /// A lane's may serve from now on. Says whether it might before; none where the lane has ended meanwhile.
    pub(super) fn tell(&self, lane: LaneId) -> Option<bool> {
        let mut state = self.0.lock();
        state.lanes.get_mut(&lane).map(|is_told| std::mem::replace(is_told, true))
    }

    /// One is lost, and with it the member. Gives the lanes that have not taken theirs up.
    pub(super) fn lose_one(&self) -> Vec<LaneId> {
        let mut state = self.0.lock();
        state.one_is_lost = true;
        state.waiting.keys().copied().collect()
    }

    /// Whether the lane had one that might serve, which it has no more.
    pub(super) fn end(&self, lane: LaneId) -> bool {
        let mut state = self.0.lock();
        state.waiting.remove(&lane);
        state.lanes.remove(&lane) == Some(true)
    }
}

#[cfg(test)]
mod tests;
