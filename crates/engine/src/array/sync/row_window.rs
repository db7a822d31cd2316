//! One window of a parity array: some columns of one row.

use std::ops::Range;
use std::rc::Rc;

use smallvec::SmallVec;

use crate::geometry::{ParityGeometry, Position, Row, Slot};
use crate::memory::Buffer;

use super::super::array_lane::ArrayLane;
use super::super::claims::{Claim, Columns, Mode};
use super::super::mend::Mended;
use super::super::plan::{Place, Places};
use super::super::reconstruct::ClaimedRow;
use super::super::rules::Rule;
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
    let (row, columns) = place(map, window);
    let mode = if *kind == SyncKind::Check { Mode::Shared } else { Mode::Exclusive };
    let claim = acquire(port, row.index(), columns.clone(), mode).await;
    let at = ClaimedRow { map, row: &row, claim: &claim };
    if mode == Mode::Exclusive {
        port.array.cache.forget(row.index(), port.units_of(map, &columns));
    }
    match kind {
        SyncKind::Recover(slots) => {
            recover(port, &at, &columns, slots).await.map(|()| Found::default())
        }
        kind => compare(port, &at, &columns, kind).await,
    }
}

/// Claims what a window lies in.
pub(super) async fn acquire(
    port: &ArrayLane,
    index: u64,
    columns: Columns,
    mode: Mode,
) -> Claim<'_> {
    // Another index is nobody's.
    let index = if port.array.rules.keep(Rule::WindowsAreClaimed) { index } else { !index };
    port.array.claims.acquire(index, columns, mode).await
}

/// The row and the columns of a window.
pub(super) fn place(map: &ParityGeometry, window: &Range<u64>) -> (Row, Columns) {
    let chunk = u64::from(map.chunk_sectors());
    let start = (window.start % chunk) as u32;
    (map.row(window.start / chunk), start..start + (window.end - window.start) as u32)
}

/// Computes what the members in `slots` should hold, all from one reading, and writes it there. What
/// one of them has already is not written again.
async fn recover(
    port: &ArrayLane,
    at: &ClaimedRow<'_>,
    columns: &Columns,
    slots: &[Slot],
) -> Result<(), WindowError> {
    let range = at.sectors(columns);
    let view = port.view();
    let lacks = |slot: &&Slot| {
        view.member(**slot).is_some_and(|member| !view.lacking(member, &range).is_empty())
    };
    let lacking: Places =
        slots.iter().filter(lacks).map(|slot| place_of(at.map, at.row, *slot)).collect();
    if lacking.is_empty() {
        return Ok(());
    }
    let mut unread = Unread::of_sync();
    let rebuilt = port.read_for_rebuild(at, columns, &lacking, &mut unread).await;
    let mut blocks = match (rebuilt, slots) {
        (Ok(read), _) => read.blocks,
        (Err(_), [slot]) => {
            let filled = port.with_view(|view| view.member(*slot).map(|member| member.id));
            let why = why_not(port, at.row, columns, &unread);
            return why.list_unfilled(port, at.claim, filled, &range).await;
        }
        (Err(_), _) => return Err(why_not(port, at.row, columns, &unread)),
    };
    let view = port.view();
    let mut writes = WindowWrites::that_fill();
    let mut filling = SmallVec::<[Rc<Buffer>; 2]>::new();
    for place in lacking.iter() {
        let block = Rc::new(blocks.take(place).expect("just rebuilt"));
        writes.fill(port, &view, at.slot(place), (&range, &block));
        filling.push(block);
    }
    port.recycle_all(blocks);
    let done = writes.finish(port).await;
    filling.into_iter().for_each(|block| port.recycle(Rc::into_inner(block)));
    done
}

/// Computes what belongs at `place`.
pub(super) async fn rebuild(
    port: &ArrayLane,
    at: &ClaimedRow<'_>,
    columns: &Columns,
    place: Place,
    unread: &mut Unread,
) -> Result<Buffer, WindowError> {
    let wanted = Places::of(place);
    let rebuilt = port.read_for_rebuild(at, columns, &wanted, unread).await;
    let mut read = rebuilt.map_err(|_| why_not(port, at.row, columns, unread))?;
    let block = read.blocks.take(place).expect("just rebuilt");
    port.recycle_all(read.blocks);
    let mut mended = Mended::default();
    let has_picks = port.with_view(|view| view.has_picks(&at.sectors(columns)));
    let from = (place, &block, &read.sources);
    if has_picks && !port.block_becomes_pick(at, columns, from, unread, &mut mended).await {
        port.recycle(Some(block));
        return Err(WindowError::Doubted);
    }
    port.count_mended(mended);
    Ok(block)
}

fn why_not(port: &ArrayLane, row: &Row, columns: &Columns, unread: &Unread) -> WindowError {
    if unread.any_late() || port.with_view(ArrayView::any_late) {
        return WindowError::Late;
    }
    let range = row.member_sectors(columns);
    let listed = |view: &ArrayView| view.lists_as_bad(&range);
    match () {
        () if port.with_view(|view| view.doubted.overlaps(&range)) => WindowError::Doubted,
        () if unread.any_unreadable() || port.with_view(listed) => WindowError::Unreadable,
        () => WindowError::Failed,
    }
}

pub(super) fn place_of(map: &ParityGeometry, row: &Row, slot: Slot) -> Place {
    match row.position(slot) {
        Position::Data(index) => usize::from(index),
        Position::P => usize::from(map.data_disks()),
        Position::Q => usize::from(map.data_disks()) + 1,
    }
}
