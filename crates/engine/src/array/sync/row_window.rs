//! One window of a parity array: some columns of one row.

use std::ops::Range;

use crate::backend::{MemberId, WriteFrom};
use crate::geometry::{ParityGeometry, Position, Row, Slot};
use crate::memory::Buffer;
use crate::status::Mismatch;

use super::super::array_lane::{ArrayLane, MemberWrite, SECTOR_BYTES};
use super::super::blocks::Blocks;
use super::super::claims::{Columns, Mode};
use super::super::command::Undecided;
use super::super::member_writes::whole_buffer;
use super::super::plan::{Place, RowState, Span};
use super::super::reconstruct::{by_exponent, columns_bytes, row_state, slot_of};
use super::super::unread::Unread;
use super::super::view::{ArrayView, MemberView};
use super::suspect::{Suspicion, TwoParities, Votes};
use super::{Found, SyncKind, WindowError};

/// Does one window; gives the sectors of parity that were wrong.
pub(super) async fn run(
    port: &ArrayLane,
    map: &ParityGeometry,
    kind: &SyncKind,
    window: &Range<u64>,
) -> Result<Found, WindowError> {
    let chunk = u64::from(map.chunk_sectors());
    let row = map.row(window.start / chunk);
    let start = (window.start % chunk) as u32;
    let columns = start..start + (window.end - window.start) as u32;
    let mode = if *kind == SyncKind::Check { Mode::Shared } else { Mode::Exclusive };
    let _claim = port.array.claims.acquire(row.index(), columns.clone(), mode).await;
    if mode == Mode::Exclusive {
        port.array.cache.forget(row.index(), port.units_of(map, &columns));
    }
    match kind {
        SyncKind::Recover(slots) => {
            recover(port, map, &row, &columns, slots).await.map(|()| Found::default())
        }
        kind => compare(port, map, &row, &columns, kind).await,
    }
}

/// Computes what the members in `slots` should hold, and writes it there.
async fn recover(
    port: &ArrayLane,
    map: &ParityGeometry,
    row: &Row,
    columns: &Columns,
    slots: &[Slot],
) -> Result<(), WindowError> {
    let mut unread = Unread::of_sync();
    let mut writes = WindowWrites::default();
    for slot in slots {
        let place = place_of(map, row, *slot);
        let rebuilt = port.read_for_rebuild(map, row, columns, place, &mut unread).await;
        let mut blocks = rebuilt.map_err(|_| why_not(port, row, columns, &unread))?;
        let block = blocks.take(place).expect("just rebuilt");
        port.recycle_all(blocks);
        let view = port.view();
        let Some(member) = view.member(*slot) else { continue };
        let sector = row.member_sector() + u64::from(columns.start);
        writes.start(port, member, sector, whole_buffer(block));
    }
    writes.finish(port).await
}

fn why_not(port: &ArrayLane, row: &Row, columns: &Columns, unread: &Unread) -> WindowError {
    if unread.any_late() || port.with_view(ArrayView::any_late) {
        return WindowError::Late;
    }
    let start = row.member_sector();
    let range = start + u64::from(columns.start)..start + u64::from(columns.end);
    let listed = |view: &ArrayView| view.present().any(|(_, member)| member.bad.overlaps(&range));
    match () {
        () if port.with_view(|view| view.doubted.overlaps(&range)) => WindowError::Doubted,
        () if unread.any_unreadable() || port.with_view(listed) => WindowError::Unreadable,
        () => WindowError::Failed,
    }
}

