//! Where every sector of an array lies on its members.
//!
//! Pure address maps for every md level, exactly as the kernel lays data out (`raid0.c`, `raid1.c`,
//! `raid5.c`, `raid10.c`, `md-linear.c`). A [`Geometry`] is made once from a [`Shape`] and then only asked:
//! lookups allocate nothing and divide by nothing that was not prepared ([`Divisor`]).
//!
//! All addresses are 512-byte sectors; member addresses count from the member's `data_offset`.

use std::fmt;
use std::ops::Range;

pub use divisor::Divisor;
pub use error::GeometryError;
pub use linear::LinearGeometry;
pub use mdspace_format::{Level, MAX_SECTORS};
pub use parity::{ParityGeometry, Position, Row, RowAddress};
pub use raid0::Raid0Geometry;
pub use raid1::Raid1Geometry;
pub use raid10::{Copies, Raid10Geometry};

mod divisor;
mod error;
mod linear;
mod parity;
mod raid0;
mod raid1;
mod raid10;

/// The most members an array of metadata 1.x can name (`dev_roles` of a 4 KiB superblock).
pub const MAX_RAID_DISKS: u16 = 1920;

/// The smallest chunk of a level that computes or copies by page: 4 KiB, in sectors.
const PAGE_SECTORS: u32 = 8;

/// The position (role) of a member in its array, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u16);

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot {}", self.0)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What a superblock says about an array's layout; not yet checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shape {
    /// The level.
    pub level: Level,
    /// md's layout number; its meaning depends on the level. Ignored by linear, RAID1 and RAID4.
    pub layout: u32,
    /// Members that make the array whole, spares not counted.
    pub raid_disks: u16,
    /// Sectors per chunk. RAID1 has none; for linear it is the rounding of members, or 0.
    pub chunk_sectors: u32,
    /// Sectors used on each member. Ignored by linear and RAID0.
    pub member_sectors: u64,
    /// Usable sectors of each member by slot: linear and RAID0 only.
    pub member_sizes: Vec<u64>,
}

/// The address map of one array.
#[derive(Clone, Debug)]
pub enum Geometry {
    /// Members one after another.
    Linear(LinearGeometry),
    /// Stripes in one or several zones.
    Raid0(Raid0Geometry),
    /// Mirrors.
    Raid1(Raid1Geometry),
    /// RAID4, RAID5 and RAID6.
    Parity(ParityGeometry),
    /// Near, far and offset copies.
    Raid10(Raid10Geometry),
}

/// A run of sectors on one member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The member.
    pub slot: Slot,
    /// The first sector, relative to the member's `data_offset`.
    pub member_sector: u64,
    /// Sectors from there on that hold consecutive array sectors; at least 1.
    pub sectors: u64,
}

impl Piece {
    /// Its sectors, relative to the member's `data_offset`.
    pub(crate) fn member_sectors(&self) -> Range<u64> {
        self.member_sector..self.member_sector + self.sectors
    }
}

impl Geometry {
    /// Checks a shape and prepares its map. Whatever md could not run is refused.
    pub fn new(shape: &Shape) -> Result<Geometry, GeometryError> {
        if shape.raid_disks > MAX_RAID_DISKS {
            return Err(GeometryError::TooManyDisks {
                level: shape.level,
                raid_disks: shape.raid_disks,
                maximum: MAX_RAID_DISKS,
            });
        }
        let geometry = match shape.level {
            Level::Linear => Geometry::Linear(LinearGeometry::new(shape)?),
            Level::Raid0 => Geometry::Raid0(Raid0Geometry::new(shape)?),
            Level::Raid1 => Geometry::Raid1(Raid1Geometry::new(shape)?),
            Level::Raid4 | Level::Raid5 | Level::Raid6 => {
                Geometry::Parity(ParityGeometry::new(shape)?)
            }
            Level::Raid10 => Geometry::Raid10(Raid10Geometry::new(shape)?),
        };
        Ok(geometry)
    }

    /// The size of the array.
    #[inline]
    pub fn array_sectors(&self) -> u64 {
        match self {
            Geometry::Linear(map) => map.array_sectors(),
            Geometry::Raid0(map) => map.array_sectors(),
            Geometry::Raid1(map) => map.array_sectors(),
            Geometry::Parity(map) => map.array_sectors(),
            Geometry::Raid10(map) => map.array_sectors(),
        }
    }

    /// The redundancy to walk, as resync counts it: sectors of the array for RAID10, of a member
    /// otherwise.
    pub fn sync_sectors(&self) -> u64 {
        match self {
            Geometry::Parity(map) => map.rows() * u64::from(map.chunk_sectors()),
            geometry => geometry.array_sectors(),
        }
    }

