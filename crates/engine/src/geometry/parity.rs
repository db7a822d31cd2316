//! RAID4, RAID5 and RAID6: rows of chunks with parity (`raid5.c`).

use std::ops::Range;

use super::{
    Divisor, GeometryError, Level, Piece, Shape, Slot, array_size, check_disks_at_least,
    check_page_chunk,
};
use layout::{Pattern, Rule};

mod layout;

/// The map of a parity array.
///
/// A *row* is one chunk on every member, all at the same member address: data chunks and P, or P and Q.
#[derive(Clone, Debug)]
pub struct ParityGeometry {
    raid_disks: u16,
    data_disks: u16,
    exponents: u16,
    chunk_shift: u32,
    rows: u64,
    array_sectors: u64,
    per_row: Divisor,
    /// The rows repeat after this many; one pattern each.
    period: Divisor,
    patterns: Vec<Pattern>,
}

/// Where an array sector is in its row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowAddress {
    /// The row's number.
    pub row: u64,
    /// Which of the row's data chunks.
    pub data_index: u16,
    /// Sectors from the beginning of the chunk.
    pub offset_sectors: u32,
}

/// One row's places. Small and `Copy`: made on the fly for every request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    index: u64,
    member_sector: u64,
    raid_disks: u16,
    data_disks: u16,
    exponents: u16,
    pattern: Pattern,
}

/// What a member holds in one row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Position {
    /// The data chunk with this index.
    Data(u16),
    /// The exclusive or of the data chunks.
    P,
    /// The Reed-Solomon parity of the data chunks.
    Q,
}

