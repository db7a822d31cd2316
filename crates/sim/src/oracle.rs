//! The judge over the raw disks: is redundancy what it should be, and does it hold what the model
//! says? It reads superblocks, places and parity by naive code of its own.

mod layout;
mod superblock;
mod unmarked;

#[cfg(test)]
mod tests;

use crate::disk::DiskIndex;
use crate::model::{Model, Violation};
use crate::stamp::SECTOR_BYTES;
use crate::world::World;

pub use layout::{Place, Row, Shape};
pub use superblock::RawSuperblock;

/// The bytes of a sector.
pub type Sector = [u8; SECTOR_BYTES];

/// A whole array, as its disks tell it.
#[derive(Debug)]
pub struct RawArray<'a> {
    world: &'a World,
    /// What it looks like.
    pub shape: Shape,
    /// By slot: the disk, and where its data begin.
    slots: Vec<(DiskIndex, u64)>,
}

/// By slot: the disk of the member in sync, and where its data begin.
type Slots = Vec<Result<(DiskIndex, u64), NotWhole>>;

/// Why the disks do not make a whole array at rest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotWhole {
    /// No disk has a superblock.
    #[error("no superblock on any disk")]
    NoSuperblock,
    /// A slot that the freshest superblock names has no current member.
    #[error("slot {0} has no member that is up to date")]
    Missing(usize),
    /// A member is not rebuilt to its end.
    #[error("the member in slot {0} is still being rebuilt")]
    Recovering(usize),
    /// A write may have been under way.
    #[error("the array is not marked clean")]
    Dirty,
}

impl<'a> RawArray<'a> {
    /// Finds the whole and clean array on `disks`.
    pub fn open(world: &'a World, disks: &[DiskIndex]) -> Result<Self, NotWhole> {
        let (array, agrees_to) = Self::find(world, disks)?;
        if agrees_to == u64::MAX { Ok(array) } else { Err(NotWhole::Dirty) }
    }

    /// Finds the whole array on `disks`, and up to where its superblocks say that redundancy agrees, as resync
    /// counts.
    pub fn find(world: &'a World, disks: &[DiskIndex]) -> Result<(Self, u64), NotWhole> {
        let (shape, slots, agrees_to) = Self::find_slots(world, disks)?;
        let slots = slots.into_iter().collect::<Result<_, _>>()?;
        Ok((Self { world, shape, slots }, agrees_to))
    }

    /// Disks and sectors that hold a sector of the array, as the superblocks say: those of members in sync.
    pub fn copies(
        world: &World,
        disks: &[DiskIndex],
        sector: u64,
    ) -> Result<Vec<(DiskIndex, u64)>, NotWhole> {
        let (shape, slots, _) = Self::find_slots(world, disks)?;
        let places = shape.places(sector);
        let held = places.iter().filter_map(|place| {
            let (disk, start) = slots[place.slot].as_ref().ok()?;
            Some((*disk, start + place.sector))
        });
        Ok(held.collect())
    }

    fn find_slots(world: &World, disks: &[DiskIndex]) -> Result<(Shape, Slots, u64), NotWhole> {
        let found: Vec<(DiskIndex, RawSuperblock)> = disks
            .iter()
            .filter_map(|&disk| Some((disk, world.disk(disk, RawSuperblock::find)?)))
            .collect();
        let freshest = found.iter().map(|(_, sb)| sb).max_by_key(|sb| sb.events);
        let freshest = freshest.ok_or(NotWhole::NoSuperblock)?;
        let (mut slots, mut member_sectors) = (Vec::new(), Vec::new());
        for slot in 0..freshest.raid_disks {
            let current = found.iter().find(|(_, sb)| {
                let holds = freshest.role_of(sb.dev_number) == Some(slot) && !sb.replaces;
                sb.events == freshest.events && holds
            });
            slots.push(match current {
                None => Err(NotWhole::Missing(slot)),
                Some((_, sb)) if sb.recovering => Err(NotWhole::Recovering(slot)),
                Some((disk, sb)) => Ok((*disk, sb.data_offset)),
            });
            member_sectors.push(current.map_or(freshest, |(_, sb)| sb).member_sectors());
        }
        let shape = Shape {
            level: freshest.level,
            layout: freshest.layout,
            chunk_sectors: freshest.chunk_sectors,
            member_sectors,
        };
        Ok((shape, slots, freshest.agrees_to))
    }

