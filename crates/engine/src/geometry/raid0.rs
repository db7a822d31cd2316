//! RAID0: stripes over members of one or several sizes (`raid0.c`).
//!
//! The array is cut into zones. The first stripes over all members up to the size of the smallest; the next over
//! those that are larger, up to the next size; and so on. Within a zone the members keep the order of their slots.

use super::{
    Divisor, GeometryError, MAX_SECTORS, Piece, Shape, Slot, check_disks_at_least, rounded_sizes,
};

/// Layout 1, original: the member is chosen by the chunk's number in the array. Layout 2, alternate
/// (Linux 3.14 to 5.3): by its number in the zone. They differ only where there are several zones.
const ORIGINAL: u32 = 1;
const ALTERNATE: u32 = 2;

/// The map of a striped array.
#[derive(Clone, Debug)]
pub struct Raid0Geometry {
    raid_disks: u16,
    chunk: Divisor,
    zones: Vec<Zone>,
    array_sectors: u64,
}

#[derive(Clone, Debug)]
struct Zone {
    /// Chunks of the array before this zone.
    first_chunk: u64,
    end_sector: u64,
    /// Chunks on each member before this zone.
    member_chunk: u64,
    /// What turns a chunk's number in the zone into the number that chooses the member, below `members`.
    turn: u64,
    members: Vec<Slot>,
    width: Divisor,
}

impl Raid0Geometry {
    pub(super) fn new(shape: &Shape) -> Result<Raid0Geometry, GeometryError> {
        check_disks_at_least(shape, 1)?;
        if shape.chunk_sectors == 0 {
            return Err(GeometryError::Chunk {
                level: shape.level,
                chunk_sectors: 0,
                rule: "at least 1",
            });
        }
        let sizes = rounded_sizes(shape)?;
        let total = sizes.iter().fold(0u64, |sum, &size| sum.saturating_add(size));
        if total > MAX_SECTORS {
            return Err(GeometryError::TooLarge);
        }
        let mut zones = zones(&sizes, u64::from(shape.chunk_sectors));
        // With one member in the second zone the layouts are the same map: md asks for none then.
        let layouts_differ = zones.get(1).is_some_and(|zone| zone.members.len() > 1);
        match shape.layout {
            ORIGINAL => {}
            ALTERNATE => zones.iter_mut().for_each(|zone| zone.turn = 0),
            layout if layouts_differ => {
                return Err(GeometryError::AmbiguousRaid0Layout { layout });
            }
            _ => {}
        }
        Ok(Raid0Geometry {
            raid_disks: shape.raid_disks,
            chunk: Divisor::new(u64::from(shape.chunk_sectors)),
            zones,
            array_sectors: array_sectors(&sizes, shape.chunk_sectors),
        })
    }

    /// The size of the array. Where the chunk is no power of two it may be less than the zones hold.
    #[inline]
    pub fn array_sectors(&self) -> u64 {
        self.array_sectors
    }

    /// Members of a whole array.
    #[inline]
    pub fn raid_disks(&self) -> u16 {
        self.raid_disks
    }

    /// Sectors per chunk; any number, not just powers of two.
    #[inline]
    pub fn chunk_sectors(&self) -> u32 {
        self.chunk.divisor() as u32
    }

    /// Where `array_sector` lies.
    ///
    /// # Panics
    /// When `array_sector` is beyond the end.
    #[inline]
    pub fn locate(&self, array_sector: u64) -> Piece {
        assert!(array_sector < self.array_sectors, "sector {array_sector} is beyond the array");
        let zone = self.zones.iter().find(|zone| array_sector < zone.end_sector);
        let zone = zone.expect("the zones hold the array");
        let (chunk, offset) = self.chunk.div_rem(array_sector);
        let in_zone = chunk - zone.first_chunk;
        let member = zone.width.rem(in_zone + zone.turn);
        let row = zone.width.div(in_zone);
        Piece {
            slot: zone.members[member as usize],
            member_sector: (zone.member_chunk + row) * self.chunk.divisor() + offset,
            sectors: (self.chunk.divisor() - offset).min(self.array_sectors - array_sector),
        }
    }

    /// The array sector that a member's sector holds; `None` beyond its rounded size.
    pub fn inverse(&self, slot: Slot, member_sector: u64) -> Option<u64> {
        let (member_chunk, offset) = self.chunk.div_rem(member_sector);
        let holds = |zone: &&Zone| zone.member_chunk <= member_chunk;
        let zone = self.zones.iter().rfind(holds)?;
        let member = zone.members.iter().position(|&member| member == slot)? as u64;
        let width = zone.width.divisor();
        let in_row = (member + width - zone.turn) % width;
        let row_chunk = (member_chunk - zone.member_chunk).checked_mul(width)?;
        let chunk = row_chunk.checked_add(zone.first_chunk + in_row)?;
        let array_sector = chunk.checked_mul(self.chunk.divisor())?.checked_add(offset)?;
        (array_sector < zone.end_sector.min(self.array_sectors)).then_some(array_sector)
    }
}

/// What md makes of members of these sizes. It rounds with a mask that fits powers of two only, and so gives
/// away a part of the last zone with other chunks; a larger array would be cut when md assembles it.
fn array_sectors(sizes: &[u64], chunk_sectors: u32) -> u64 {
    let mask = !(u64::from(chunk_sectors) - 1);
    sizes.iter().map(|size| size & mask).sum()
}

/// The zones of the original layout over members of these sizes, all whole chunks and none empty.
fn zones(sizes: &[u64], chunk_sectors: u64) -> Vec<Zone> {
    let mut steps = sizes.to_vec();
    steps.sort_unstable();
    steps.dedup();
    let mut zones = Vec::with_capacity(steps.len());
    let (mut first_chunk, mut member_chunk) = (0, 0);
    for step in steps {
        let step_chunk = step / chunk_sectors;
        let larger = |&slot: &usize| sizes[slot] >= step;
        let members =
            (0..sizes.len()).filter(larger).map(|slot| Slot(slot as u16)).collect::<Vec<_>>();
        let width = members.len() as u64;
        let end_chunk = first_chunk + (step_chunk - member_chunk) * width;
        zones.push(Zone {
            first_chunk,
            end_sector: end_chunk * chunk_sectors,
            member_chunk,
            turn: first_chunk % width,
            members,
            width: Divisor::new(width),
        });
        (first_chunk, member_chunk) = (end_chunk, step_chunk);
    }
    zones
}
