//! One window of a parity array: some columns of one row.

use std::ops::Range;

use crate::geometry::{ParityGeometry, Position, Row, Slot};

use super::super::array_lane::ArrayLane;
use super::super::claims::{Columns, Mode};
use super::super::member_writes::whole_buffer;
use super::super::plan::Place;
use super::super::unread::Unread;
use super::super::view::ArrayView;
use super::row_compare::compare;
use super::window::{Found, SyncKind, WindowError};
use super::writes::WindowWrites;

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

fn place_of(map: &ParityGeometry, row: &Row, slot: Slot) -> Place {
    match row.position(slot) {
        Position::Data(index) => usize::from(index),
        Position::P => usize::from(map.data_disks()),
        Position::Q => usize::from(map.data_disks()) + 1,
    }
}