/// Compares parity with data; with `mend`, writes parity that is wrong.
async fn compare(
    port: &ArrayLane,
    map: &ParityGeometry,
    row: &Row,
    columns: &Columns,
    kind: &SyncKind,
) -> Result<Found, WindowError> {
    let mend = *kind != SyncKind::Check;
    let mut unread = Unread::of_sync();
    let mut blocks = read_whole(port, map, row, columns, &mut unread).await?;
    let state = row_state(&port.view(), map, row, columns, &unread);
    let (mut p, mut q) = {
        let length = columns_bytes(columns);
        port.parity_of(row, &by_exponent(row, &state, &blocks, &(0..length)), length)
    };
    let mut writes = WindowWrites::default();
    let start = row.member_sector() + u64::from(columns.start);
    let range = start..start + u64::from(columns.end - columns.start);
    let listed = |member: &MemberView| member.bad.overlaps(&range);
    let member_of = |place| slot_of(row, state.data_count, place);
    let is_bad = |place| {
        let lists = |view: &ArrayView| view.member(member_of(place)).is_some_and(listed);
        unread.is_unreadable(place) || port.with_view(lists)
    };
    let mut wrong = vec![false; (columns.end - columns.start).div_ceil(8) as usize];
    let view = port.view();
    // What resync is there to make right proves nothing against anybody.
    let judges = *kind != SyncKind::Resync && state.parity_trusted && state.is_whole();
    let leaves = *kind == SyncKind::Repair(Undecided::Leave);
    let mut places = Vec::new();
    if judges {
        for suspicion in suspicions(port, row, &state, &blocks, [Some(&p), q.as_ref()]) {
            wrong[suspicion.bytes.start / 4096..suspicion.bytes.end.div_ceil(4096)].fill(true);
            places.push(mismatch(map, row, columns, &state, &suspicion));
            let at = suspicion.bytes;
            let known = |nth: usize| blocks.get(state.data_count + nth).expect("the row is whole");
            let liar = match suspicion.liar {
                None if !leaves => continue,
                Some(parity) if parity >= state.data_count => continue,
                liar => liar.filter(|_| mend),
            };
            // The parity that members have stands: it is the data that is mended, or nothing.
            let wrong_p = p[at.clone()].to_vec();
            p[at.clone()].copy_from_slice(&known(0)[at.clone()]);
            if let Some(q) = &mut q {
                q[at.clone()].copy_from_slice(&known(1)[at.clone()]);
            }
            if let Some(liar) = liar
                && let Some(member) = view.member(member_of(liar))
            {
                let mut right = port.lane.backend().allocate(at.len());
                let old = &blocks.get(liar).expect("the row is whole")[at.clone()];
                let known = &known(0)[at.clone()];
                mdspace_parity::kernels().xor(&[old, &wrong_p, known], &mut right);
                let sector = start + (at.start / SECTOR_BYTES) as u64;
                writes.start(port, member, sector, whole_buffer(right));
            }
        }
    }
    for (place, fresh) in [(state.data_count, Some(p)), (state.data_count + 1, q)] {
        // Without Q there is no place for it either.
        let Some(fresh) = fresh else { continue };
        let known = blocks.take(place);
        let sector = row.member_sector() + u64::from(columns.start);
        let member = view.member(slot_of(row, state.data_count, place)).filter(|_| mend);
        // What could not be read is written again; it is not known to be wrong.
        if known.is_none() && is_bad(place) {
            if let Some(member) = member {
                port.rewrite(member, sector, &fresh).await;
            }
            port.recycle(Some(fresh));
            continue;
        }
        let mut differs = false;
        let old = known.iter().flat_map(|known| known.chunks(4096));
        let pages = fresh.chunks(4096).zip(old).map(|(new, old)| new != old);
        for (page, page_differs) in pages.enumerate() {
            wrong[page] |= page_differs;
            differs |= page_differs;
        }
        // Without some of the row nobody can tell.
        let may_write = judges || !leaves || !state.parity_trusted;
        if differs
            && may_write
            && let Some(member) = member
        {
            writes.start(port, member, sector, whole_buffer(fresh));
        } else {
            port.recycle(Some(fresh));
        }
        port.recycle(known);
    }
    if !judges && *kind != SyncKind::Resync && wrong.contains(&true) {
        let whole = Suspicion { bytes: 0..columns_bytes(columns), liar: None };
        places.push(mismatch(map, row, columns, &state, &whole));
    }
    for place in 0..state.data_count {
        let block = blocks.take(place);
        // Computed from parity: that of a row which was in sync.
        if mend
            && is_bad(place)
            && state.parity_trusted
            && let Some(member) = view.member(slot_of(row, state.data_count, place))
            && let Some(block) = &block
        {
            port.rewrite(member, row.member_sector() + u64::from(columns.start), block).await;
        }
        port.recycle(block);
    }
    writes.finish(port).await?;
    // md counts in its 4 KiB stripes.
    Ok(Found { sectors: wrong.iter().filter(|page| **page).count() as u64 * 8, places })
}

