//! Superblocks that the device's user has written since the device was last read. When its last path is lost before the
//! next check, the device says one of these when a path is back, or what was known of it.
//!
//! It says none that is older than the last one that it has made durable: else it is a copy of an earlier time. And it
//! says none that came from elsewhere: then another program has written to it while no path led there, and what the
//! array knows of its blocks is not so any more.

use std::ops::Range;

use mdspace_format::superblock::Superblock;
use mdspace_format::{MetadataVersion, SuperblockPlace};

use crate::backend::IoOp;

use super::Paths;
use super::identity::{Identity, Said};
use super::kept::Kept;
use super::owner::Owner;

/// So many are kept, the newest.
const KEPT: usize = 8;

/// Where superblocks lie on a device.
pub(super) fn places(sectors: u64) -> Vec<SuperblockPlace> {
    let places = MetadataVersion::PROBE_ORDER.map(|version| version.place(sectors));
    places.into_iter().flatten().collect()
}

/// Superblocks that were written and not read yet, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Given(Vec<Said>);

impl Given {
    /// Notes what is about to be written.
    pub(super) fn add(&mut self, said: Said) {
        self.0.retain(|given| *given != said);
        if self.0.len() == KEPT {
            self.0.remove(0);
        }
        self.0.push(said);
    }

    /// The device has made one durable: it holds none of those before it.
    fn is_durable(&mut self, said: Said, known: Option<&mut Identity>) {
        if let Some(at) = self.0.iter().position(|given| *given == said) {
            let later = self.0.split_off(at);
            self.0.retain(|given| !given.is_of(&said));
            self.0.extend(later);
        }
        let known = known.and_then(|known| known.superblock.as_mut());
        known.into_iter().filter(|known| known.is_of(&said)).for_each(|known| *known = said);
    }

    /// Whether the device's user has made it what it says.
    pub(super) fn explains(&self, own: &Identity) -> bool {
        own.superblock.is_some_and(|own| self.0.contains(&own))
    }

    /// The device says so now: what was given up to that is the past. What was given since may not have landed
    /// when it was read.
    pub(super) fn read(&mut self, identity: &Identity) {
        let said = identity.superblock;
        if let Some(at) = self.0.iter().rposition(|given| Some(*given) == said) {
            self.0.drain(..=at);
        }
    }
}

impl Paths {
    /// Notes a superblock that the device's user writes, before any path has it.
    #[inline]
    pub(super) fn note_given(&self, op: &IoOp) {
        let IoOp::Write { sector, from, .. } = op else { return };
        let written = *sector..*sector + from.len() as u64 / 512;
        let bytes = || Some(from.to_vec());
        self.note_superblocks(&written, &bytes, |owner, said| {
            owner.given.add(said);
        });
    }

    /// Notes a superblock that a path has made durable.
    #[inline]
    pub(super) fn note_durable(&self, kept: &Kept) {
        let Some(written) = kept.written() else { return };
        self.note_superblocks(&written, &|| kept.bytes(), |owner, said| {
            owner.superblocks += 1;
            owner.given.is_durable(said, owner.known.as_mut());
        });
    }

    /// Notes what the superblocks say that a write has.
    #[inline]
    fn note_superblocks(
        &self,
        written: &Range<u64>,
        bytes: &dyn Fn() -> Option<Vec<u8>>,
        note: impl Fn(&mut Owner, Said),
    ) {
        for place in self.superblock_places.iter().filter(|at| written.contains(&at.sector)) {
            if let Some(said) = self.said_by(*place, written.start, bytes) {
                note(&mut self.owner.lock(), said);
            }
        }
    }

    /// What the superblock says that stands at `place` in a write from `sector` on.
    #[cold]
    fn said_by(
        &self,
        place: SuperblockPlace,
        sector: u64,
        bytes: &dyn Fn() -> Option<Vec<u8>>,
    ) -> Option<Said> {
        let at = (place.sector - sector) as usize * 512;
        let superblock = Superblock::parse(&bytes()?[at..], place, self.info.sectors).ok()?;
        Some(Said::of(&superblock))
    }
}

#[cfg(test)]
mod tests;
