//! The path of a write on the parity levels: one round per extent.
//!
//! A round claims its columns, reads what the plan asks for, computes, and writes. Before its first
//! member write it may be planned again; after that it only goes forward: everything new is in
//! memory, what fails is done without, and nothing is read again. A second read-modify-write would
//! read new data as old and leave parity stale.

#[cfg(test)]
mod tests;

use std::rc::Rc;

use mdspace_parity::Change;

use crate::backend::WriteFrom;
use crate::geometry::{ParityGeometry, Row};
use crate::lane::join_all;
use crate::memory::{Buffer, Source};
use crate::request::RequestError;

use super::array_lane::{ArrayLane, MemberWrite, byte_range, source_part};
use super::claims::{Columns, Mode};
use super::plan::{self, Method, NewData, Place, Places, RowState, WritePlan};
use super::reconstruct::{
    Blocks, by_exponent, columns_bytes, parity_index, row_state, slot_of, within,
};

/// What one round writes: new data for some columns of one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) row: u64,
    /// The claimed columns, in whole units.
    pub(super) columns: Columns,
    pub(super) new: Vec<NewData>,
    /// Where each of `new` begins in the request, in sectors.
    pub(super) source_sectors: Vec<u64>,
}

/// Splits a write into extents: one a row, or two where its ends share no column.
pub(super) fn extents(map: &ParityGeometry, unit: u32, sector: u64, sectors: u64) -> Vec<Extent> {
    let mut extents: Vec<Extent> = Vec::new();
    let mut done = 0;
    while done < sectors {
        let at = map.split(sector + done);
        let length = u64::from(map.chunk_sectors() - at.offset_sectors).min(sectors - done) as u32;
        let columns = at.offset_sectors..at.offset_sectors + length;
        let units = columns.start / unit * unit..columns.end.next_multiple_of(unit);
        let units = units.start..units.end.min(map.chunk_sectors());
        let new = NewData { place: usize::from(at.data_index), columns, units: units.clone() };
        match extents.last_mut() {
            Some(last) if last.row == at.row && last.touches(&units) => {
                last.columns = last.columns.start.min(units.start)..last.columns.end.max(units.end);
                last.new.push(new);
                last.source_sectors.push(done);
            }
            _ => extents.push(Extent {
                row: at.row,
                columns: units,
                new: vec![new],
                source_sectors: vec![done],
            }),
        }
        done += u64::from(length);
    }
    join_touching(extents)
}

impl Extent {
    fn touches(&self, units: &Columns) -> bool {
        self.columns.start < units.end && units.start < self.columns.end
    }
}

/// Joins neighbours of one row that came to overlap while later pieces were added.
fn join_touching(extents: Vec<Extent>) -> Vec<Extent> {
    let mut joined: Vec<Extent> = Vec::new();
    for extent in extents {
        match joined.last_mut() {
            Some(last) if last.row == extent.row && last.touches(&extent.columns) => {
                let columns = &extent.columns;
                last.columns =
                    last.columns.start.min(columns.start)..last.columns.end.max(columns.end);
                last.new.extend(extent.new);
                last.source_sectors.extend(extent.source_sectors);
            }
            _ => joined.push(extent),
        }
    }
    joined
}

/// Everything a round will write, in memory.
struct NewRow {
    /// Data blocks to write, by order of [`Extent::new`]; `None` is written from the source itself.
    data: Vec<Option<Buffer>>,
    parity: Vec<(Place, Buffer)>,
}

impl ArrayLane {
    pub(super) async fn write_parity(
        &self,
        map: &ParityGeometry,
        sector: u64,
        from: Rc<dyn Source>,
        fua: bool,
    ) -> Result<(), RequestError> {
        let sectors = (from.len() / super::array_lane::SECTOR_BYTES) as u64;
        let mut extents = extents(map, self.with_view(|view| view.unit_sectors), sector, sectors);
        if extents.len() == 1 {
            return self.write_extent(map, &extents.remove(0), &from, fua).await;
        }
        let rounds = extents.iter().map(|extent| self.write_extent(map, extent, &from, fua));
        join_all(rounds).await.into_iter().collect()
    }

