//! A crash: what the disks hold for sure, and what they may hold beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::disk::{DiskIndex, WriteId};
use crate::model::Model;
use crate::random::splitmix64;
use crate::stamp::SECTOR_BYTES;
use crate::world::World;

use super::shape::{DATA_OFFSET, SUPERBLOCK_SECTOR};

/// What goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The power: nothing survives for sure but what is durable.
    Cut,
    /// The process: disks keep what they have done, and do the rest of what they were asked or not.
    Kill,
}

impl Crash {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Cut, Self::Kill];
}

/// What each disk holds.
pub(super) type Image = Vec<Vec<u8>>;

/// What one crash at one moment may leave.
pub(super) struct Leftovers {
    /// What is there for sure, disk by disk.
    pub(super) base: Image,
    /// What may lie over it.
    pub(super) pieces: Vec<Piece>,
    /// What the array may hold then.
    pub(super) model: Model,
    /// Sectors of members' data that were being written: parity may be half-written there.
    pub(super) at_risk: BTreeSet<u64>,
}

/// Sectors of a disk that change together, and what each write would leave there.
pub(super) struct Piece {
    pub(super) disk: usize,
    pub(super) sectors: Range<u64>,
    /// Oldest first. None is what the base has.
    pub(super) writes: Vec<(WriteId, Vec<u8>)>,
}

/// What becomes of each piece: 0 for what the base has, else the number of the write that is left.
pub(super) type Fates = Vec<u8>;

/// The writes of one sector over what is there for sure.
type Versions = Vec<(WriteId, Vec<u8>)>;

impl Leftovers {
    /// What `crash` may leave of `world` now.
    pub(super) fn of(crash: Crash, world: &World, model: &Model) -> Self {
        let mut base = Vec::new();
        let mut changes: Vec<BTreeMap<u64, Versions>> = Vec::new();
        for index in 0..world.disk_count() {
            world.disk(DiskIndex(index as u16), |disk| {
                base.push(disk.store.durable().to_vec());
                let owned = |(id, bytes): (WriteId, &[u8])| (id, bytes.to_vec());
                let volatile = disk.store.volatile();
                let sectors =
                    volatile.map(|(at, versions)| (at, versions.into_iter().map(owned).collect()));
                changes.push(sectors.collect());
            });
        }
        if crash == Crash::Kill {
            for (disk, changes) in base.iter_mut().zip(&mut changes) {
                for (sector, versions) in std::mem::take(changes) {
                    let (_, newest) = versions.last().expect("a volatile sector was written");
                    sector_of(disk, sector).copy_from_slice(newest);
                }
            }
        }
        for write in world.unlanded() {
            let changes = &mut changes[usize::from(write.disk.0)];
            for (at, bytes) in (write.sector..).zip(write.bytes.chunks_exact(SECTOR_BYTES)) {
                changes.entry(at).or_default().push((write.write, bytes.to_vec()));
            }
        }
        let at_risk = changes.iter().flat_map(|changes| changes.keys());
        let at_risk = at_risk.filter_map(|sector| sector.checked_sub(DATA_OFFSET)).collect();
        let mut model = model.clone();
        match crash {
            Crash::Cut => model.cut_power(),
            Crash::Kill => model.kill(),
        }
        let pieces = (0..).zip(changes).flat_map(|(disk, changes)| pieces(disk, changes, &base));
        let mut pieces: Vec<Piece> = pieces.collect();
        pieces.sort_by_key(|piece| piece.writes.first().map(|write| write.0));
        Self { base, pieces, model, at_risk }
    }

    /// What is left when the pieces meet these fates.
    pub(super) fn image(&self, fates: &Fates) -> Image {
        let mut image = self.base.clone();
        for (piece, &fate) in self.pieces.iter().zip(fates) {
            let Some(index) = usize::from(fate).checked_sub(1) else { continue };
            let start = piece.sectors.start as usize * SECTOR_BYTES;
            let bytes = &piece.writes[index].1;
            image[piece.disk][start..start + bytes.len()].copy_from_slice(bytes);
        }
        image
    }

