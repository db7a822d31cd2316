//! Who has a block: by a view, and in truth.

use super::{Belief, Blocks, DEVICES, FOREIGN, LANES, Rule, State, View, bits, has, mask};

/// A block of a row can be read from its own slot, or by the others together. Of a mirror the ways are
/// devices.
pub(super) const OWN_SLOT: u8 = 1;
pub(super) const COMPUTED: u8 = 2;

impl Belief {
    /// In a row: the devices that a slot's block may be read from, in the order of belief. A replacement
    /// stands after the member that it replaces.
    pub(super) fn holders(&self, view: View, slot: usize) -> impl Iterator<Item = usize> {
        let of_slot = move |device: &usize| self.slot(view, *device) == slot;
        let filling = bits(view.filling).filter(move |&device| view.holds(device, 0));
        bits(view.members).chain(filling).filter(of_slot)
    }

    /// Those of them that are read.
    pub(super) fn readers(&self, view: View, slot: usize) -> impl Iterator<Item = usize> {
        let second = self.keeps(Rule::ReplacementIsRead);
        let all = self.holders(view, slot).take(if second { DEVICES } else { 1 });
        all.filter(move |&device| view.reads(device, 0))
    }

    /// The one that is asked first.
    pub(super) fn holder(&self, view: View, slot: usize) -> Option<usize> {
        self.readers(view, slot).next()
    }

    /// Whether a read would find what was answered of a block, or something newer.
    pub(super) fn finds(
        &self,
        state: &State,
        view: View,
        block: usize,
        gives: impl Fn(usize) -> bool + Copy,
    ) -> bool {
        let ways = self.ways(state, view, block, gives);
        let replaced = self.is_row() && ways == OWN_SLOT;
        ways != 0 && (!replaced || self.readers(view, block).any(gives))
    }

    /// What the other block and parity compute.
    pub(super) fn computed(
        &self,
        state: &State,
        view: View,
        block: usize,
        gives: impl Fn(usize) -> bool,
    ) -> Option<u8> {
        let in_doubt = state.doubted(view) != 0 && self.keeps(Rule::NoComputingInDoubt);
        if !self.is_row() || in_doubt {
            return None;
        }
        let other = self.holder(view, 1 - block).filter(|&device| gives(device))?;
        let parity = self.holder(view, 2).filter(|&device| gives(device))?;
        let [other, parity] = [other, parity].map(|device| state.content[device]);
        let of_one_time = other[1 - block] == parity[1 - block];
        Some(if of_one_time { parity[block] } else { FOREIGN })
    }

    /// The ways in which what was answered of a block, or something newer, can be read by a view.
    pub(super) fn ways(
        &self,
        state: &State,
        view: View,
        block: usize,
        gives: impl Fn(usize) -> bool + Copy,
    ) -> u8 {
        let good = |version: u8| version != FOREIGN && version >= state.answered[block];
        let column = self.column(block);
        let readable = |device: usize| {
            view.reads(device, column) && gives(device) && good(state.content[device][block])
        };
        if !self.is_row() {
            return mask((0..self.devices()).filter(|&device| readable(device)));
        }
        let own = self.holders(view, block).any(readable);
        let computed = self.computed(state, view, block, gives).is_some_and(good);
        u8::from(own) * OWN_SLOT + u8::from(computed) * COMPUTED
    }

    /// The ways that both memory and durable records know.
    pub(super) fn true_ways(&self, state: &State, block: usize) -> u8 {
        let (now, disk) = (state.now, state.disk);
        let view = View {
            members: now.members & disk.members,
            listed: now.listed | disk.listed,
            filled: now.filled & disk.filled,
            in_doubt: now.in_doubt | disk.in_doubt,
            ..disk
        };
        self.ways(state, view, block, |device| state.gives(device, self.column(block)))
    }

    pub(super) fn finds_new_ways(&self, state: &mut State) {
        for block in 0..self.blocks() {
            state.ways[block] |= self.true_ways(state, block);
        }
    }

    /// A fault hits a device, at a column or everywhere: it takes ways.
    pub(super) fn fault(&self, state: &mut State, device: usize, column: Option<usize>) {
        state.left.faults -= 1;
        let slot = self.slot(state.now, device);
        for block in 0..self.blocks() {
            let own = self.column(block);
            if column.is_some_and(|hit| hit != own) {
                continue;
            }
            state.ways[block] &= !match (self.is_row(), slot == block) {
                (false, _) => 1 << device,
                (true, true) => OWN_SLOT,
                (true, false) => COMPUTED,
            };
            // What was read of a write that is not answered came from one copy, and may go with it.
            let writing =
                |lane: usize| state.is_writing(lane) && has(state.jobs[lane].blocks, block);
            if has(state.doubted(state.now), own) || (0..LANES).any(writing) {
                let answered = state.answered[block];
                state.seen[block] = answered;
                for job in &mut state.jobs {
                    job.floor[block] = job.floor[block].min(answered);
                }
            }
        }
    }

    /// Whether all believed copies of a column, or the row and its parity, agree.
    pub(super) fn agrees(&self, state: &State, column: usize) -> bool {
        let view = state.now;
        if self.is_row() {
            let slots: Option<Vec<_>> = (0..3).map(|slot| self.holder(view, slot)).collect();
            return slots.is_none_or(|slots| {
                let [first, second, parity] = [0, 1, 2].map(|slot| state.content[slots[slot]]);
                parity == [first[0], second[1]]
            });
        }
        let mut versions = view.copies(column).map(|device| state.content[device][column]);
        let first = versions.next();
        versions.all(|version| Some(version) == first)
    }

    /// Blocks that are being written.
    pub(super) fn being_written(&self, state: &State) -> Blocks {
        let writers = (0..LANES).filter(|&lane| state.is_writing(lane));
        writers.fold(0, |blocks, lane| blocks | state.jobs[lane].blocks)
    }
}
