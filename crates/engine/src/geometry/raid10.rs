//! RAID10: near, far and offset copies on any number of members (`raid10.c`).

use super::{
    Divisor, GeometryError, Piece, Shape, Slot, array_size, check_disks_at_least, check_page_chunk,
};

/// md's layout number of RAID10, taken apart.
#[derive(Clone, Copy, Debug)]
struct Layout {
    /// Bits 0 to 7: copies on neighbouring members.
    near: u16,
    /// Bits 8 to 15: copies at far addresses, each on the members after.
    far: u16,
    /// Bit 16: a far copy stands one chunk below, not in another part of the member.
    offset: bool,
    /// Bits 17 and 18: far copies stay within sets of this many members, the last set taking the remainder.
    far_set: u16,
}

/// The map of a RAID10 array.
///
/// Chunks are dealt over the members in turn, each `near` times. The whole is then repeated `far` times with the
/// members turned by `near`: in the next part of each member, or (offset) in the next chunk.
#[derive(Clone, Debug)]
pub struct Raid10Geometry {
    raid_disks: u16,
    near: u16,
    far: u16,
    offset: bool,
    chunk_shift: u32,
    chunks: u64,
    array_sectors: u64,
    /// Sectors of each member that md uses: whole chunks, and as many in each far part.
    used_sectors: u64,
    /// From a far copy to the next, on the next member.
    stride_sectors: u64,
    disks: Divisor,
    /// Chunks of a member in one far part.
    part: Divisor,
    far_divisor: Divisor,
    near_divisor: Divisor,
    /// For each slot the slot of the next far copy, and the other way round.
    far_next: Vec<u16>,
    far_previous: Vec<u16>,
}

impl Layout {
    fn of(shape: &Shape) -> Result<Layout, GeometryError> {
        let (level, layout, raid_disks) = (shape.level, shape.layout, shape.raid_disks);
        let near = (layout & 0xff) as u16;
        let far = (layout >> 8 & 0xff) as u16;
        let copies = near * far;
        if layout >> 17 > 2 {
            return Err(GeometryError::UnknownLayout { level, layout });
        }
        let maximum = raid_disks.min(u16::from(u8::MAX));
        if copies < 2 || copies > maximum {
            return Err(GeometryError::Copies { copies, raid_disks, maximum });
        }
        let far_set = match layout >> 17 {
            0 => raid_disks,
            1 => raid_disks / far,
            _ => copies,
        };
        Ok(Layout { near, far, offset: layout & 1 << 16 != 0, far_set })
    }

    /// The slot of the next far copy, for each slot; as `raid10.c` has it.
    fn far_next(&self, raid_disks: u16) -> Vec<u16> {
        let remainder = raid_disks % self.far_set;
        let last_set = (raid_disks / self.far_set - 1) * self.far_set;
        let next = |slot: u16| {
            let stepped = slot + self.near;
            if remainder != 0 && stepped > last_set {
                last_set + (stepped - last_set) % (self.far_set + remainder)
            } else {
                slot / self.far_set * self.far_set + stepped % self.far_set
            }
        };
        (0..raid_disks).map(next).collect()
    }
}

impl Raid10Geometry {
    pub(super) fn new(shape: &Shape) -> Result<Raid10Geometry, GeometryError> {
        check_disks_at_least(shape, 2)?;
        check_page_chunk(shape)?;
        let layout = Layout::of(shape)?;
        let overlap =
            GeometryError::CopiesOverlap { layout: shape.layout, raid_disks: shape.raid_disks };
        let far_next = layout.far_next(shape.raid_disks);
        let far_previous = inverse_permutation(&far_next).ok_or(overlap.clone())?;
        // A near copy that wraps goes one chunk down, which in an offset layout is a far copy's place.
        if layout.offset && layout.far > 1 && !shape.raid_disks.is_multiple_of(layout.near) {
            return Err(overlap);
        }
        let chunk_shift = shape.chunk_sectors.trailing_zeros();
        let part_chunks = (shape.member_sectors >> chunk_shift) / u64::from(layout.far);
        let positions = u128::from(part_chunks) * u128::from(shape.raid_disks);
        let chunks = positions / u128::from(layout.near);
        if chunks == 0 {
            return Err(GeometryError::MemberTooSmall {
                level: shape.level,
                slot: None,
                needed: u64::from(shape.chunk_sectors) * u64::from(layout.far),
            });
        }
        let array_sectors = array_size(chunks, shape.chunk_sectors)?;
        let stride_chunks = if layout.offset { 1 } else { part_chunks };
        Ok(Raid10Geometry {
            raid_disks: shape.raid_disks,
            near: layout.near,
            far: layout.far,
            offset: layout.offset,
            chunk_shift,
            chunks: array_sectors >> chunk_shift,
            array_sectors,
            used_sectors: (part_chunks * u64::from(layout.far)) << chunk_shift,
            stride_sectors: stride_chunks << chunk_shift,
            disks: Divisor::new(u64::from(shape.raid_disks)),
            part: Divisor::new(part_chunks),
            far_divisor: Divisor::new(u64::from(layout.far)),
            near_divisor: Divisor::new(u64::from(layout.near)),
            far_next,
            far_previous,
        })
    }

    /// The size of the array.
    #[inline]
    pub fn array_sectors(&self) -> u64 {
        self.array_sectors
    }

    /// Members of a whole array.
    #[inline]
    pub fn raid_disks(&self) -> u16 {
        self.raid_disks
    }

    /// Copies of every chunk: near × far.
    #[inline]
    pub fn copies(&self) -> u8 {
        (self.near * self.far) as u8
    }