    /// All fates, where there are at most `most` of them. Else: every mixture within one column (the same
    /// sectors of every disk) with all else lost, and with all else kept; and the writes up to each one,
    /// in the order in which they were asked for.
    pub(super) fn all_fates(&self, most: usize) -> Vec<Fates> {
        let every: Vec<usize> = (0..self.pieces.len()).collect();
        let kept: Fates = self.pieces.iter().map(|piece| piece.writes.len() as u8).collect();
        let lost: Fates = vec![0; kept.len()];
        if self.mixtures(&every) <= most {
            return self.mixed(&every, &lost);
        }
        let mut columns: BTreeMap<(u64, u64), Vec<usize>> = BTreeMap::new();
        for (index, piece) in self.pieces.iter().enumerate() {
            columns.entry((piece.sectors.start, piece.sectors.end)).or_default().push(index);
        }
        let mut fates = vec![lost.clone(), kept.clone()];
        for column in columns.values() {
            for rest in [&lost, &kept] {
                fates.extend(self.mixed(column, rest));
            }
        }
        fates.extend(self.prefixes(lost));
        fates.sort();
        fates.dedup();
        fates
    }

    fn mixtures(&self, which: &[usize]) -> usize {
        let ways = which.iter().map(|&index| self.pieces[index].writes.len() + 1);
        ways.fold(1, usize::saturating_mul)
    }

    /// Every mixture of the fates of `which`, the others as in `rest`.
    fn mixed(&self, which: &[usize], rest: &Fates) -> Vec<Fates> {
        let mut fates = vec![rest.clone()];
        for &index in which {
            let ways = 0..=self.pieces[index].writes.len() as u8;
            let with = |before: &Fates, way: u8| {
                let mut fates = before.clone();
                fates[index] = way;
                fates
            };
            fates =
                fates.iter().flat_map(|before| ways.clone().map(|way| with(before, way))).collect();
        }
        fates
    }

    fn prefixes(&self, lost: Fates) -> Vec<Fates> {
        let mut order: Vec<(WriteId, usize, u8)> = Vec::new();
        for (index, piece) in self.pieces.iter().enumerate() {
            order.extend((1..).zip(&piece.writes).map(|(way, write)| (write.0, index, way)));
        }
        order.sort();
        let mut so_far = lost;
        let prefix = order.into_iter().map(|(_, index, way)| {
            so_far[index] = way;
            so_far.clone()
        });
        prefix.collect()
    }

    /// Each piece and its fate.
    pub(super) fn words(&self, fates: &Fates) -> Vec<String> {
        let words = self.pieces.iter().zip(fates).map(|(piece, fate)| {
            let Piece { disk, sectors, writes } = piece;
            let fate = match (fate, writes.len()) {
                (0, _) => "lost".to_owned(),
                (_, 1) => "kept".to_owned(),
                (fate, all) => format!("write {fate} of {all} is left"),
            };
            format!("d{disk} {}+{}: {fate}", sectors.start, sectors.end - sectors.start)
        });
        words.collect()
    }

    /// Names the image with these fates, its expectations included. Equal names, equal verdicts.
    pub(super) fn name(&self, base: u64, fates: &Fates) -> u64 {
        let met = self.pieces.iter().zip(fates).filter(|(_, fate)| **fate > 0);
        met.fold(base, |name, (piece, &fate)| {
            let start = piece.sectors.start as usize * SECTOR_BYTES;
            let (_, bytes) = &piece.writes[usize::from(fate) - 1];
            let old = &self.base[piece.disk][start..start + bytes.len()];
            let name_of = |bytes| name_of_sectors(piece.disk, piece.sectors.start, bytes);
            name ^ name_of(old) ^ name_of(bytes)
        })
    }

