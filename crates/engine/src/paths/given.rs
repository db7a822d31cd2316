//! Superblocks that the device's user has written since the device was last read. When its last path is lost before the
//! next check, the device says one of these when a path is back, or what was known of it. One without a superblock is
//! told by its first block in the same way.
//!
//! It says none that is older than the last one that it has made durable: else it is a copy of an earlier time. And it
//! says none that came from elsewhere: then another program has written to it while no path led there, and what the
//! array knows of its blocks is not so any more.

use std::ops::Range;

use mdspace_format::superblock::Superblock;
use mdspace_format::{MetadataVersion, SuperblockPlace};

use crate::backend::IoOp;

use super::Paths;
use super::identity::{BLOCK_BYTES, Identity, SECTOR_BYTES, Said, digest};
use super::kept::{Kept, written_by};
use super::owner::Owner;

/// So many are kept, the newest.
const KEPT: usize = 8;

/// So many contents are kept of each sector of the first block.
const CONTENTS_KEPT: usize = 64;

const FIRST_BLOCK_SECTORS: u64 = (BLOCK_BYTES / SECTOR_BYTES) as u64;

/// Where superblocks lie on a device.
pub(super) fn places(sectors: u64) -> Vec<SuperblockPlace> {
    let places = MetadataVersion::PROBE_ORDER.map(|version| version.place(sectors));
    places.into_iter().flatten().collect()
}

/// What was written and not read yet.
#[derive(Debug, Default)]
pub(super) struct Given {
    /// Superblocks, the oldest first.
    superblocks: Vec<Said>,
    first_block: FirstBlock,
}

/// What a device without a superblock may have in the sectors of its first block: what was read or written there of
/// late, as digests, the oldest first. It may have lost what it was not told to flush, and have what was there before.
/// None of a sector: anything.
#[derive(Debug, Default)]
struct FirstBlock([Option<Vec<u64>>; BLOCK_BYTES / SECTOR_BYTES]);

impl FirstBlock {
    /// Notes what is about to be written from a sector on; anything, where that is not known.
    fn add(&mut self, written: &Range<u64>, bytes: Option<&[u8]>) {
        for sector in written.start..written.end.min(self.0.len() as u64) {
            let at = (sector - written.start) as usize * SECTOR_BYTES;
            let bytes = bytes.and_then(|bytes| bytes.get(at..at + SECTOR_BYTES));
            let known = &mut self.0[sector as usize];
            match (bytes, &mut *known) {
                (Some(bytes), Some(digests)) => keep(digests, digest(bytes)),
                _ => *known = None,
            }
        }
    }

    /// The device has this now.
    fn read(&mut self, block: &[u8]) {
        for (known, sector) in self.0.iter_mut().zip(block.chunks(SECTOR_BYTES)) {
            keep(known.get_or_insert_default(), digest(sector));
        }
    }

    fn explains(&self, block: &[u8]) -> bool {
        let mut sectors = self.0.iter().zip(block.chunks(SECTOR_BYTES));
        sectors.all(|(known, sector)| {
            known.as_ref().is_none_or(|digests| digests.contains(&digest(sector)))
        })
    }
}

fn keep(digests: &mut Vec<u64>, one: u64) {
    digests.retain(|known| *known != one);
    digests.push(one);
    digests.drain(..digests.len().saturating_sub(CONTENTS_KEPT));
}

impl Given {
    /// Notes what is about to be written.
    pub(super) fn add(&mut self, said: Said) {
        self.superblocks.retain(|given| *given != said);
        if self.superblocks.len() == KEPT {
            self.superblocks.remove(0);
        }
        self.superblocks.push(said);
    }

    /// The device has made one durable: it holds none of those before it.
    fn is_durable(&mut self, said: Said, known: Option<&mut Identity>) {
        if let Some(at) = self.superblocks.iter().position(|given| *given == said) {
            let later = self.superblocks.split_off(at);
            self.superblocks.retain(|given| !given.is_of(&said));
            self.superblocks.extend(later);
        }
        let known = known.and_then(|known| known.superblock.as_mut());
        known.into_iter().filter(|known| known.is_of(&said)).for_each(|known| *known = said);
    }

    /// Whether a device without a superblock has in its first block what it had, or what its user has written there
    /// since. One whose first block cannot be read is not told from another.
    pub(super) fn explains_first_block(&self, own: &Identity) -> bool {
        self.first_block.explains(own.first_block())
    }

    /// Whether the device's user has made it what it says.
    pub(super) fn explains(&self, own: &Identity) -> bool {
        own.superblock.is_some_and(|own| self.superblocks.contains(&own))
    }

    /// The device says so now: what was given up to that is the past. What was given since may not have landed
    /// when it was read.
    pub(super) fn read(&mut self, identity: &Identity) {
        self.first_block.read(identity.first_block());
        let said = identity.superblock;
        if let Some(at) = self.superblocks.iter().rposition(|given| Some(*given) == said) {
            self.superblocks.drain(..=at);
        }
    }
}

impl Paths {
    /// Notes what tells the device from others and its user writes, before any path has it.
    #[inline]
    pub(super) fn note_given(&self, op: &IoOp) {
        let Some(written) = written_by(op) else { return };
        if written.start < FIRST_BLOCK_SECTORS {
            self.note_first_block(&written, op);
        }
        let IoOp::Write { from, .. } = op else { return };
        let bytes = || Some(from.to_vec());
        self.note_superblocks(&written, &bytes, |owner, said| {
            owner.given.add(said);
        });
    }

    #[cold]
    fn note_first_block(&self, written: &Range<u64>, op: &IoOp) {
        let bytes = match op {
            IoOp::Write { from, .. } => Some(from.to_vec()),
            IoOp::WriteZeroes { .. } => Some(vec![0; BLOCK_BYTES]),
            // What a discard leaves there is the device's to say.
            _ => None,
        };
        self.owner.lock().given.first_block.add(written, bytes.as_deref());
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