    /// Sectors of a member that lie together in the array: a chunk. A whole member of RAID1 and linear does.
    pub(crate) fn chunk_sectors(&self) -> Option<u64> {
        match self {
            Geometry::Parity(map) => Some(map.chunk_sectors().into()),
            Geometry::Raid0(map) => Some(map.chunk_sectors().into()),
            Geometry::Raid10(map) => Some(map.chunk_sectors().into()),
            Geometry::Linear(_) | Geometry::Raid1(_) => None,
        }
    }

    /// Members that make the array whole.
    #[inline]
    pub fn raid_disks(&self) -> u16 {
        match self {
            Geometry::Linear(map) => map.raid_disks(),
            Geometry::Raid0(map) => map.raid_disks(),
            Geometry::Raid1(map) => map.raid_disks(),
            Geometry::Parity(map) => map.raid_disks(),
            Geometry::Raid10(map) => map.raid_disks(),
        }
    }

    /// How many lost members are borne whichever they are. RAID10 may bear more: see [`Geometry::enough`].
    pub fn max_failures(&self) -> u16 {
        match self {
            Geometry::Linear(_) | Geometry::Raid0(_) => 0,
            Geometry::Raid1(map) => map.raid_disks() - 1,
            Geometry::Parity(map) => map.parity_disks(),
            Geometry::Raid10(map) => map.max_failures(),
        }
    }

    /// Whether every block can still be read with just the members for which `present` is true.
    pub fn enough(&self, present: &dyn Fn(Slot) -> bool) -> bool {
        let missing = || (0..self.raid_disks()).filter(|&slot| !present(Slot(slot))).count();
        match self {
            Geometry::Raid10(map) => map.enough(present),
            _ => missing() <= usize::from(self.max_failures()),
        }
    }

    /// Where the first (or only) copy of `array_sector` lies, and how far it runs on there.
    ///
    /// # Panics
    /// When `array_sector` is beyond the end of the array.
    #[inline]
    pub fn locate(&self, array_sector: u64) -> Piece {
        match self {
            Geometry::Linear(map) => map.locate(array_sector),
            Geometry::Raid0(map) => map.locate(array_sector),
            Geometry::Raid1(map) => map.locate(array_sector),
            Geometry::Parity(map) => map.locate(array_sector),
            Geometry::Raid10(map) => map.locate(array_sector),
        }
    }

    /// The array sector of which `member_sector` holds the data or a copy; `None` for parity and
    /// for sectors that the array does not use.
    pub fn inverse(&self, slot: Slot, member_sector: u64) -> Option<u64> {
        match self {
            Geometry::Linear(map) => map.inverse(slot, member_sector),
            Geometry::Raid0(map) => map.inverse(slot, member_sector),
            Geometry::Raid1(map) => map.inverse(slot, member_sector),
            Geometry::Parity(map) => map.inverse(slot, member_sector),
            Geometry::Raid10(map) => map.inverse(slot, member_sector),
        }
    }
}

/// `chunks` × `chunk_sectors`, refused beyond [`MAX_SECTORS`].
fn array_size(chunks: u128, chunk_sectors: u32) -> Result<u64, GeometryError> {
    let sectors = chunks.saturating_mul(u128::from(chunk_sectors));
    match u64::try_from(sectors) {
        Ok(sectors) if sectors <= MAX_SECTORS => Ok(sectors),
        _ => Err(GeometryError::TooLarge),
    }
}

/// Refuses a chunk that is not a power of two of at least a page, as levels with copies or parity do.
fn check_page_chunk(shape: &Shape) -> Result<(), GeometryError> {
    if shape.chunk_sectors.is_power_of_two() && shape.chunk_sectors >= PAGE_SECTORS {
        return Ok(());
    }
    Err(GeometryError::Chunk {
        level: shape.level,
        chunk_sectors: shape.chunk_sectors,
        rule: "a power of two of at least 8",
    })
}

fn check_disks_at_least(shape: &Shape, minimum: u16) -> Result<(), GeometryError> {
    if shape.raid_disks >= minimum {
        return Ok(());
    }
    Err(GeometryError::TooFewDisks { level: shape.level, raid_disks: shape.raid_disks, minimum })
}

/// The usable size of each member, rounded down to whole chunks (linear may have none).
fn rounded_sizes(shape: &Shape) -> Result<Vec<u64>, GeometryError> {
    if shape.member_sizes.len() != usize::from(shape.raid_disks) {
        return Err(GeometryError::MemberSizes {
            level: shape.level,
            raid_disks: shape.raid_disks,
            found: shape.member_sizes.len(),
        });
    }
    let chunk = u64::from(shape.chunk_sectors.max(1));
    let rounded = shape.member_sizes.iter().map(|size| size - size % chunk).collect::<Vec<_>>();
    for (slot, &size) in rounded.iter().enumerate() {
        if size == 0 {
            return Err(GeometryError::MemberTooSmall {
                level: shape.level,
                slot: Some(slot as u16),
                needed: chunk,
            });
        }
    }
    Ok(rounded)
}

#[cfg(test)]
mod tests;