    /// Whether some copies lie in another part of the members than the first ones.
    #[inline]
    pub fn has_far_copies(&self) -> bool {
        self.far > 1 && !self.offset
    }

    /// Sectors per chunk, a power of two.
    #[inline]
    pub fn chunk_sectors(&self) -> u32 {
        1 << self.chunk_shift
    }

    /// Chunks in the array.
    #[inline]
    pub fn chunks(&self) -> u64 {
        self.chunks
    }

    /// Sectors of each member that the array uses, which resync and recovery walk.
    #[inline]
    pub fn used_sectors(&self) -> u64 {
        self.used_sectors
    }

    /// Members and addresses of every copy of `array_chunk`, in md's order: for each near copy its far copies.
    ///
    /// # Panics
    /// When the array has no such chunk.
    #[inline]
    pub fn copies_of(&self, array_chunk: u64) -> Copies<'_> {
        let (slot, member_sector) = self.first_copy(array_chunk);
        Copies {
            map: self,
            left: usize::from(self.copies()),
            far_left: self.far,
            near: (slot, member_sector),
            next: (slot, member_sector),
        }
    }

    /// Where the first copy of `array_sector` lies.
    ///
    /// # Panics
    /// When `array_sector` is beyond the end.
    #[inline]
    pub fn locate(&self, array_sector: u64) -> Piece {
        let (slot, chunk_start) = self.first_copy(array_sector >> self.chunk_shift);
        let chunk_sectors = u64::from(self.chunk_sectors());
        let offset = array_sector & (chunk_sectors - 1);
        Piece {
            slot: Slot(slot),
            member_sector: chunk_start + offset,
            sectors: chunk_sectors - offset,
        }
    }

    /// The array sector of which a member's sector holds a copy; `None` where the array uses none.
    pub fn inverse(&self, slot: Slot, member_sector: u64) -> Option<u64> {
        if slot.0 >= self.raid_disks || member_sector >= self.used_sectors {
            return None;
        }
        let member_chunk = member_sector >> self.chunk_shift;
        let (far_copy, row) = if self.offset {
            let (row, far_copy) = self.far_divisor.div_rem(member_chunk);
            (far_copy, row)
        } else {
            self.part.div_rem(member_chunk)
        };
        let back = |slot: u16, _| self.far_previous[usize::from(slot)];
        let first = (0..far_copy).fold(slot.0, back);
        let position = row * u64::from(self.raid_disks) + u64::from(first);
        let chunk = self.near_divisor.div(position);
        let offset = member_sector & (u64::from(self.chunk_sectors()) - 1);
        (chunk < self.chunks).then_some((chunk << self.chunk_shift) + offset)
    }

    /// How many lost members are borne whichever they are: one less than the members that share a chunk.
    /// That is copies - 1, but for far sets smaller than the copies (bit 17), which md only warns of.
    pub fn max_failures(&self) -> u16 {
        let distinct = |chunk| {
            let mut slots = self.copies_of(chunk).map(|(slot, _)| slot).collect::<Vec<_>>();
            slots.sort_unstable();
            slots.dedup();
            slots.len() as u16
        };
        self.classes().map(distinct).min().map_or(0, |fewest| fewest - 1)
    }

    /// Whether every chunk has a copy on a member for which `present` is true.
    pub fn enough(&self, present: &dyn Fn(Slot) -> bool) -> bool {
        self.classes().all(|chunk| self.copies_of(chunk).any(|(slot, _)| present(slot)))
    }

    /// One chunk for every set of members that can share one.
    fn classes(&self) -> impl Iterator<Item = u64> {
        0..self.chunks.min(u64::from(self.raid_disks))
    }

    /// Slot and first member sector.
    #[inline]
    fn first_copy(&self, array_chunk: u64) -> (u16, u64) {
        assert!(array_chunk < self.chunks, "chunk {array_chunk} is beyond the array");
        let (row, slot) = self.disks.div_rem(array_chunk * u64::from(self.near));
        let member_chunk = if self.offset { row * u64::from(self.far) } else { row };
        (slot as u16, member_chunk << self.chunk_shift)
    }
}

/// The copies of one chunk: member, and first sector there.
#[derive(Clone, Debug)]
pub struct Copies<'a> {
    map: &'a Raid10Geometry,
    left: usize,
    /// Far copies not yet told of the present near copy.
    far_left: u16,
    near: (u16, u64),
    next: (u16, u64),
}

impl Iterator for Copies<'_> {
    type Item = (Slot, u64);

    #[inline]
    fn next(&mut self) -> Option<(Slot, u64)> {
        self.left = self.left.checked_sub(1)?;
        let (slot, member_sector) = self.next;
        self.far_left -= 1;
        if self.far_left > 0 {
            let next = self.map.far_next[usize::from(slot)];
            self.next = (next, member_sector + self.map.stride_sectors);
        } else {
            self.far_left = self.map.far;
            self.near.0 += 1;
            if self.near.0 == self.map.raid_disks {
                self.near = (0, self.near.1 + u64::from(self.map.chunk_sectors()));
            }
            self.next = self.near;
        }
        Some((Slot(slot), member_sector))
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Copies<'_> {}

/// `None` when `forward` takes two places to one.
fn inverse_permutation(forward: &[u16]) -> Option<Vec<u16>> {
    let mut inverse = vec![u16::MAX; forward.len()];
    for (from, &to) in forward.iter().enumerate() {
        let place = &mut inverse[usize::from(to)];
        if *place != u16::MAX {
            return None;
        }
        *place = from as u16;
    }
    Some(inverse)
}