impl ParityGeometry {
    pub(super) fn new(shape: &Shape) -> Result<ParityGeometry, GeometryError> {
        let parity_disks = if shape.level == Level::Raid6 { 2 } else { 1 };
        check_disks_at_least(shape, if parity_disks == 2 { 4 } else { 2 })?;
        check_page_chunk(shape)?;
        let rule = Rule::of(shape)?;
        let data_disks = shape.raid_disks - parity_disks;
        let rows = shape.member_sectors / u64::from(shape.chunk_sectors);
        if rows == 0 {
            return Err(GeometryError::MemberTooSmall {
                level: shape.level,
                slot: None,
                needed: u64::from(shape.chunk_sectors),
            });
        }
        let chunks = u128::from(rows) * u128::from(data_disks);
        let array_sectors = array_size(chunks, shape.chunk_sectors)?;
        let patterns = rule.patterns(shape.raid_disks);
        Ok(ParityGeometry {
            raid_disks: shape.raid_disks,
            data_disks,
            exponents: rule.exponents(shape.raid_disks),
            chunk_shift: shape.chunk_sectors.trailing_zeros(),
            rows,
            array_sectors,
            per_row: Divisor::new(u64::from(data_disks)),
            period: Divisor::new(patterns.len() as u64),
            patterns,
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

    /// Data chunks in a row.
    #[inline]
    pub fn data_disks(&self) -> u16 {
        self.data_disks
    }

    /// Parity chunks in a row: 1 or 2.
    #[inline]
    pub fn parity_disks(&self) -> u16 {
        self.raid_disks - self.data_disks
    }

    /// Up to where, in member sectors, parity can be compared with data, when each member has its blocks up to
    /// what `filled_to` says. From there on as many members lack theirs as a row has parities.
    pub fn comparable_to(&self, filled_to: impl Fn(Slot) -> u64) -> u64 {
        let mut filled: Vec<u64> = (0..self.raid_disks).map(Slot).map(filled_to).collect();
        filled.sort_unstable();
        filled[usize::from(self.parity_disks()) - 1]
    }

    /// Sectors per chunk, a power of two.
    #[inline]
    pub fn chunk_sectors(&self) -> u32 {
        1 << self.chunk_shift
    }

    /// Rows in the array.
    #[inline]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Data sectors in a row.
    #[inline]
    pub fn row_sectors(&self) -> u64 {
        u64::from(self.data_disks) << self.chunk_shift
    }

    /// How many chunks some array sectors, at least one, lie in.
    #[inline]
    pub fn chunks(&self, sector: u64, sectors: u64) -> usize {
        let last = (sector + sectors - 1) >> self.chunk_shift;
        (last - (sector >> self.chunk_shift)) as usize + 1
    }

    /// The row and place of an array sector.
    ///
    /// # Panics
    /// When `array_sector` is beyond the end.
    #[inline]
    pub fn split(&self, array_sector: u64) -> RowAddress {
        assert!(array_sector < self.array_sectors, "sector {array_sector} is beyond the array");
        let (row, data_index) = self.per_row.div_rem(array_sector >> self.chunk_shift);
        RowAddress {
            row,
            data_index: data_index as u16,
            offset_sectors: array_sector as u32 & (self.chunk_sectors() - 1),
        }
    }

    /// The array sector of a place: the inverse of [`ParityGeometry::split`].
    #[inline]
    pub fn join(&self, address: RowAddress) -> u64 {
        let chunk = address.row * u64::from(self.data_disks) + u64::from(address.data_index);
        (chunk << self.chunk_shift) + u64::from(address.offset_sectors)
    }

    /// The places of row `row`.
    ///
    /// # Panics
    /// When the array has no such row.
    #[inline]
    pub fn row(&self, row: u64) -> Row {
        assert!(row < self.rows, "row {row} is beyond the array");
        Row {
            index: row,
            member_sector: row << self.chunk_shift,
            raid_disks: self.raid_disks,
            data_disks: self.data_disks,
            exponents: self.exponents,
            pattern: self.patterns[self.period.rem(row) as usize],
        }
    }

    /// Where the data of `array_sector` lies.
    ///
    /// # Panics
    /// When `array_sector` is beyond the end.
    #[inline]
    pub fn locate(&self, array_sector: u64) -> Piece {
        let address = self.split(array_sector);
        let row = self.row(address.row);
        Piece {
            slot: row.data(address.data_index),
            member_sector: row.member_sector() + u64::from(address.offset_sectors),
            sectors: u64::from(self.chunk_sectors() - address.offset_sectors),
        }
    }

    /// The array sector that a member's sector holds; `None` for parity and beyond the last row.
    pub fn inverse(&self, slot: Slot, member_sector: u64) -> Option<u64> {
        let row = member_sector >> self.chunk_shift;
        if row >= self.rows || slot.0 >= self.raid_disks {
            return None;
        }
        let Position::Data(data_index) = self.row(row).position(slot) else {
            return None;
        };
        let offset_sectors = member_sector as u32 & (self.chunk_sectors() - 1);
        Some(self.join(RowAddress { row, data_index, offset_sectors }))
    }
}

impl Row {
    /// The row's number.
    #[inline]
    pub fn index(&self) -> u64 {
        self.index
    }

    /// The first sector of the row, on every member.
    #[inline]
    pub fn member_sector(&self) -> u64 {
        self.member_sector
    }

    /// The sectors of some columns of the row, counted from its first, on every member.
    #[inline]
    pub fn member_sectors(&self, columns: &Range<u32>) -> Range<u64> {
        let at = |column: u32| self.member_sector + u64::from(column);
        at(columns.start)..at(columns.end)
    }

    /// The member that holds P.
    #[inline]
    pub fn p(&self) -> Slot {
        Slot(self.pattern.p)
    }

    /// The member that holds Q; RAID6 only.
    #[inline]
    pub fn q(&self) -> Option<Slot> {
        (self.pattern.q != Pattern::NO_Q).then_some(Slot(self.pattern.q))
    }

    /// The member that holds data chunk `data_index`.
    ///
    /// # Panics
    /// When the row has fewer data chunks.
    #[inline]
    pub fn data(&self, data_index: u16) -> Slot {
        assert!(data_index < self.data_disks, "data chunk {data_index} is beyond the row");
        Slot(self.pattern.slot_of(data_index))
    }

    /// What the member in `slot` holds.
    ///
    /// # Panics
    /// When the array has no such slot.
    #[inline]
    pub fn position(&self, slot: Slot) -> Position {
        assert!(slot.0 < self.raid_disks, "{slot} is beyond the array");
        if slot.0 == self.pattern.p {
            Position::P
        } else if slot.0 == self.pattern.q {
            Position::Q
        } else {
            Position::Data(self.pattern.data_index_of(slot.0))
        }
    }

    /// i in Q = Σ g^i · D, for the data chunk `data_index`. 0 where there is no Q.
    ///
    /// md counts the data chunks from the member after Q on; DDF layouts count the slots.
    ///
    /// # Panics
    /// When the row has fewer data chunks.
    #[inline]
    pub fn exponent(&self, data_index: u16) -> u8 {
        let slot = self.data(data_index);
        if self.pattern.q == Pattern::NO_Q {
            return 0;
        }
        if self.exponents == self.raid_disks {
            return slot.0 as u8;
        }
        let turned = data_index + self.pattern.exponent_of_first;
        let wrapped = if turned < self.data_disks { turned } else { turned - self.data_disks };
        wrapped as u8
    }

    /// How many places the exponents are taken from: the data chunks, or every slot in DDF layouts.
    #[inline]
    pub fn exponents(&self) -> u16 {
        self.exponents
    }
}
