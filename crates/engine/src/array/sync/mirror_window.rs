//! One window of RAID1 or RAID10: a range that lies in one claim region.

use std::ops::Range;

use crate::backend::ReadInto;
use crate::geometry::{Geometry, Piece, Slot};
use crate::memory::Buffer;

use super::super::array_lane::{ArrayLane, byte_range};
use super::super::claims::{Claim, Mode};
use super::super::member_writes::whole_buffer;
use super::super::mirror::{believed, region_sectors};
use super::super::unread::Cause;
use super::super::view::MemberView;
use super::mirror_compare::compare_all;
use super::window::{Found, SyncKind, WindowError};
use super::writes::WindowWrites;

/// Does one window; gives the sectors in which copies differed.
pub(super) async fn run(
    port: &ArrayLane,
    geometry: &Geometry,
    kind: &SyncKind,
    window: &Range<u64>,
) -> Result<Found, WindowError> {
    let sectors = window.end - window.start;
    let SyncKind::Recover(slots) = kind else {
        return compare_all(port, geometry, window, kind).await;
    };
    for slot in slots {
        // Recovery counts member sectors; what the array does not use there needs nothing.
        if let Some(sector) = geometry.inverse(*slot, window.start) {
            recover(port, geometry, sector, sectors, *slot, window.start).await?;
        }
    }
    Ok(Found::default())
}

/// Claims the array range in its region.
pub(super) async fn claim<'a>(
    port: &'a ArrayLane,
    geometry: &Geometry,
    sector: u64,
    sectors: u64,
    mode: Mode,
) -> Claim<'a> {
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
    let others = believed(&port.view(), sector, sectors);
    let others = others.into_iter().filter(|piece| piece.slot != slot);
    let trusted = port.with_view(|view| view.trusted(&(sector..sector + sectors)));
    let block = first_readable(port, others, trusted).await?;
    let view = port.view();
    let Some(member) = view.member(slot) else { return Ok(()) };
    let mut writes = WindowWrites::default();
    writes.start(port, member, member_sector, whole_buffer(block));
    writes.finish(port).await
}

/// What a copy turned out to be.
pub(super) enum Copied {
    /// No member may be read for it now.
    None,
    /// Its member is late.
    Late,
    /// Its sectors cannot be read.
    Unreadable(Piece),
    /// Its bytes.
    Block(Piece, Buffer),
}

impl Copied {
    pub(super) fn recycle(self, port: &ArrayLane) {
        if let Self::Block(_, block) = self {
            port.recycle(Some(block));
        }
    }
}

async fn first_readable(
    port: &ArrayLane,
    pieces: impl Iterator<Item = Piece>,
    trusted: bool,
) -> Result<Buffer, WindowError> {
    let mut why = WindowError::Failed;
    for piece in pieces {
        match read(port, &piece).await {
            Copied::Block(_, block) => return Ok(block),
            Copied::Late if trusted => why = WindowError::Late,
            // Users were answered from this copy, and others may differ.
            Copied::Late => return Err(WindowError::Late),
            Copied::None => {}
            Copied::Unreadable(_) => why = WindowError::Unreadable,
        }
    }
    Err(why)
}

pub(super) async fn read(port: &ArrayLane, piece: &Piece) -> Copied {
    let view = port.view();
    let Some(member) = view.reader(piece.slot, piece.member_sector, piece.sectors) else {
        let waits = |member: &MemberView| member.can_wait_for(piece.member_sector, piece.sectors);
        let range = piece.member_sector..piece.member_sector + piece.sectors;
        return match view.member(piece.slot) {
            Some(member) if waits(member) => Copied::Late,
            Some(member) if member.bad.overlaps(&range) => Copied::Unreadable(*piece),
            _ => Copied::None,
        };
    };
    let bytes = byte_range(0, piece.sectors);
    let buffer = port.lane.backend().allocate(bytes.len());
    let into = ReadInto::Buffer(buffer, bytes);
    let done = port.read_member_for_sync(member, piece.member_sector, into).await;
    let Err(error) = done.result else {
        return Copied::Block(*piece, done.buffer.expect("a finished read returns its buffer"));
    };
    port.recycle(done.buffer);
    match port.report_read(member.id, error) {
        Cause::Unreadable => Copied::Unreadable(*piece),
        Cause::Late => Copied::Late,
        Cause::Lost => Copied::None,
    }
}
