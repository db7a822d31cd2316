//! One window of a replacement: what a member holds is copied to the one that is to take its slot.

use std::ops::Range;

use crate::backend::ReadInto;
use crate::geometry::{Geometry, ParityGeometry, Slot};
use crate::memory::Buffer;
use crate::ranges::Ranges;

use super::super::array_lane::{ArrayLane, byte_range};
use super::super::claims::{Claim, Mode};
use super::super::member_writes::whole_buffer;
use super::super::mirror::believed;
use super::super::reconstruct::ClaimedRow;
use super::super::unread::{Cause, Unread};
use super::super::view::MemberView;
use super::window::{Found, WindowError};
use super::writes::WindowWrites;
use super::{mirror_window, row_window};

/// Does one window, in member sectors, for each of these slots.
pub(super) async fn run(
    port: &ArrayLane,
    geometry: &Geometry,
    slots: &[Slot],
    window: &Range<u64>,
) -> Result<Found, WindowError> {
    for slot in slots {
        match geometry {
            Geometry::Parity(map) => copy_row(port, map, *slot, window).await?,
            geometry => copy_mirrored(port, geometry, *slot, window).await?,
        }
    }
    Ok(Found::default())
}

/// What the replacement in a slot lacks of a window. What it has is not copied again: what the member gives by now may
/// be older, for it may have lost what it was not told to flush.
fn lacking(port: &ArrayLane, slot: Slot, window: &Range<u64>) -> Ranges {
    port.with_view(|view| match view.replacement(slot) {
        Some(member) => view.lacking(member, window),
        // It has gone. The write finds that out.
        None => Ranges::of(window.clone()),
    })
}

async fn copy_row(
    port: &ArrayLane,
    map: &ParityGeometry,
    slot: Slot,
    window: &Range<u64>,
) -> Result<(), WindowError> {
    let (row, columns) = row_window::place(map, window);
    let claim = row_window::acquire(port, row.index(), columns, Mode::Exclusive).await;
    let at = ClaimedRow { map, row: &row, claim: &claim };
    for part in lacking(port, slot, window).iter() {
        let block = match read(port, slot, &part).await? {
            Some(block) => Ok(block),
            None => rebuild(port, &at, slot, &part).await,
        };
        give(port, &claim, slot, &part, block).await?;
    }
    Ok(())
}

/// What the member in `slot` cannot read, as the others give it.
async fn rebuild(
    port: &ArrayLane,
    at: &ClaimedRow<'_>,
    slot: Slot,
    part: &Range<u64>,
) -> Result<Buffer, WindowError> {
    let place = row_window::place_of(at.map, at.row, slot);
    let mut unread = Unread::of_sync();
    let replaced = port.with_view(|view| view.member(slot).map(|member| member.id));
    replaced.inspect(|member| unread.insert(place, *member, Cause::Unreadable));
    let (_, columns) = row_window::place(at.map, part);
    row_window::rebuild(port, at, &columns, place, &mut unread).await
}

async fn copy_mirrored(
    port: &ArrayLane,
    geometry: &Geometry,
    slot: Slot,
    window: &Range<u64>,
) -> Result<(), WindowError> {
    // What the array does not use there needs nothing.
    let Some(sector) = geometry.inverse(slot, window.start) else { return Ok(()) };
    let sectors = window.end - window.start;
    let claim = mirror_window::claim(port, geometry, sector, sectors, Mode::Exclusive).await;
    for part in lacking(port, slot, window).iter() {
        let sectors = part.end - part.start;
        let is_block = sectors <= port.with_view(|view| view.block_sectors.into());
        let block = match read(port, slot, &part).await? {
            Some(block) => Ok(block),
            // What the member can read of it is copied from there.
            None if !is_block => Err(WindowError::Unreadable),
            // Of all copies, this member's too: what no second read gives is listed there as on its replacement.
            None => {
                let sector = sector + (part.start - window.start);
                let copies = believed(&port.view(), sector, sectors).into_iter();
                let held = (&claim, &(sector..sector + sectors));
                mirror_window::first_readable(port, held, copies).await
            }
        };
        give(port, &claim, slot, &part, block).await?;
    }
    Ok(())
}

/// Writes the block, or lists it where there is none.
async fn give(
    port: &ArrayLane,
    claim: &Claim<'_>,
    slot: Slot,
    window: &Range<u64>,
    block: Result<Buffer, WindowError>,
) -> Result<(), WindowError> {
    match block {
        Ok(block) => write(port, slot, window, block).await,
        Err(why) => {
            let filled = port.with_view(|view| view.replacement(slot).map(|member| member.id));
            why.list_unfilled(port, claim, filled, window).await
        }
    }
}

/// What the member in `slot` has there: it is what the array counts on, whether parity and other copies
/// agree or not. None where it cannot be read.
async fn read(
    port: &ArrayLane,
    slot: Slot,
    window: &Range<u64>,
) -> Result<Option<Buffer>, WindowError> {
    let view = port.view();
    // Without it there is nothing to copy; the controller knows already and ends this task.
    let member = view.member(slot).ok_or(WindowError::Failed)?;
    let sectors = window.end - window.start;
    if !member.can_read(window.start, sectors) {
        let waits = |member: &MemberView| member.can_wait_for(window.start, sectors);
        return if waits(member) { Err(WindowError::Late) } else { Ok(None) };
    }
    let bytes = byte_range(0, sectors);
    let buffer = port.lane.backend().allocate(bytes.len());
    let done =
        port.read_member_for_sync(member, window.start, ReadInto::Buffer(buffer, bytes)).await;
    let Err(error) = done.result else {
        return Ok(done.buffer);
    };
    port.recycle(done.buffer);
    match port.report_read(member.id, error) {
        Cause::Unreadable => Ok(None),
        Cause::Late => Err(WindowError::Late),
        Cause::Lost => Err(WindowError::Failed),
    }
}

async fn write(
    port: &ArrayLane,
    slot: Slot,
    window: &Range<u64>,
    block: Buffer,
) -> Result<(), WindowError> {
    let view = port.view();
    // It failed, or the slot is its own by now: this window is not done.
    let Some(member) = view.replacement(slot) else {
        port.recycle(Some(block));
        return Err(WindowError::Failed);
    };
    let mut writes = WindowWrites::that_fill();
    writes.start(port, member, window.start, whole_buffer(block));
    writes.finish(port).await
}
