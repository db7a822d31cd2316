//! Breadth-first search over every state that a model can reach. The first violation found is a
//! shortest one. A search without a violation then asks of every state whether what waits there can
//! still end.

use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::mem;

/// A small world with all its steps.
pub(crate) trait Model {
    /// All that the future depends on.
    type State: Copy + Eq + Hash;

    fn start(&self) -> Self::State;

    /// Adds every step that is possible here.
    fn steps(&self, state: &Self::State, steps: &mut Steps<Self::State>);

    /// What is wrong with a state in itself.
    fn wrong(&self, _: &Self::State) -> Option<String> {
        None
    }

    /// Whether no request waits here.
    fn is_quiet(&self, _: &Self::State) -> bool {
        true
    }
}

/// Who takes a step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// The array: such a step is taken sooner or later.
    Array,
    /// Users, faults and power cuts: nothing may wait for one of these.
    World,
}

struct Step<S> {
    /// Made for a trace only.
    name: String,
    by: By,
    next: Result<S, String>,
}

/// The steps that are possible in a state.
pub(crate) struct Steps<S> {
    with_names: bool,
    list: Vec<Step<S>>,
}

impl<S> Steps<S> {
    fn new(with_names: bool) -> Self {
        Self { with_names, list: Vec::new() }
    }

    /// A step to a state, or to what it shows to be wrong.
    pub(crate) fn add(&mut self, by: By, name: impl FnOnce() -> String, next: Result<S, String>) {
        let name = if self.with_names { name() } else { String::new() };
        self.list.push(Step { name, by, next });
    }

    /// A step of the array to a state.
    pub(crate) fn array(&mut self, name: impl FnOnce() -> String, next: S) {
        self.add(By::Array, name, Ok(next));
    }

    /// A step of the world to a state.
    pub(crate) fn world(&mut self, name: impl FnOnce() -> String, next: S) {
        self.add(By::World, name, Ok(next));
    }
}

/// What a search has found.
pub(crate) struct Found {
    pub(crate) states: usize,
    pub(crate) depth: usize,
    pub(crate) violation: Option<Violation>,
}

/// Something wrong, and the shortest way there.
pub(crate) struct Violation {
    pub(crate) what: String,
    pub(crate) trace: Vec<String>,
}

/// A search ends before the machine's memory does.
const MOST_STATES: usize = 40_000_000;

/// Looks at every state that can be reached.
pub(crate) fn search<M: Model>(model: &M) -> Found {
    let mut seen = Seen::new(model.start());
    let mut own_steps = Vec::new();
    let mut steps = Steps::new(false);
    let (mut at, mut depth, mut level_end) = (0, 0, 1);
    while at < seen.states.len() {
        if at == level_end {
            (depth, level_end) = (depth + 1, seen.states.len());
        }
        let state = seen.states[at];
        model.steps(&state, &mut steps);
        for (number, step) in steps.list.drain(..).enumerate() {
            let what = match step.next {
                Err(what) => Some(what),
                Ok(next) => {
                    let (to, is_new) = seen.insert(next, at);
                    if step.by == By::Array {
                        own_steps.push((to, at as u32));
                    }
                    is_new.then(|| model.wrong(&next)).flatten()
                }
            };
            if let Some(what) = what {
                let mut trace = seen.way_to(model, at);
                trace.push(named(model, &state).swap_remove(number).name);
                let violation = Some(Violation { what, trace });
                return Found { states: seen.states.len(), depth, violation };
            }
        }
        assert!(seen.states.len() <= MOST_STATES, "more than {MOST_STATES} states");
        at += 1;
    }
    let violation = first_stuck(model, &seen.states, own_steps).map(|at| Violation {
        what: "a request waits for ever".into(),
        trace: seen.way_to(model, at),
    });
    Found { states: seen.states.len(), depth, violation }
}

