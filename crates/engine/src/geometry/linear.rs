//! Linear: members one after another (`md-linear.c`).

use super::{GeometryError, MAX_SECTORS, Piece, Shape, Slot, check_disks_at_least, rounded_sizes};

/// The map of concatenated members.
#[derive(Clone, Debug)]
pub struct LinearGeometry {
    /// The array sector at which each member ends, by slot.
    ends: Vec<u64>,
}

impl LinearGeometry {
    pub(super) fn new(shape: &Shape) -> Result<LinearGeometry, GeometryError> {
        check_disks_at_least(shape, 1)?;
        let mut ends = Vec::with_capacity(usize::from(shape.raid_disks));
        let mut end = 0u64;
        for size in rounded_sizes(shape)? {
            end = end.saturating_add(size);
            ends.push(end);
        }
        if end > MAX_SECTORS {
            return Err(GeometryError::TooLarge);
        }
        Ok(LinearGeometry { ends })
    }

    /// The size of the array.
    #[inline]
    pub fn array_sectors(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Members of a whole array.
    #[inline]
    pub fn raid_disks(&self) -> u16 {
        self.ends.len() as u16
    }

    /// Where `array_sector` lies.
    ///
    /// # Panics
    /// When `array_sector` is beyond the end.
    #[inline]
    pub fn locate(&self, array_sector: u64) -> Piece {
        let slot = self.ends.partition_point(|&end| end <= array_sector);
        assert!(slot < self.ends.len(), "sector {array_sector} is beyond the array");
        Piece {
            slot: Slot(slot as u16),
            member_sector: array_sector - self.start(slot),
            sectors: self.ends[slot] - array_sector,
        }
    }

    /// The array sector that a member's sector holds; `None` beyond its rounded size.
    pub fn inverse(&self, slot: Slot, member_sector: u64) -> Option<u64> {
        let slot = usize::from(slot.0);
        let end = *self.ends.get(slot)?;
        let array_sector = self.start(slot).checked_add(member_sector)?;
        (array_sector < end).then_some(array_sector)
    }

    fn start(&self, slot: usize) -> u64 {
        if slot == 0 { 0 } else { self.ends[slot - 1] }
    }
}
