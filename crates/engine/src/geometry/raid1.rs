//! RAID1: the same address on every member.

use super::{GeometryError, MAX_SECTORS, Piece, Shape, Slot, check_disks_at_least};

/// The map of a mirror.
#[derive(Clone, Debug)]
pub struct Raid1Geometry {
    raid_disks: u16,
    array_sectors: u64,
}

impl Raid1Geometry {
    pub(super) fn new(shape: &Shape) -> Result<Raid1Geometry, GeometryError> {
        check_disks_at_least(shape, 1)?;
        if shape.member_sectors == 0 {
            return Err(GeometryError::MemberTooSmall {
                level: shape.level,
                slot: None,
                needed: 1,
            });
        }
        if shape.member_sectors > MAX_SECTORS {
            return Err(GeometryError::TooLarge);
        }
        // Old mdadm wrote a chunk size and a layout here too; md reads neither.
        Ok(Raid1Geometry { raid_disks: shape.raid_disks, array_sectors: shape.member_sectors })
    }

    /// The size of the array and of each member's used part.
    #[inline]
    pub fn array_sectors(&self) -> u64 {
        self.array_sectors
    }

    /// Mirrors of a whole array.
    #[inline]
    pub fn raid_disks(&self) -> u16 {
        self.raid_disks
    }

    /// The copy in slot 0.
    ///
    /// # Panics
    /// When `array_sector` is beyond the end.
    #[inline]
    pub fn locate(&self, array_sector: u64) -> Piece {
        assert!(array_sector < self.array_sectors, "sector {array_sector} is beyond the array");
        Piece {
            slot: Slot(0),
            member_sector: array_sector,
            sectors: self.array_sectors - array_sector,
        }
    }

    /// The array sector that a member's sector holds.
    #[inline]
    pub fn inverse(&self, slot: Slot, member_sector: u64) -> Option<u64> {
        (slot.0 < self.raid_disks && member_sector < self.array_sectors).then_some(member_sector)
    }
}