/// The first state from which no steps of the array lead to one where nothing waits. `steps` are pairs
/// of the state that is reached and the one that it is reached from.
fn first_stuck<M: Model>(
    model: &M,
    states: &[M::State],
    mut steps: Vec<(u32, u32)>,
) -> Option<usize> {
    steps.sort_unstable();
    let mut ends: Vec<bool> = states.iter().map(|state| model.is_quiet(state)).collect();
    let mut next: Vec<u32> = (0..states.len() as u32).filter(|&n| ends[n as usize]).collect();
    while let Some(to) = next.pop() {
        let first = steps.partition_point(|step| step.0 < to);
        for &(_, from) in steps[first..].iter().take_while(|step| step.0 == to) {
            if !mem::replace(&mut ends[from as usize], true) {
                next.push(from);
            }
        }
    }
    ends.iter().position(|ends| !ends)
}

fn named<M: Model>(model: &M, state: &M::State) -> Vec<Step<M::State>> {
    let mut steps = Steps::new(true);
    model.steps(state, &mut steps);
    steps.list
}

/// Every state once, in the order in which it was found, with the state that led to it.
struct Seen<S> {
    states: Vec<S>,
    from: Vec<u32>,
    /// Numbers of states by hash, with open addressing.
    table: Vec<u32>,
    hasher: BuildHasherDefault<Mix>,
}

const EMPTY: u32 = u32::MAX;

impl<S: Copy + Eq + Hash> Seen<S> {
    fn new(start: S) -> Self {
        let table = vec![EMPTY; 1 << 16];
        let mut seen =
            Self { states: Vec::new(), from: Vec::new(), table, hasher: BuildHasherDefault::new() };
        seen.insert(start, 0);
        seen
    }

    /// The state's number, and whether it is new.
    fn insert(&mut self, state: S, from: usize) -> (u32, bool) {
        if self.states.len() * 2 > self.table.len() {
            self.grow();
        }
        let place = self.place(&state);
        if self.table[place] != EMPTY {
            return (self.table[place], false);
        }
        let number = self.states.len() as u32;
        self.table[place] = number;
        self.states.push(state);
        self.from.push(from as u32);
        (number, true)
    }

    fn place(&self, state: &S) -> usize {
        let mask = self.table.len() - 1;
        let mut place = self.hasher.hash_one(state) as usize & mask;
        while self.table[place] != EMPTY && self.states[self.table[place] as usize] != *state {
            place = (place + 1) & mask;
        }
        place
    }

    fn grow(&mut self) {
        self.table = vec![EMPTY; self.table.len() * 2];
        let mask = self.table.len() - 1;
        for (number, state) in self.states.iter().enumerate() {
            let mut place = self.hasher.hash_one(state) as usize & mask;
            while self.table[place] != EMPTY {
                place = (place + 1) & mask;
            }
            self.table[place] = number as u32;
        }
    }

    /// The names of the steps to a state: each is taken again.
    fn way_to<M: Model<State = S>>(&self, model: &M, mut at: usize) -> Vec<String> {
        let mut names = Vec::new();
        while at != 0 {
            let from = self.from[at] as usize;
            let steps = named(model, &self.states[from]);
            let taken = steps.into_iter().find(|step| step.next == Ok(self.states[at]));
            names.push(taken.expect("a state was reached by a step").name);
            at = from;
        }
        names.reverse();
        names
    }
}

/// A fast hash of small plain values. Nothing here comes from outside.
#[derive(Default)]
struct Mix {
    hash: u64,
    gathered: u64,
    bytes: u32,
}

impl Mix {
    fn mix(&mut self, word: u64) {
        self.hash = (self.hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        let mixed = self.hash ^ self.gathered.rotate_left(29) ^ (self.hash >> 32);
        let mixed = mixed.wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^ (mixed >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u8(byte);
        }
    }

    /// Bytes are gathered by eight.
    fn write_u8(&mut self, byte: u8) {
        self.gathered = self.gathered << 8 | u64::from(byte);
        self.bytes += 1;
        if self.bytes.is_multiple_of(8) {
            let word = mem::take(&mut self.gathered);
            self.mix(word);
        }
    }

    fn write_u16(&mut self, value: u16) {
        self.write(&value.to_le_bytes());
    }

    fn write_usize(&mut self, value: usize) {
        self.mix(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u8(value as u8);
    }

    fn write_u64(&mut self, value: u64) {
        self.mix(value);
    }
}

#[cfg(test)]
mod tests;