/// Where parity and data of a whole row contradict each other, and who is to blame, by place.
fn suspicions(
    port: &ArrayLane,
    row: &Row,
    state: &RowState,
    blocks: &Blocks,
    [p, q]: [Option<&Buffer>; 2],
) -> Vec<Suspicion> {
    let unit = port.with_view(|view| view.block_sectors) as usize * SECTOR_BYTES;
    let known = |nth: usize| &**blocks.get(state.data_count + nth).expect("the row is whole");
    match (p, q) {
        (Some(p), Some(q)) => {
            let exponents = (0..state.data_count).map(|place| row.exponent(place as u16));
            let (p, q) = ([known(0), &**p], [known(1), &**q]);
            TwoParities { p, q, exponents: exponents.collect() }.suspicions(unit)
        }
        (Some(p), None) => Votes(vec![known(0), &**p]).suspicions(unit),
        _ => Vec::new(),
    }
}

/// A suspicion as users read it.
fn mismatch(
    map: &ParityGeometry,
    row: &Row,
    columns: &Columns,
    state: &RowState,
    suspicion: &Suspicion,
) -> Mismatch {
    let sector =
        |byte: usize| row.member_sector() + u64::from(columns.start) + (byte / SECTOR_BYTES) as u64;
    let slot = |place| slot_of(row, state.data_count, place);
    let shown = suspicion.liar.filter(|&liar| liar < state.data_count).unwrap_or(0);
    let start = sector(suspicion.bytes.start);
    Mismatch {
        array_sector: map.inverse(slot(shown), start).unwrap_or(0),
        member_sectors: start..sector(suspicion.bytes.end),
        row: Some(row.index()),
        slots: (0..state.data_count + state.parity_count).map(|at| slot(at).0.into()).collect(),
        liar: suspicion.liar.map(|liar| slot(liar).0.into()),
    }
}

/// Reads every block of the row; what has no member any more is left out, and what cannot be read is
/// computed where parity can be trusted.
async fn read_whole(
    port: &ArrayLane,
    map: &ParityGeometry,
    row: &Row,
    columns: &Columns,
    unread: &mut Unread,
) -> Result<Blocks, WindowError> {
    loop {
        // What is compared must be read: nobody answers for a late member here.
        if unread.any_late() || port.with_view(ArrayView::any_late) {
            return Err(WindowError::Late);
        }
        let state = row_state(&port.view(), map, row, columns, unread);
        let places = 0..state.data_count + state.parity_count;
        let readable = places.filter(|&place| state.readable.has(place));
        let spans: Vec<_> =
            readable.map(|place| Span { place, columns: columns.clone() }).collect();
        let lost_data = (0..state.data_count).filter(|&place| !state.readable.has(place)).count();
        let parity = spans.len() - (state.data_count - lost_data);
        if lost_data > parity || (lost_data > 0 && !state.parity_usable) {
            return Err(WindowError::Failed);
        }
        let mut blocks = Blocks::default();
        if port.read_spans(row, &state, columns, &spans, &mut blocks, unread).await {
            port.solve_all(row, &state, columns, &mut blocks);
            return Ok(blocks);
        }
    }
}

fn place_of(map: &ParityGeometry, row: &Row, slot: Slot) -> Place {
    match row.position(slot) {
        Position::Data(index) => usize::from(index),
        Position::P => usize::from(map.data_disks()),
        Position::Q => usize::from(map.data_disks()) + 1,
    }
}

/// The writes of one window.
#[derive(Default)]
pub(super) struct WindowWrites<'a> {
    under_way: Vec<MemberWrite<'a>>,
    /// Those into what their members' logs list as bad.
    listed: Vec<(MemberId, Range<u64>)>,
}

impl<'a> WindowWrites<'a> {
    pub(super) fn start(
        &mut self,
        port: &'a ArrayLane,
        member: &MemberView,
        sector: u64,
        from: WriteFrom,
    ) {
        let range = sector..sector + (from.len() / SECTOR_BYTES) as u64;
        if member.bad.overlaps(&range) {
            self.listed.push((member.id, range));
        }
        let io = port.write_member(member, sector, from, false);
        self.under_way.push(MemberWrite { member: member.id, io });
    }

    /// Waits for all. A member that failed is reported; the controller ends this task.
    pub(super) async fn finish(self, port: &ArrayLane) -> Result<(), WindowError> {
        let finished = port.finish_writes(self.under_way).await;
        for (member, error) in &finished.failed {
            port.array.mailbox.member_failed(*member, *error);
        }
        if !finished.failed.is_empty() {
            return Err(WindowError::Failed);
        }
        if finished.no_space {
            return Err(WindowError::NoSpace);
        }
        for (member, range) in self.listed {
            port.take_off_list(member, range).await;
        }
        Ok(())
    }
}
