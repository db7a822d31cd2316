//! RAID1 and RAID10: every block on several members.
//!
//! Claims go by regions of the array: a chunk for RAID10, [`REGION_SECTORS`] for RAID1, which has none.

use std::rc::Rc;

use smallvec::SmallVec;

use crate::backend::{IoErrorKind, ReadInto};
use crate::geometry::{Geometry, Piece, Slot};
use crate::lane::join_all;
use crate::memory::{Sink, Source};
use crate::request::RequestError;

use super::array_lane::{ArrayLane, byte_range, source_part};
use super::claims::Mode;
use super::member_writes::MemberWrites;
use super::view::{ArrayView, MemberView};

/// What one RAID1 claim can cover: 1 MiB, so that most requests lie in one region.
pub(super) const REGION_SECTORS: u64 = 2048;

/// A part of a request inside one region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) index: u64,
    /// Sectors inside the region.
    pub(super) columns: std::ops::Range<u32>,
    /// Sectors from the start of the request.
    pub(super) first: u64,
    pub(super) sector: u64,
}

impl Region {
    pub(super) fn sectors(&self) -> u64 {
        u64::from(self.columns.end - self.columns.start)
    }
}

/// Sectors of a claim region.
pub(super) fn region_sectors(geometry: &Geometry) -> u64 {
    match geometry {
        Geometry::Raid10(map) => u64::from(map.chunk_sectors()),
        _ => REGION_SECTORS,
    }
}

/// Cuts a range at the borders of regions.
pub(super) fn regions(geometry: &Geometry, sector: u64, sectors: u64) -> Vec<Region> {
    let size = region_sectors(geometry);
    let mut regions = Vec::new();
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

/// The copies in the order in which they are believed where mirrors may differ: reads, resync and
/// recovery all take the first that can be read, also after a restart, so that what was read once
/// stays.
pub(super) fn believed(view: &ArrayView, sector: u64, sectors: u64) -> Copies {
    let mut copies = copies(&view.geometry, sector, sectors);
    let last = |piece: &Piece| view.member(piece.slot).is_none_or(|member| member.write_mostly);
    copies.sort_by_key(last);
    copies
}

/// The copy to read: the one fixed member where mirrors are not yet equal, else by turns of the
/// address, so that sequential streams stay on a member and random reads spread.
pub(super) fn choose(view: &ArrayView, sector: u64, sectors: u64) -> Option<(Piece, &MemberView)> {
    let size = region_sectors(&view.geometry);
    if sector % size + sectors > size {
        return None;
    }
    let reader = |piece: &Piece| view.reader(piece.slot, piece.member_sector, sectors);
    if !view.trusted(&(sector..sector + sectors)) {
        let copies = believed(view, sector, sectors);
        return copies.into_iter().find_map(|piece| Some((piece, reader(&piece)?)));
    }
    let mut best: Option<(Piece, &MemberView)> = None;
    let mut turn = 0;
    let copies = copies(&view.geometry, sector, sectors);
    let wanted = sector / size % copies.len() as u64;
    for piece in copies {
        let Some(member) = reader(&piece) else { continue };
        let better = match best {
            None => true,
            Some((_, known)) if member.write_mostly != known.write_mostly => known.write_mostly,
            Some(_) => turn <= wanted && !member.write_mostly,
        };
        if better {
            best = Some((piece, member));
        }
        turn += 1;
    }
    best
}

impl ArrayLane {
    pub(super) async fn write_mirrored(
        &self,
        sector: u64,
        from: Rc<dyn Source>,
        fua: bool,
    ) -> Result<(), RequestError> {
        let sectors = (from.len() / super::array_lane::SECTOR_BYTES) as u64;
        let geometry = self.with_view(|view| view.geometry.clone());
        let regions = regions(&geometry, sector, sectors);
        let writes = regions.iter().map(|region| self.write_region(&geometry, region, &from, fua));
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
        let _claim = claims.acquire(region.index, region.columns.clone(), Mode::Exclusive).await;
        let range = region.sector..region.sector + region.sectors();
        let _permit = self.permit(range.clone()).await?;
        let copies = copies(geometry, region.sector, region.sectors());
        let result = self.write_copies(&copies, from, region.first, fua).await;
        self.doubt_if_failed(result, range).await
    }

    /// Writes one range to every copy that is there; one that lands is enough.
    async fn write_copies(
        &self,
        copies: &[Piece],
        from: &Rc<dyn Source>,
        first: u64,
        fua: bool,
    ) -> Result<(), RequestError> {
        let mut writes = MemberWrites::new(self, fua);
        for piece in copies {
            let from = source_part(from, first, piece.sectors);
            writes.start(0, piece.slot, piece.member_sector, from);
        }
        writes.end(|_, buffer| self.recycle(Some(buffer))).await.map(drop)
    }

    /// Reads a range under claims, copy after copy until one can be read; `suspect` failed before. A
    /// copy with unreadable sectors is mended from the one that was read, when the mode allows it.
    pub(super) async fn read_copy(
        &self,
        sector: u64,
        sectors: u64,
        into: &Rc<dyn Sink>,
        out: usize,
        mode: Mode,
        suspect: Option<Slot>,
    ) -> Result<(), RequestError> {
        let geometry = self.with_view(|view| view.geometry.clone());
        for region in regions(&geometry, sector, sectors) {
            let claims = &self.array.claims;
            let _claim = claims.acquire(region.index, region.columns.clone(), mode).await;
            let at = out + byte_range(0, region.first).end;
            self.read_region(&region, into, at, mode, suspect).await?;
        }
        Ok(())
    }

    async fn read_region(
        &self,
        region: &Region,
        into: &Rc<dyn Sink>,
        out: usize,
        mode: Mode,
        suspect: Option<Slot>,
    ) -> Result<(), RequestError> {
        let mut unreadable = Vec::new();
        for piece in self.by_preference(region, suspect) {
            let view = self.view();
            let reader = view.reader(piece.slot, piece.member_sector, piece.sectors);
            let Some(member) = reader else { continue };
            let bytes = byte_range(0, piece.sectors);
            let buffer = self.lane.backend().allocate(bytes.len());
            let into_buffer = ReadInto::Buffer(buffer, bytes);
            let done = self.read_member(member, piece.member_sector, into_buffer).await;
            match done.result {
                Ok(()) => {
                    let block = done.buffer.expect("a finished read returns its buffer");
                    self.put(into, out, &block);
                    if mode == Mode::Exclusive {
                        for piece in &unreadable {
                            self.mend_copy(piece, &block).await;
                        }
                    }
                    self.recycle(Some(block));
                    return Ok(());
                }
                Err(error) if error.kind == IoErrorKind::Medium => unreadable.push(piece),
                Err(error) => self.array.mailbox.member_failed(member.id, error),
            }
            self.recycle(done.buffer);
        }
        Err(RequestError::Lost)
    }

    /// The copies in the order in which to try them: where mirrors may differ always the same first
    /// one; elsewhere the one that failed comes first, to be tried again under the claim.
    fn by_preference(&self, region: &Region, suspect: Option<Slot>) -> Copies {
        let view = self.view();
        let mut copies = believed(&view, region.sector, region.sectors());
        if view.trusted(&(region.sector..region.sector + region.sectors())) {
            copies.sort_by_key(|piece| Some(piece.slot) != suspect);
        }
        copies
    }

    async fn mend_copy(&self, piece: &Piece, block: &[u8]) {
        let view = self.view();
        if let Some(member) = view.member(piece.slot) {
            self.rewrite(member, piece.member_sector, block).await;
        }
    }
}

#[cfg(test)]
mod tests;
