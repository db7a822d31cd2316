//! What a multipath device looks like to a lane at one moment; replaced as a whole, never changed.

use std::ops::Range;
use std::sync::Arc;

use crate::backend::MemberId;
use crate::sync::atomic::Ordering;
use crate::time::Time;

use super::late::LateId;
use super::owner::{Health, OwnedPath, Owner};
use super::table::Selector;
use super::{Paths, flag};

/// A path that may take requests now.
#[derive(Clone, Debug)]
pub(super) struct Usable {
    /// Its number in the device.
    pub(super) path: usize,
    pub(super) member: MemberId,
    /// Behind a network: an I/O without an answer may still be done.
    pub(super) remote: bool,
    pub(super) relative_throughput: u32,
    pub(super) lanes: u128,
}

#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) generation: u64,
    pub(super) selector: Selector,
    /// The paths of the group in use.
    pub(super) usable: Vec<Usable>,
    /// Those of other groups, for a request that this group could not serve.
    pub(super) others: Vec<Usable>,
    /// Writes that may still be done, by whom nobody knows.
    pub(super) late: Vec<(LateId, Range<u64>)>,
    /// Requests wait when there is no path.
    pub(super) waits: bool,
    /// Requests wait until it is known where each path leads that was open at the start.
    pub(super) is_proving: bool,
    pub(super) closed: bool,
}

impl View {
    pub(super) fn closed() -> Self {
        Self {
            generation: 0,
            selector: Selector::RoundRobin,
            usable: Vec::new(),
            others: Vec::new(),
            late: Vec::new(),
            waits: false,
            is_proving: false,
            closed: true,
        }
    }

    /// Whether a write of `range` must wait for the proof of an earlier one; `own` is itself.
    pub(super) fn is_barred(&self, range: &Range<u64>, own: &[LateId]) -> bool {
        let overlaps = |other: &Range<u64>| other.start < range.end && range.start < other.end;
        self.late.iter().any(|(id, other)| overlaps(other) && !own.contains(id))
    }
}

impl Paths {
    /// Chooses the group to use, and shows lanes how things are now.
    pub(super) fn publish(&self, owner: &mut Owner, now: Time) {
        self.choose_group(owner, now);
        let is_proving = owner.paths.iter().any(OwnedPath::keeps_requests_waiting);
        owner.may_be_written |= !is_proving && owner.paths.iter().any(OwnedPath::takes_requests);
        let usable = |group: Option<usize>| {
            let here = move |path: &usize| Some(self.group_of[*path]) == group;
            let paths = (0..owner.paths.len()).filter(here);
            paths.filter_map(|path| self.usable(owner, path)).collect::<Vec<_>>()
        };
        let others = (0..self.table.groups.len()).filter(|group| Some(*group) != owner.current);
        let others = others.flat_map(|group| usable(Some(group))).collect();
        let selector = &self.table.groups[owner.current.unwrap_or(0)].selector;
        let generation = owner.view.generation + 1;
        owner.view = Arc::new(View {
            generation,
            selector: *selector,
            usable: usable(owner.current),
            others,
            late: owner.late.iter().map(|late| (late.id, late.range.clone())).collect(),
            // One that is not known yet may be there in a moment.
            waits: owner.paths.iter().any(|path| path.health == Health::Joining)
                || self.has(flag::QUEUE_IF_NO_PATH)
                    && self.policy.no_path_retry.is_some()
                    && !owner.gave_up,
            is_proving,
            closed: self.is_closed(),
        });
        // After the view is there: whoever sees the number finds the view.
        self.generation.store(generation, Ordering::Release);
        self.changed.notify();
    }

    fn usable(&self, owner: &Owner, path: usize) -> Option<Usable> {
        let own = &owner.paths[path];
        let (member, _) = own.member.as_ref().filter(|_| own.takes_requests())?;
        let spec = self.spec(path);
        Some(Usable {
            path,
            member: *member,
            remote: own.remote,
            relative_throughput: spec.relative_throughput,
            lanes: spec.lanes,
        })
    }
}
