//! One window of RAID1 or RAID10: a range that lies in one claim region.

use std::ops::Range;

use crate::backend::ReadInto;
use crate::geometry::{Geometry, Piece, Slot};
use crate::lane::join_all;
use crate::memory::Buffer;

use super::super::array_lane::{ArrayLane, byte_range};
use super::super::claims::Mode;
use super::super::member_writes::whole_buffer;
use super::super::mirror::{believed, region_sectors};
use super::super::unread::Cause;
use super::super::view::MemberView;
use super::row_window::WindowWrites;
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
        return compare_all(port, geometry, window, *kind != SyncKind::Check).await;
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

/// Compares all copies of a window. With write-behind, where one cannot be read it is looked for in
/// halves: what can be read of the copy that is believed counts, not what a late one has there.
async fn compare_all(
    port: &ArrayLane,
    geometry: &Geometry,
    window: &Range<u64>,
    mend: bool,
) -> Result<u64, WindowError> {
    let block = u64::from(port.with_view(|view| view.block_sectors));
    let (mut left, mut differ, mut failed) = (vec![window.clone()], 0, None);
    while let Some(range) = left.pop() {
        let sectors = range.end - range.start;
        let half = (sectors / 2).next_multiple_of(block);
        // Without write-behind every copy has what was flushed, and it is all the same who is believed.
        let is_block = half == 0 || half >= sectors || port.array.behind.limit() == 0;
        match compare(port, geometry, range.start, sectors, mend, is_block).await {
            Ok(Some(sectors)) => differ += sectors,
            Ok(None) => {
                let middle = range.start + half;
                left.extend([middle..range.end, range.start..middle]);
            }
            Err(WindowError::Failed) => failed = Some(WindowError::Failed),
            Err(error) => return Err(error),
        }
    }
    failed.map_or(Ok(differ), Err)
}

/// Compares all copies with the first; with `mend`, makes them the same as it, those that could not
/// be read as well. None where one cannot be read, and only parts of it may be to blame.
async fn compare(
    port: &ArrayLane,
    geometry: &Geometry,
    sector: u64,
    sectors: u64,
    mend: bool,
    is_block: bool,
) -> Result<Option<u64>, WindowError> {
    let mode = if mend { Mode::Exclusive } else { Mode::Shared };
    let _claim = claim(port, geometry, sector, sectors, mode).await;
    let pieces = believed(&port.view(), sector, sectors);
    let mut found = join_all(pieces.iter().map(|piece| read(port, piece))).await;
    if found.iter().any(|copy| matches!(copy, Found::Late)) {
        // Nobody answers for it here.
        found.into_iter().for_each(|copy| copy.recycle(port));
        return Err(WindowError::Late);
    }
    if !is_block && found.iter().any(|copy| matches!(copy, Found::Unreadable(_))) {
        found.into_iter().for_each(|copy| copy.recycle(port));
        return Ok(None);
    }
    let model = found.iter().position(|copy| matches!(copy, Found::Block(..)));
    let model = found.swap_remove(model.ok_or(WindowError::Failed)?);
    let Found::Block(_, model) = model else { unreachable!("just found") };
    let mut writes = WindowWrites::default();
    let mut differs = false;
    for copy in found {
        let place = match copy {
            Found::None | Found::Late => continue,
            Found::Unreadable(piece) => {
                let view = port.view();
                if mend && let Some(member) = view.member(piece.slot) {
                    port.rewrite(member, piece.member_sector, &model).await;
                }
                continue;
            }
            Found::Block(piece, block) => {
                let same = *block == *model;
                port.recycle(Some(block));
                if same {
                    continue;
                }
                differs = true;
                piece
            }
        };
        let view = port.view();
        if mend && let Some(member) = view.member(place.slot) {
            let mut copy = port.lane.backend().allocate(model.len());
            copy.copy_from_slice(&model);
            writes.start(port, member, place.member_sector, whole_buffer(copy));
        }
    }
    port.recycle(Some(model));
    writes.finish(port).await?;
    Ok(Some(if differs { sectors } else { 0 }))
}

/// What a copy turned out to be.
enum Found {
    /// No member may be read for it now.
    None,
    /// Its member is late.
    Late,
    /// Its sectors cannot be read.
    Unreadable(Piece),
    /// Its bytes.
    Block(Piece, Buffer),
}

impl Found {
    fn recycle(self, port: &ArrayLane) {
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
            Found::Block(_, block) => return Ok(block),
            Found::Late if trusted => why = WindowError::Late,
            // Users were answered from this copy, and others may differ.
            Found::Late => return Err(WindowError::Late),
            Found::None => {}
            Found::Unreadable(_) => why = WindowError::Unreadable,
        }
    }
    Err(why)
}

async fn read(port: &ArrayLane, piece: &Piece) -> Found {
    let view = port.view();
    let Some(member) = view.reader(piece.slot, piece.member_sector, piece.sectors) else {
        let waits = |member: &MemberView| member.can_wait_for(piece.member_sector, piece.sectors);
        let range = piece.member_sector..piece.member_sector + piece.sectors;
        return match view.member(piece.slot) {
            Some(member) if waits(member) => Found::Late,
            Some(member) if member.bad.overlaps(&range) => Found::Unreadable(*piece),
            _ => Found::None,
        };
    };
    let bytes = byte_range(0, piece.sectors);
    let buffer = port.lane.backend().allocate(bytes.len());
    let into = ReadInto::Buffer(buffer, bytes);
    let done = port.read_member(member, piece.member_sector, into).await;
    let Err(error) = done.result else {
        return Found::Block(*piece, done.buffer.expect("a finished read returns its buffer"));
    };
    port.recycle(done.buffer);
    match port.report_read(member.id, error) {
        Cause::Unreadable => Found::Unreadable(*piece),
        Cause::Late => Found::Late,
        Cause::Lost => Found::None,
    }
}
