//! One window of RAID1 or RAID10: a range that lies in one claim region.

use std::ops::Range;

use crate::backend::{IoErrorKind, ReadInto};
use crate::geometry::{Geometry, Piece, Slot};
use crate::memory::Buffer;

use super::super::array_lane::{ArrayLane, MemberWrite, byte_range};
use super::super::claims::Mode;
use super::super::mirror::{copies, region_sectors};
use super::super::round::whole_buffer;
use super::row_window::finish;
use super::{SyncKind, WindowError};

/// Does one window; gives the sectors in which copies differed.
pub(super) async fn run(
    port: &ArrayLane,
    geometry: &Geometry,
    kind: &SyncKind,
    window: &Range<u64>,
) -> Result<u64, WindowError> {
    let sectors = window.end - window.start;
    let SyncKind::Recover(slots) = kind else {
        let mend = *kind != SyncKind::Check;
        return compare(port, geometry, window.start, sectors, mend).await;
    };
    for slot in slots {
        // Recovery counts member sectors; what the array does not use there needs nothing.
        if let Some(sector) = geometry.inverse(*slot, window.start) {
            recover(port, geometry, sector, sectors, *slot, window.start).await?;
        }
    }
    Ok(0)
}

/// Claims the array range in its region.
async fn claim<'a>(
    port: &'a ArrayLane,
    geometry: &Geometry,
    sector: u64,
    sectors: u64,
    mode: Mode,
) -> super::super::claims::Claim<'a> {
    let size = region_sectors(geometry);
    let start = (sector % size) as u32;
    port.array.claims.acquire(sector / size, start..start + sectors as u32, mode).await
}

/// Copies a range to one member from the first other copy that can be read.
async fn recover(
    port: &ArrayLane,
    geometry: &Geometry,
    sector: u64,
    sectors: u64,
    slot: Slot,
    member_sector: u64,
) -> Result<(), WindowError> {
    let _claim = claim(port, geometry, sector, sectors, Mode::Exclusive).await;
    let others = copies(geometry, sector, sectors);
    let others = others.into_iter().filter(|piece| piece.slot != slot);
    let (_, block) = first_readable(port, others).await.ok_or(WindowError::Failed)?;
    let view = port.view();
    let Some(member) = view.member(slot) else { return Ok(()) };
    let io = port.write_member(member, member_sector, whole_buffer(block), false);
    finish(port, vec![MemberWrite { member: member.id, io }]).await
}

/// Compares all copies with the first; with `mend`, makes them the same as it.
async fn compare(
    port: &ArrayLane,
    geometry: &Geometry,
    sector: u64,
    sectors: u64,
    mend: bool,
) -> Result<u64, WindowError> {
    let mode = if mend { Mode::Exclusive } else { Mode::Shared };
    let _claim = claim(port, geometry, sector, sectors, mode).await;
    let pieces = copies(geometry, sector, sectors);
    let (source, model) =
        first_readable(port, pieces.iter().copied()).await.ok_or(WindowError::Failed)?;
    let mut writes = Vec::new();
    let mut differs = false;
    for piece in pieces.into_iter().filter(|piece| piece.slot != source) {
        let same = match read(port, &piece).await {
            Some(copy) => {
                let same = *copy == *model;
                port.recycle(Some(copy));
                same
            }
            None => continue,
        };
        differs |= !same;
        let view = port.view();
        if !same
            && mend
            && let Some(member) = view.member(piece.slot)
        {
            let mut copy = port.lane.backend().allocate(model.len());
            copy.copy_from_slice(&model);
            let io = port.write_member(member, piece.member_sector, whole_buffer(copy), false);
            writes.push(MemberWrite { member: member.id, io });
        }
    }
    port.recycle(Some(model));
    finish(port, writes).await?;
    Ok(if differs { sectors } else { 0 })
}

async fn first_readable(
    port: &ArrayLane,
    pieces: impl Iterator<Item = Piece>,
) -> Option<(Slot, Buffer)> {
    for piece in pieces {
        if let Some(block) = read(port, &piece).await {
            return Some((piece.slot, block));
        }
    }
    None
}

/// Reads a copy; `None` where it cannot be read now.
async fn read(port: &ArrayLane, piece: &Piece) -> Option<Buffer> {
    let view = port.view();
    let member = view.reader(piece.slot, piece.member_sector, piece.sectors)?;
    let bytes = byte_range(0, piece.sectors);
    let buffer = port.lane.backend().allocate(bytes.len());
    let into = ReadInto::Buffer(buffer, bytes);
    let done = port.read_member(member, piece.member_sector, into).await;
    match done.result {
        Ok(()) => done.buffer,
        Err(error) => {
            if error.kind != IoErrorKind::Medium {
                port.array.mailbox.member_failed(member.id, error);
            }
            port.recycle(done.buffer);
            None
        }
    }
}
