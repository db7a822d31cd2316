//! Linear and RAID0, which hold every block once; and what discard and write-zeroes do on each level.

use std::rc::Rc;

use smallvec::SmallVec;

use crate::geometry::{Geometry, Piece, Slot};
use crate::memory::{Source, Zeroes};
use crate::request::RequestError;

use super::array_lane::{ArrayLane, SECTOR_BYTES, source_part};
use super::claims::Mode;
use super::ended::Target;
use super::member_writes::MemberWrites;
use super::mirror;
use super::rules::Rule;
use super::view::WriteMode;

/// Most sectors that a discard looks at between two turns of its lane: members in memory answer at
/// once, and a client may discard all of an array.
const DISCARD_SECTORS: u64 = 1 << 17;

/// What a range is promised to read as, once it is given up.
#[derive(Clone, Copy)]
enum ReadsThen {
    Zeroes,
    Anything,
}

impl ArrayLane {
    pub(super) async fn write_striped(
        &self,
        sector: u64,
        from: Rc<dyn Source>,
        fua: bool,
    ) -> Result<(), RequestError> {
        let sectors = (from.len() / SECTOR_BYTES) as u64;
        let _permit = self.permit(0..0).await?;
        let view = self.view();
        let pieces = pieces(&view.geometry, sector, sectors);
        // Into listed sectors it would be written for nobody: they are not read.
        let is_there =
            |piece: &Piece| view.reader(piece.slot, piece.member_sector, piece.sectors).is_some();
        if !pieces.iter().all(is_there) {
            return Err(RequestError::Lost);
        }
        let mut writes = MemberWrites::new(self, fua);
        let mut first = 0;
        for piece in pieces {
            let from = source_part(&from, first, piece.sectors);
            writes.start(0, piece.slot, piece.member_sector, from);
            first += piece.sectors;
        }
        writes.finish_alone(|_, buffer| self.recycle(Some(buffer))).await
    }

    /// Gives up a range where the level can; elsewhere it is accepted and nothing happens.
    pub(super) async fn discard(&self, sector: u64, sectors: u64) -> Result<(), RequestError> {
        self.check_range(sector, sectors)?;
        let view = self.view();
        if view.mode == WriteMode::ReadOnly {
            return Err(RequestError::ReadOnly);
        }
        if sectors == 0 || !view.discard {
            return Ok(());
        }
        if let Geometry::Parity(map) = &*view.geometry {
            let row = map.row_sectors();
            let rows = sector.div_ceil(row)..(sector + sectors) / row;
            let sectors = rows.end.saturating_sub(rows.start) * row;
            return self.give_up(rows.start * row, sectors, ReadsThen::Anything).await;
        }
        self.give_up(sector, sectors, ReadsThen::Anything).await
    }

    /// Makes a range read as zeroes, and gives up what it took where the level and all members can.
    pub(super) async fn punch(
        self: &Rc<Self>,
        sector: u64,
        sectors: u64,
    ) -> Result<(), RequestError> {
        self.check_range(sector, sectors)?;
        let view = self.view();
        let unit = match &*view.geometry {
            _ if !view.discard => return self.write_zeroes(sector, sectors, false).await,
            Geometry::Parity(map) => map.row_sectors(),
            _ => 1,
        };
        let end = sector + sectors;
        let whole = sector.next_multiple_of(unit)..end / unit * unit;
        if whole.is_empty() {
            return self.write_zeroes(sector, sectors, false).await;
        }
        self.write_zeroes(sector, whole.start - sector, false).await?;
        self.give_up(whole.start, whole.end - whole.start, ReadsThen::Zeroes).await?;
        self.write_zeroes(whole.end, end - whole.end, false).await
    }

    /// Zeroes whole rows, or any range where there is no parity. What it took is given up where every member
    /// reads zeroes then.
    async fn give_up(
        &self,
        sector: u64,
        sectors: u64,
        then: ReadsThen,
    ) -> Result<(), RequestError> {
        let view = self.view();
        let end = sector + sectors;
        if let Geometry::Parity(map) = &*view.geometry {
            for row in sector / map.row_sectors()..end / map.row_sectors() {
                self.zero_row(row, true).await?;
                self.lane.pause().await;
            }
            return Ok(());
        }
        let mut at = sector;
        while at < end {
            let length = DISCARD_SECTORS.min(end - at);
            match &*view.geometry {
                Geometry::Raid1(_) | Geometry::Raid10(_) => {
                    self.discard_mirrored(&view.geometry, at, length).await?;
                }
                _ => self.discard_striped(at, length, then).await?,
            }
            at += length;
            self.lane.pause().await;
        }
        Ok(())
    }

