//! Blocks of one row's columns, in memory.

use crate::memory::Buffer;

use super::cache::Stripe;
use super::plan::{Place, Places};

/// The blocks of some places of a row, all of the same columns. Few are known at a time: most rounds
/// touch three.
#[derive(Debug, Default)]
pub(super) struct Blocks(Stripe);

impl Blocks {
    /// Adds the block of a place that has none.
    pub(super) fn put(&mut self, place: Place, block: Buffer) {
        self.0.push((place, block));
    }

    pub(super) fn take(&mut self, place: Place) -> Option<Buffer> {
        let at = self.0.iter().position(|(known, _)| *known == place)?;
        Some(self.0.swap_remove(at).1)
    }

    pub(super) fn get(&self, place: Place) -> Option<&Buffer> {
        self.iter().find(|(known, _)| *known == place).map(|(_, block)| block)
    }

    /// The places whose blocks are here.
    pub(super) fn places(&self) -> Places {
        self.iter().map(|(place, _)| place).collect()
    }

    /// As the cache keeps them.
    pub(super) fn into_stripe(self) -> Stripe {
        self.0
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Place, &Buffer)> {
        self.0.iter().map(|(place, block)| (*place, block))
    }
}

impl IntoIterator for Blocks {
    type Item = (Place, Buffer);
    type IntoIter = <Stripe as IntoIterator>::IntoIter;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