    /// One round: claim, permit, read, compute, write.
    async fn write_extent(
        &self,
        map: &ParityGeometry,
        extent: &Extent,
        from: &Rc<dyn Source>,
        fua: bool,
    ) -> Result<(), RequestError> {
        let row = map.row(extent.row);
        let claims = &self.array.claims;
        let _claim = claims.acquire(extent.row, extent.columns.clone(), Mode::Exclusive).await;
        let start = row.member_sector();
        let range = start + u64::from(extent.columns.start)..start + u64::from(extent.columns.end);
        let _permit = self.permit(range.clone()).await?;
        let mut unreadable = Places::default();
        let new_row = loop {
            let view = self.view();
            let state = row_state(&view, map, &row, &extent.columns, &unreadable);
            let rmw = self.array.settings.rmw_level();
            let plan = plan::write(&state, &extent.columns, &extent.new, rmw);
            let plan = plan.ok_or(RequestError::Lost)?;
            let blocks = self.read_plan(&row, &state, extent, &plan, &mut unreadable).await;
            // A view that moved meanwhile may have other members to write: plan again. Only then:
            // views may move faster than a slow member reads.
            let now = row_state(&self.view(), map, &row, &extent.columns, &unreadable);
            if let Some(blocks) = blocks
                && now.writable == state.writable
                && now.parity_trusted == state.parity_trusted
            {
                break self.compute(&row, &state, extent, &plan, blocks, from);
            }
        };
        let written = self.write_row(map, &row, extent, new_row, from, fua).await;
        self.doubt_if_failed(written, range).await
    }

    async fn read_plan(
        &self,
        row: &Row,
        state: &RowState,
        extent: &Extent,
        plan: &WritePlan,
        unreadable: &mut Places,
    ) -> Option<Blocks> {
        let mut blocks = Blocks::new(state);
        let columns = &extent.columns;
        let complete =
            self.read_spans(row, state, columns, &plan.reads, &mut blocks, unreadable).await;
        complete.then_some(blocks)
    }

    /// Brings every new byte of the round into memory.
    fn compute(
        &self,
        row: &Row,
        state: &RowState,
        extent: &Extent,
        plan: &WritePlan,
        mut blocks: Blocks,
        from: &Rc<dyn Source>,
    ) -> NewRow {
        let source = from.stable().expect("redundant levels write from stable memory");
        match plan.method {
            Method::ReadModify => self.modify(row, state, extent, blocks, source),
            Method::Reconstruct => self.rewrite_row(row, state, extent, blocks, source),
            Method::Recover => {
                self.solve(row, state, &extent.columns, 0, &mut blocks);
                self.rewrite_row(row, state, extent, blocks, source)
            }
        }
    }

    /// Old parity plus the change of each written block.
    fn modify(
        &self,
        row: &Row,
        state: &RowState,
        extent: &Extent,
        mut blocks: Blocks,
        source: &[u8],
    ) -> NewRow {
        let (mut p, mut q) = (blocks.take(state.data_count), None);
        if state.parity_count == 2 {
            q = blocks.take(state.data_count + 1);
        }
        let mut data = Vec::with_capacity(extent.new.len());
        for (new, &first) in extent.new.iter().zip(&extent.source_sectors) {
            let old = blocks.get(new.place).expect("read-modify-write read the old block");
            let old = &old[within(&extent.columns, &new.units)];
            let fresh = &source[source_bytes(new, first)];
            let block = (new.units != new.columns).then(|| {
                let mut block = self.lane.backend().allocate(old.len());
                self.copy(&mut block, old);
                self.copy(&mut block[within(&new.units, &new.columns)], fresh);
                block
            });
            let at = within(&extent.columns, &new.units);
            let change = Change {
                exponent: row.exponent(new.place as u16),
                old,
                new: block.as_deref().unwrap_or(fresh),
            };
            let p = p.as_mut().map(|p| &mut p[at.clone()]);
            let q = q.as_mut().map(|q| &mut q[at]);
            mdspace_parity::kernels().update(&[change], p, q);
            data.push(block);
        }
        for new in &extent.new {
            self.recycle(blocks.take(new.place));
        }
        let parity = [(state.data_count, p), (state.data_count + 1, q)];
        let parity = parity.into_iter().filter_map(|(place, block)| Some((place, block?)));
        NewRow { data, parity: parity.collect() }
    }