    async fn discard_striped(
        &self,
        sector: u64,
        sectors: u64,
        then: ReadsThen,
    ) -> Result<(), RequestError> {
        let _permit = self.permit(0..0).await?;
        let view = self.view();
        let pieces = pieces(&view.geometry, sector, sectors);
        let is_there = |piece: &Piece| match then {
            // Listed sectors are not read, whatever is written there.
            ReadsThen::Zeroes => {
                view.reader(piece.slot, piece.member_sector, piece.sectors).is_some()
            }
            ReadsThen::Anything => view.member(piece.slot).is_some(),
        };
        if !pieces.iter().all(is_there) {
            return Err(RequestError::Lost);
        }
        let mut writes = MemberWrites::new(self, false);
        for piece in pieces {
            let range = piece.member_sectors();
            writes.start_zeroes(piece.slot, range, true);
        }
        writes.finish_alone(|_, buffer| self.recycle(Some(buffer))).await
    }

    /// All copies or none: mirrors of a half-discarded range would differ.
    async fn discard_mirrored(
        &self,
        geometry: &Geometry,
        sector: u64,
        sectors: u64,
    ) -> Result<(), RequestError> {
        for region in mirror::regions(geometry, sector, sectors) {
            let claims = &self.array.claims;
            let _claim =
                claims.acquire(region.index, region.columns.clone(), Mode::Exclusive).await;
            let range = region.sector..region.sector + region.sectors();
            let _permit = self.permit(range.clone()).await?;
            let copies = mirror::copies(geometry, region.sector, region.sectors());
            let writes = MemberWrites::new(self, false);
            self.zero_pieces(writes, &copies, Target::Copies(range), true).await?;
        }
        Ok(())
    }

    /// Makes a range read as zeroes.
    pub(super) async fn write_zeroes(
        self: &Rc<Self>,
        sector: u64,
        sectors: u64,
        fua: bool,
    ) -> Result<(), RequestError> {
        self.check_range(sector, sectors)?;
        let view = self.view();
        let mut at = sector;
        let end = sector + sectors;
        while at < end {
            if let Geometry::Parity(map) = &*view.geometry
                && at.is_multiple_of(map.row_sectors())
                && end - at >= map.row_sectors()
            {
                self.zero_row(at / map.row_sectors(), false).await?;
                at += map.row_sectors();
                self.lane.pause().await;
                continue;
            }
            let length = (end - at).min(self.zeroes_until_row(&view.geometry, at));
            let zeroes: Rc<dyn Source> = Rc::new(Zeroes::new(length as usize * SECTOR_BYTES));
            self.write(at, zeroes, fua).await?;
            at += length;
            self.lane.pause().await;
        }
        if fua { self.flush().await } else { Ok(()) }
    }

    /// Sectors to write as plain zeroes from `at` on: up to the next row, or a bounded piece.
    fn zeroes_until_row(&self, geometry: &Geometry, at: u64) -> u64 {
        let most = (Zeroes::BYTES_MAX / SECTOR_BYTES) as u64;
        match geometry {
            Geometry::Parity(map) => most.min(map.row_sectors() - at % map.row_sectors()),
            _ => most,
        }
    }

    /// Zeroes a whole row on every member: zeroes have zero parity, so the row stays consistent.
    async fn zero_row(&self, row: u64, discard: bool) -> Result<(), RequestError> {
        let view = self.view();
        let Geometry::Parity(map) = &*view.geometry else { unreachable!("rows are parity rows") };
        let chunk = map.chunk_sectors();
        let _claim = self.array.claims.acquire(row, 0..chunk, Mode::Exclusive).await;
        let start = map.row(row).member_sector();
        let range = start..start + u64::from(chunk);
        let _permit = self.permit(range.clone()).await?;
        if self.array.rules.keep(Rule::WritesLeaveNoOldStripe) {
            self.array.cache.forget(row, self.units_of(map, &(0..chunk)));
        }
        let slots = (0..map.raid_disks()).map(Slot);
        let pieces: Vec<_> = slots
            .map(|slot| Piece { slot, member_sector: start, sectors: u64::from(chunk) })
            .collect();
        let all = (0..usize::from(map.data_disks())).map(|place| (place, 0..chunk));
        let target = Target::Row { row, columns: 0..chunk, written: all.collect() };
        let _ = self.lets_rows_be_written().await;
        let writes = MemberWrites::of_row(self, false);
        self.zero_pieces(writes, &pieces, target, discard).await
    }

    /// Zeroes pieces that belong together on every member that has one.
    async fn zero_pieces(
        &self,
        mut writes: MemberWrites<'_>,
        pieces: &[Piece],
        target: Target,
        discard: bool,
    ) -> Result<(), RequestError> {
        for piece in pieces {
            let range = piece.member_sectors();
            writes.start_zeroes(piece.slot, range, discard);
        }
        let ended = writes.finish(|| target, |_, buffer| self.recycle(Some(buffer)));
        ended.await.map(|_| ()).map_err(|failed| failed.error)
    }
}

/// The parts of a range of the array on the members that hold them, in order.
fn pieces(geometry: &Geometry, sector: u64, sectors: u64) -> SmallVec<[Piece; 4]> {
    let mut pieces = SmallVec::new();
    let mut first = 0;
    while first < sectors {
        let piece = geometry.locate(sector + first);
        let length = piece.sectors.min(sectors - first);
        pieces.push(Piece { sectors: length, ..piece });
        first += length;
    }
    pieces
}