    /// The disk and sector behind a place.
    pub fn raw(&self, place: Place) -> (DiskIndex, u64) {
        let (disk, data_offset) = self.slots[place.slot];
        (disk, data_offset + place.sector)
    }

    /// Sectors of members whose redundancy does not agree with the data.
    pub fn mismatches(&self, array_sectors: u64) -> u64 {
        if self.shape.has_parity() {
            return (0..self.shape.rows()).map(|row| self.row_mismatches(row)).sum();
        }
        (0..array_sectors).map(|sector| self.copy_mismatches(sector)).sum()
    }

    /// Where redundancy disagrees, for whoever looks for the reason: member sectors of parity levels,
    /// array sectors of mirrors.
    pub fn wrong_sectors(&self, array_sectors: u64) -> Vec<u64> {
        let chunk = self.shape.chunk_sectors;
        match self.shape.has_parity() {
            true => {
                let rows = (0..self.shape.rows()).map(|row| (row, self.shape.row(row)));
                let sectors = rows.flat_map(|(row, who)| {
                    let sectors = row * chunk..(row + 1) * chunk;
                    sectors.filter(move |&sector| self.sector_mismatches(&who, sector) > 0)
                });
                sectors.collect()
            }
            false => (0..array_sectors).filter(|&at| self.copy_mismatches(at) > 0).collect(),
        }
    }

    fn copy_mismatches(&self, sector: u64) -> u64 {
        let places = self.shape.places(sector);
        let first = self.read(places[0]);
        places.iter().filter(|&&place| self.read(place) != first).count() as u64
    }

    fn row_mismatches(&self, row: u64) -> u64 {
        let who = self.shape.row(row);
        let start = row * self.shape.chunk_sectors;
        let sectors = start..start + self.shape.chunk_sectors;
        sectors.map(|sector| self.sector_mismatches(&who, sector)).sum()
    }

    fn sector_mismatches(&self, row: &Row, sector: u64) -> u64 {
        let (mut p, mut q) = ([0; SECTOR_BYTES], [0; SECTOR_BYTES]);
        for &slot in &row.data {
            let data = self.read(Place { slot, sector });
            add(&mut p, &data, 0);
            if row.q.is_some() {
                add(&mut q, &data, row.exponents[slot].expect("data has an exponent"));
            }
        }
        let p_wrong = self.read(Place { slot: row.p, sector }) != p;
        let q_wrong = row.q.is_some_and(|slot| self.read(Place { slot, sector }) != q);
        u64::from(p_wrong) + u64::from(q_wrong)
    }

    /// Checks that the first copy of every sector is one that the model allows.
    pub fn check_data(&self, model: &mut Model) -> Result<(), Violation> {
        for sector in 0..model.len() {
            let bytes = self.read(self.shape.places(sector)[0]);
            let read = model.begin_read();
            model.end_read(read, sector, &bytes)?;
        }
        Ok(())
    }

    /// What each slot's member holds of the array.
    pub fn content(&self) -> Vec<Vec<u8>> {
        let content = |slot: usize| {
            let (disk, start) = self.slots[slot];
            let mut bytes = vec![0; self.shape.member_sectors[slot] as usize * SECTOR_BYTES];
            self.world.disk(disk, |disk| disk.store.read(start, &mut bytes));
            bytes
        };
        (0..self.slots.len()).map(content).collect()
    }

    /// Puts bytes in a place, behind everybody's back.
    pub fn put(&self, place: Place, bytes: &[u8]) {
        let (disk, sector) = self.raw(place);
        self.world.change_disk(disk, |disk| disk.store.overwrite(sector, bytes));
    }

    /// What lies in a place.
    pub fn read(&self, place: Place) -> Sector {
        let (disk, sector) = self.raw(place);
        let mut bytes = [0; SECTOR_BYTES];
        self.world.disk(disk, |disk| disk.store.read(sector, &mut bytes));
        bytes
    }
}

/// Adds `data` times the generator to the `exponent` to `sum`, in GF(2^8) modulo 0x11d.
fn add(sum: &mut Sector, data: &Sector, exponent: u32) {
    for (sum, &byte) in sum.iter_mut().zip(data) {
        *sum ^= (0..exponent).fold(byte, |byte, _| times_two(byte));
    }
}

fn times_two(byte: u8) -> u8 {
    byte << 1 ^ if byte & 0x80 == 0 { 0 } else { 0x1d }
}
