//! RAID1 and RAID10: every block on several members.
//!
//! Claims go by regions of the array: a chunk for RAID10, [`REGION_SECTORS`] for RAID1, which has none.

mod behind;
mod choice;
mod read;

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::rc::Rc;

use smallvec::SmallVec;

use crate::geometry::{Geometry, Piece, Slot};
use crate::lane::join_all;
use crate::memory::Source;
use crate::request::RequestError;

use super::array_lane::{ArrayLane, source_part};
use super::claims::Mode;
use super::ended::Target;
use super::member_writes::MemberWrites;
use super::rules::Rule;
use super::view::ArrayView;

pub(crate) use behind::{Behind, Counted};
pub(super) use choice::device;

/// What one RAID1 claim can cover: 1 MiB, so that most requests lie in one region.
pub(super) const REGION_SECTORS: u64 = 2048;

/// A part of a request inside one region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) index: u64,
    /// Sectors inside the region.
    pub(super) columns: Range<u32>,
    /// Sectors from the start of the request.
    pub(super) first: u64,
    pub(super) sector: u64,
}

impl Region {
    pub(super) fn sectors(&self) -> u64 {
        u64::from(self.columns.end - self.columns.start)
    }

    /// Both halves, in whole blocks; none of a single block.
    fn halves(&self, block_sectors: u32) -> Option<(Self, Self)> {
        let half = ((self.columns.end - self.columns.start) / 2).next_multiple_of(block_sectors);
        let middle = self.columns.start + half;
        if half == 0 || middle >= self.columns.end {
            return None;
        }
        let one = Self { columns: self.columns.start..middle, ..self.clone() };
        let other = Self {
            columns: middle..self.columns.end,
            first: self.first + u64::from(half),
            sector: self.sector + u64::from(half),
            ..self.clone()
        };
        Some((one, other))
    }
}

/// Sectors of a claim region.
pub(super) fn region_sectors(geometry: &Geometry) -> u64 {
    match geometry {
        Geometry::Raid10(map) => u64::from(map.chunk_sectors()),
        _ => REGION_SECTORS,
    }
}

/// The regions of a range: one, for most.
pub(super) type Regions = SmallVec<[Region; 1]>;

/// Cuts a range at the borders of regions.
pub(super) fn regions(geometry: &Geometry, sector: u64, sectors: u64) -> Regions {
    let size = region_sectors(geometry);
    let mut regions = Regions::new();
    let mut first = 0;
    while first < sectors {
        let at = sector + first;
        let (index, offset) = (at / size, at % size);
        let length = (size - offset).min(sectors - first);
        let columns = offset as u32..(offset + length) as u32;
        regions.push(Region { index, columns, first, sector: at });
        first += length;
    }
    regions
}

/// The copies of a range: as many as most arrays have, without asking the allocator.
pub(super) type Copies = SmallVec<[Piece; 4]>;

/// Every copy of a range that lies in one region.
pub(super) fn copies(geometry: &Geometry, sector: u64, sectors: u64) -> Copies {
    match geometry {
        Geometry::Raid1(map) => (0..map.raid_disks())
            .map(|slot| Piece { slot: Slot(slot), member_sector: sector, sectors })
            .collect(),
        Geometry::Raid10(map) => {
            let chunk = u64::from(map.chunk_sectors());
            let (index, offset) = (sector / chunk, sector % chunk);
            map.copies_of(index)
                .map(|(slot, start)| Piece { slot, member_sector: start + offset, sectors })
                .collect()
        }
        _ => unreachable!("only mirrors have copies"),
    }
}

/// The copies in the order in which they are believed where mirrors may differ. Reads, resync and
/// recovery take the first that can be read, block by block, also after a restart, so that what was
/// read once stays. A member that is being filled comes last: after a restart it may have less.
pub(super) fn believed(view: &ArrayView, sector: u64, sectors: u64) -> Copies {
    let mut copies = copies(&view.geometry, sector, sectors);
    copies.sort_by_key(|piece| match view.member(piece.slot) {
        None => (true, true),
        Some(member) => (member.filled_sectors != u64::MAX, member.write_mostly),
    });
    copies
}

impl ArrayLane {
    pub(super) async fn write_mirrored(
        self: &Rc<Self>,
        sector: u64,
        from: Rc<dyn Source>,
        fua: bool,
    ) -> Result<(), RequestError> {
        let sectors = (from.len() / super::array_lane::SECTOR_BYTES) as u64;
        // The view is kept over waits for the geometry alone, which never changes.
        let view = self.view();
        let geometry = &*view.geometry;
        let regions = regions(geometry, sector, sectors);
        if self.with_view(|view| self.writes_behind(view)) {
            let writes = regions
                .into_iter()
                .map(|region| self.write_region_behind(region, from.clone(), fua));
            return join_all(writes).await.into_iter().collect();
        }
        if let [region] = &regions[..] {
            return self.write_region(geometry, region, &from, fua).await;
        }
        let writes = regions.iter().map(|region| self.write_region(geometry, region, &from, fua));
        join_all(writes).await.into_iter().collect()
    }

    async fn write_region(
        &self,
        geometry: &Geometry,
        region: &Region,
        from: &Rc<dyn Source>,
        fua: bool,
    ) -> Result<(), RequestError> {
        let claims = &self.array.claims;
        let is_alone = self.array.rules.keep(Rule::MirroredWritesAreClaimed);
        let mode = if is_alone { Mode::Exclusive } else { Mode::Shared };
        let _claim = claims.acquire(region.index, region.columns.clone(), mode).await;
        let range = region.sector..region.sector + region.sectors();
        let _permit = self.permit(range.clone()).await?;
        let copies = copies(geometry, region.sector, region.sectors());
        self.write_copies(&copies, from, region.first, range, fua).await
    }

    /// Writes a range of the array, which begins at `first` in `from`, to every copy that is there.
    async fn write_copies(
        &self,
        copies: &[Piece],
        from: &Rc<dyn Source>,
        first: u64,
        range: Range<u64>,
        fua: bool,
    ) -> Result<(), RequestError> {
        let mut writes = MemberWrites::new(self, fua);
        for piece in copies {
            let from = source_part(from, first, piece.sectors);
            writes.start(0, piece.slot, piece.member_sector, from);
        }
        let _counted = self.count_writes(copies);
        let ended = writes.finish(|| Target::Copies(range), |_, buffer| self.recycle(Some(buffer)));
        ended.await.map(|_| ()).map_err(|failed| failed.error)
    }
}

/// Copies that are being written, counted until it drops.
struct CountedWrites<'a>(&'a ArrayLane, SmallVec<[Slot; 4]>);

impl ArrayLane {
    fn count_writes(&self, copies: &[Piece]) -> CountedWrites<'_> {
        let view = self.view();
        let mut slots = SmallVec::new();
        for piece in copies {
            let Some(member) = view.member(piece.slot) else { continue };
            let gauge = self.gauges().of(choice::place_of(piece.slot));
            gauge.write_begins(device(member.id));
            gauge.move_head(piece.member_sector, piece.sectors);
            slots.push(piece.slot);
        }
        CountedWrites(self, slots)
    }
}

impl Drop for CountedWrites<'_> {
    fn drop(&mut self) {
        for slot in &self.1 {
            self.0.gauges().of(choice::place_of(*slot)).write_ends();
        }
    }
}