    /// Parity from all the data of the row, the new among it.
    fn rewrite_row(
        &self,
        row: &Row,
        state: &RowState,
        extent: &Extent,
        mut blocks: Blocks,
        source: &[u8],
    ) -> NewRow {
        let length = columns_bytes(&extent.columns);
        let mut whole: Vec<(Place, &[u8])> = Vec::new();
        for (new, &first) in extent.new.iter().zip(&extent.source_sectors) {
            let fresh = &source[source_bytes(new, first)];
            if new.columns == extent.columns {
                whole.push((new.place, fresh));
                continue;
            }
            if blocks.get(new.place).is_none() {
                blocks.put(new.place, self.lane.backend().allocate(length));
            }
            let block = blocks.get_mut(new.place).expect("just put");
            self.copy(&mut block[within(&extent.columns, &new.columns)], fresh);
        }
        let mut sources = by_exponent(row, state, &blocks);
        for (place, fresh) in whole {
            sources[parity_index(row, place)] = fresh;
        }
        let parity = self.new_parity(row, state, &sources, length);
        let data = extent.new.iter().map(|new| {
            (new.columns != extent.columns).then(|| {
                let block = blocks.get(new.place).expect("partly written blocks are in memory");
                let units = &block[within(&extent.columns, &new.units)];
                let mut copy = self.lane.backend().allocate(units.len());
                self.copy(&mut copy, units);
                copy
            })
        });
        let data = data.collect();
        for place in 0..state.data_count + state.parity_count {
            self.recycle(blocks.take(place));
        }
        NewRow { data, parity }
    }

    fn new_parity(
        &self,
        row: &Row,
        state: &RowState,
        sources: &[&[u8]],
        length: usize,
    ) -> Vec<(Place, Buffer)> {
        let parity = state.data_count..state.data_count + state.parity_count;
        if !parity.clone().any(|place| state.writable.has(place)) {
            return Vec::new();
        }
        let (p, q) = self.parity_of(row, sources, length);
        parity.zip([Some(p), q]).filter_map(|(place, block)| Some((place, block?))).collect()
    }

    /// Writes the new bytes to every member that is there, and answers for what failed.
    async fn write_row(
        &self,
        map: &ParityGeometry,
        row: &Row,
        extent: &Extent,
        new_row: NewRow,
        from: &Rc<dyn Source>,
        fua: bool,
    ) -> Result<(), RequestError> {
        let view = self.view();
        let data_count = usize::from(map.data_disks());
        let mut writes = Vec::with_capacity(new_row.data.len() + new_row.parity.len());
        let mut failed = Vec::new();
        let mut start = |place: Place, columns: &Columns, from: WriteFrom| {
            let Some(member) = view.member(slot_of(row, data_count, place)) else { return };
            let sector = row.member_sector() + u64::from(columns.start);
            let sectors = u64::from(columns.end - columns.start);
            if member.bad.overlaps(&(sector..sector + sectors)) {
                failed.push((member.id, listed_bad()));
                return;
            }
            let io = self.write_member(member, sector, from, fua);
            writes.push(MemberWrite { member: member.id, io });
        };
        for ((new, &first), block) in
            extent.new.iter().zip(&extent.source_sectors).zip(new_row.data)
        {
            let from = match block {
                Some(block) => whole_buffer(block),
                None => source_part(from, first, u64::from(new.units.end - new.units.start)),
            };
            start(new.place, &new.units, from);
        }
        for (place, block) in new_row.parity {
            start(place, &extent.columns, whole_buffer(block));
        }
        let mut finished = self.finish_writes(writes).await;
        finished.failed.extend(failed);
        if finished.no_space {
            return Err(RequestError::NoSpace);
        }
        match self.do_without(&view, &finished.failed).await {
            true => Ok(()),
            false => Err(RequestError::Lost),
        }
    }
}

/// The error of a write into a range that the bad-block log lists: the log cannot be changed yet, so
/// the member cannot take it.
pub(super) fn listed_bad() -> crate::backend::IoError {
    crate::backend::IoError { kind: crate::backend::IoErrorKind::Medium, errno: 0 }
}

pub(super) fn whole_buffer(block: Buffer) -> WriteFrom {
    let whole = 0..block.len();
    WriteFrom::Buffer(block, whole)
}

fn source_bytes(new: &NewData, first: u64) -> std::ops::Range<usize> {
    byte_range(first, u64::from(new.columns.end - new.columns.start))
}