    /// Names what is there for sure.
    pub(super) fn base_name(&self) -> u64 {
        names_of(&self.base).iter().fold(self.expectations(), |name, disk| name ^ disk)
    }

    /// Names what the array may hold.
    pub(super) fn expectations(&self) -> u64 {
        let sectors = (0..self.model.len()).map(|sector| {
            let legal: BTreeSet<u64> = self.model.legal(sector).into_iter().collect();
            legal.iter().fold(mix(sector), |name, version| mix(name ^ version))
        });
        let risks = self.at_risk.iter().map(|sector| mix(!sector));
        sectors.chain(risks).fold(0, |name, part| name ^ part)
    }
}

/// Names what each disk holds.
pub(super) fn names_of(image: &Image) -> Vec<u64> {
    (0..).zip(image).map(|(disk, bytes)| name_of_sectors(disk, 0, bytes)).collect()
}

/// Names what one disk holds from a sector on; two names of neighbours, xored, name both.
fn name_of_sectors(disk: usize, first: u64, bytes: &[u8]) -> u64 {
    let sectors = (first..).zip(bytes.chunks_exact(SECTOR_BYTES));
    sectors.fold(0, |name, (sector, bytes)| name ^ name_of_sector(disk, sector, bytes))
}

fn name_of_sector(disk: usize, sector: u64, bytes: &[u8]) -> u64 {
    let start = mix(sector << 16 | disk as u64);
    let words = bytes.chunks_exact(8).enumerate();
    words.fold(start, |name, (index, word)| {
        let word = match sector {
            SUPERBLOCK_SECTOR => without_time(index, word),
            _ => u64::from_le_bytes(word.try_into().expect("8 bytes")),
        };
        (name.rotate_left(29) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}

/// A word of a superblock, but for when it was written (u64 at byte 192) and its checksum (u32 at 216):
/// images that differ in nothing else are alike.
fn without_time(index: usize, word: &[u8]) -> u64 {
    let word = u64::from_le_bytes(word.try_into().expect("8 bytes"));
    match index {
        24 => 0,
        27 => word >> 32,
        _ => word,
    }
}

fn mix(value: u64) -> u64 {
    let mut state = value;
    splitmix64(&mut state)
}

/// The pieces of one disk. Sectors that every write leaves as they were are none. The columns of neighbours
/// that the same writes change are alike: the first stands for itself, the others go together.
fn pieces(disk: usize, changes: BTreeMap<u64, Versions>, base: &Image) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for (sector, versions) in changes {
        let start = sector as usize * SECTOR_BYTES;
        let mut contents = vec![&base[disk][start..start + SECTOR_BYTES]];
        let mut writes: Versions = Vec::new();
        for (id, bytes) in &versions {
            if !contents.contains(&&bytes[..]) {
                contents.push(bytes);
                writes.push((*id, bytes.clone()));
            }
        }
        if writes.is_empty() {
            continue;
        }
        let ids = |writes: &Versions| -> Vec<WriteId> { writes.iter().map(|w| w.0).collect() };
        let is_like = |piece: &Piece, sector: u64| {
            piece.sectors.end == sector && ids(&piece.writes) == ids(&writes)
        };
        let alike = match pieces.as_mut_slice() {
            [.., first, rest] if is_like(rest, sector) && is_like(first, rest.sectors.start) => {
                Some(rest)
            }
            _ => None,
        };
        match alike {
            Some(rest) => {
                rest.sectors.end += 1;
                for ((_, all), (_, bytes)) in rest.writes.iter_mut().zip(writes) {
                    all.extend(bytes);
                }
            }
            None => pieces.push(Piece { disk, sectors: sector..sector + 1, writes }),
        }
    }
    pieces
}

fn sector_of(disk: &mut [u8], sector: u64) -> &mut [u8] {
    let start = sector as usize * SECTOR_BYTES;
    &mut disk[start..start + SECTOR_BYTES]
}
