//! What a side is to do with an array before it hands it over.

use super::{History, Role};
use crate::harness::{MIB, SECTOR};

/// What an array is made like, in the words of both commands.
pub(super) struct Shape {
    pub(super) options: &'static str,
    pub(super) members: usize,
    /// Data disks of 4 MiB.
    data: u64,
}

const SHAPES: [Shape; 10] = [
    Shape { options: "--level=5 --raid-devices=4 --chunk=64", members: 4, data: 3 },
    Shape { options: "--level=1 --raid-devices=3", members: 3, data: 1 },
    Shape { options: "--level=6 --raid-devices=5 --chunk=64", members: 5, data: 3 },
    Shape { options: "--level=10 --raid-devices=4 --chunk=64 --layout=f2", members: 4, data: 2 },
    Shape { options: "--level=10 --raid-devices=4 --chunk=64 --layout=n2", members: 4, data: 2 },
    Shape { options: "--level=5 --raid-devices=3 --chunk=16", members: 3, data: 2 },
    Shape { options: "--level=1 --raid-devices=2", members: 2, data: 1 },
    Shape { options: "--level=4 --raid-devices=4 --chunk=64", members: 4, data: 3 },
    Shape { options: "--level=10 --raid-devices=4 --chunk=64 --layout=o2", members: 4, data: 2 },
    Shape { options: "--level=6 --raid-devices=6 --chunk=16", members: 6, data: 4 },
];

impl Shape {
    pub(super) fn of(seed: u64) -> &'static Self {
        &SHAPES[(seed % SHAPES.len() as u64) as usize]
    }

    fn has_parity(&self) -> bool {
        ["--level=4", "--level=5", "--level=6"].iter().any(|level| self.options.starts_with(level))
    }

    fn is_far(&self) -> bool {
        self.options.ends_with("f2")
    }

    /// Sectors that every such array has at least.
    fn sectors(&self) -> u64 {
        self.data * 4 * MIB / SECTOR as u64
    }
}

/// One side's turn. It begins with reading all of the array.
#[derive(Debug)]
pub(super) struct Leg {
    pub(super) creates: bool,
    pub(super) steps: Vec<Step>,
    pub(super) end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Stop,
    /// The process is gone at once; what was answered stays in the system's cache.
    Kill,
    /// The machine is gone at once, with its caches.
    PowerCut,
}

/// Images are named by their number.
#[derive(Debug)]
pub(super) enum Step {
    Write(Write),
    Flush,
    /// From now on resync is so slow that it does not end in this leg.
    Slow,
    /// Waits until nothing is left to do.
    Settle {
        degraded: bool,
    },
    /// A whole array must have no mismatches.
    Check,
    Fail(usize),
    /// Back to its slot, by the bitmap or filled anew.
    Return(usize),
    Replace {
        old: usize,
        new: usize,
    },
    /// The member that was replaced.
    Remove(usize),
}

#[derive(Debug)]
pub(super) struct Write {
    pub(super) first: u64,
    pub(super) count: u64,
    pub(super) version: u64,
}

/// Draws a leg, and says what its steps make of the images. `cut` is how this side ends without a stop.
pub(super) fn leg(history: &mut History, cut: End) -> Leg {
    let creates = !history.created;
    let mut steps = Vec::new();
    // A new array is whole before anything happens to it: no promise covers its first resync.
    if creates || (history.unsynced && history.random.below(4) > 0) {
        settle(history, &mut steps);
    }
    writes(history, &mut steps);
    if !history.unsynced {
        change_members(history, &mut steps);
        writes(history, &mut steps);
    }
    if history.random.below(2) == 0 {
        settle(history, &mut steps);
        if history.roles.iter().all(|role| matches!(role, Role::Member | Role::Blank)) {
            steps.push(Step::Check);
        }
    }
    let end = if may_be_cut(history) && history.random.below(5) < 2 { cut } else { End::Stop };
    if end != End::Stop {
        history.unsynced = true;
        steps.push(Step::Flush);
        writes(history, &mut steps);
    }
    Leg { creates, steps, end }
}

/// The last leg: all is made whole, and counted.
pub(super) fn last(history: &mut History) -> Leg {
    let mut steps = Vec::new();
    settle(history, &mut steps);
    if let Some(out) = find(history, Role::Out) {
        steps.push(Step::Return(out));
        history.roles[out] = Role::Filling;
        settle(history, &mut steps);
    }
    steps.push(Step::Check);
    Leg { creates: false, steps, end: End::Stop }
}

fn find(history: &History, role: Role) -> Option<usize> {
    history.roles.iter().position(|known| *known == role)
}

fn may_be_cut(history: &History) -> bool {
    let complete = find(history, Role::Out).or(find(history, Role::Filling)).is_none();
    let replaced = find(history, Role::Replaced).is_some();
    !replaced && (complete || !history.shape.has_parity())
}

fn writes(history: &mut History, steps: &mut Vec<Step>) {
    for _ in 0..1 + history.random.below(4) {
        let longest = [8, 64, 512][history.random.below(3) as usize];
        let count = 1 + history.random.below(longest);
        let first = history.random.below(history.shape.sectors() - count);
        history.version += 1;
        steps.push(Step::Write(Write { first, count, version: history.version }));
    }
}

/// What is being filled is a member then, and what it replaced is not.
fn settle(history: &mut History, steps: &mut Vec<Step>) {
    steps.push(Step::Settle { degraded: find(history, Role::Out).is_some() });
    history.unsynced = false;
    if let Some(filled) = find(history, Role::Filling) {
        history.roles[filled] = Role::Member;
    }
    if let Some(replaced) = find(history, Role::Replaced) {
        history.roles[replaced] = Role::Blank;
        steps.push(Step::Remove(replaced));
    }
}

fn change_members(history: &mut History, steps: &mut Vec<Step>) {
    if find(history, Role::Filling).is_some() {
        return;
    }
    let slow = !history.shape.is_far() && history.random.below(2) == 0;
    let draw = history.random.below(10);
    if let Some(out) = find(history, Role::Out) {
        if draw < 3 {
            return;
        }
        if slow {
            steps.push(Step::Slow);
        }
        steps.push(Step::Return(out));
        history.roles[out] = Role::Filling;
        if history.shape.is_far() {
            settle(history, steps);
        }
        return;
    }
    let members: Vec<usize> =
        (0..history.roles.len()).filter(|&image| history.roles[image] == Role::Member).collect();
    let old = members[history.random.below(members.len() as u64) as usize];
    match (draw, find(history, Role::Blank)) {
        (0..5, _) => {
            steps.push(Step::Fail(old));
            history.roles[old] = Role::Out;
        }
        (5..8, Some(new)) => {
            if slow {
                steps.push(Step::Slow);
            }
            steps.push(Step::Replace { old, new });
            (history.roles[old], history.roles[new]) = (Role::Replaced, Role::Filling);
            if history.shape.is_far() {
                settle(history, steps);
            }
        }
        _ => {}
    }
}
