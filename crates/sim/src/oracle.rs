//! The judge over the raw disks: is redundancy what it should be, and does it hold what the model
//! says? It reads superblocks, places and parity by naive code of its own.

mod field;
mod layout;
mod marks;
mod remains;
mod superblock;

#[cfg(test)]
mod tests;

use crate::disk::DiskIndex;
use crate::model::{Model, Violation};
use crate::stamp::SECTOR_BYTES;
use crate::world::World;

use field::{add, add_times};

pub use layout::{Place, Row, Shape};
pub use marks::bitmap_of;
pub use remains::{Remains, Wrong};
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
        Remains::find(world, disks)?.whole()
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
            add(&mut p, &data);
            if row.q.is_some() {
                add_times(&mut q, &data, row.exponents[slot].expect("data has an exponent"));
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
