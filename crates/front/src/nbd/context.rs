//! Metadata contexts: what a block status tells of each range.

use mdspace_engine::array::{Redundancy, Stretch};

use super::wire::{extent_state, redundancy_state};

/// A metadata context.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Context {
    /// `base:allocation`, of proto.md: what is a hole, and what reads as zeroes.
    Allocation,
    /// `mdspace:redundancy`, ours: what is degraded, being rebuilt, not synced, or lost. It is not called a state, for md's
    /// states are of a whole array.
    Redundancy,
}

/// Some of the contexts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Contexts(u8);

/// The status of consecutive bytes of an export in one context.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Extent {
    /// Length in bytes, not zero.
    pub length_bytes: u64,
    /// Status flags, as the context defines them.
    pub status: u32,
}

impl Context {
    /// All that this server knows.
    pub(super) const ALL: [Context; 2] = [Context::Allocation, Context::Redundancy];

    /// Its name on the wire: namespace, colon, leaf.
    pub fn name(self) -> &'static str {
        match self {
            Context::Allocation => "base:allocation",
            Context::Redundancy => "mdspace:redundancy",
        }
    }

    /// The number under which this server knows it.
    pub(super) fn id(self) -> u32 {
        match self {
            Context::Allocation => 1,
            Context::Redundancy => 2,
        }
    }

    /// The context that this server has given a number.
    pub(super) fn with_id(id: u32) -> Option<Context> {
        Context::ALL.into_iter().find(|context| context.id() == id)
    }

    /// Whether a client that lists contexts asks for this one: by its name, or by its namespace alone.
    pub(super) fn is_listed_by(self, query: &[u8]) -> bool {
        let name = self.name().as_bytes();
        query == name || (query.ends_with(b":") && name.starts_with(query))
    }
}

impl Contexts {
    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Adds one. False: it was there.
    pub fn insert(&mut self, context: Context) -> bool {
        let is_new = !self.contains(context);
        self.0 |= bit(context);
        is_new
    }

    /// Whether this one is there.
    pub fn contains(self, context: Context) -> bool {
        self.0 & bit(context) != 0
    }

    /// Whether all of these are there.
    pub(super) fn contain(self, others: Contexts) -> bool {
        self.0 & others.0 == others.0
    }

    /// Each of them, in the order of their numbers.
    pub fn iter(self) -> impl Iterator<Item = Context> {
        Context::ALL.into_iter().filter(move |context| self.contains(*context))
    }
}

impl FromIterator<Context> for Contexts {
    fn from_iter<I: IntoIterator<Item = Context>>(all: I) -> Contexts {
        Contexts(all.into_iter().map(bit).fold(0, |set, bit| set | bit))
    }
}

fn bit(context: Context) -> u8 {
    1 << context.id()
}

impl Extent {
    /// Allocated, and not known to be zero: in [`Context::Allocation`].
    pub fn allocated(length_bytes: u64) -> Extent {
        Extent { length_bytes, status: 0 }
    }

    /// Nothing is allocated, and it reads as zeroes: in [`Context::Allocation`].
    pub fn hole(length_bytes: u64) -> Extent {
        Extent { length_bytes, status: extent_state::HOLE | extent_state::ZERO }
    }
    /// Kept once, as on a level without copies and parity: in [`Context::Redundancy`].
    pub fn single(length_bytes: u64) -> Extent {
        Extent { length_bytes, status: redundancy_state::SINGLE }
    }
}

/// In [`Context::Redundancy`].
impl From<Stretch> for Extent {
    fn from(Stretch { sectors, redundancy }: Stretch) -> Extent {
        let Redundancy { degraded, rebuilding, unsynced, lost, is_single } = redundancy;
        let when = |condition: bool, flag: u32| if condition { flag } else { 0 };
        let status = when(degraded, redundancy_state::DEGRADED)
            | when(rebuilding, redundancy_state::REBUILDING)
            | when(unsynced, redundancy_state::UNSYNCED)
            | when(lost, redundancy_state::LOST)
            | when(is_single, redundancy_state::SINGLE);
        Extent { length_bytes: sectors * 512, status }
    }
}
