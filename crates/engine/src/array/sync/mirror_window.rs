//! One window of RAID1 or RAID10: a range that lies in one claim region.

use std::ops::Range;

use crate::backend::ReadInto;
use crate::geometry::{Geometry, Piece, Slot};
use crate::lane::join_all;
use crate::memory::Buffer;
use crate::status::Mismatch;

use super::super::array_lane::{ArrayLane, SECTOR_BYTES, byte_range};
use super::super::claims::Mode;
use super::super::command::Undecided;
use super::super::member_writes::whole_buffer;
use super::super::mirror::{believed, region_sectors};
use super::super::unread::Cause;
use super::super::view::MemberView;
use super::row_window::WindowWrites;
use super::suspect::{Suspicion, Votes};
use super::{Found, SyncKind, WindowError};

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
    kind: &SyncKind,
) -> Result<Found, WindowError> {
    let block = u64::from(port.with_view(|view| view.block_sectors));
    let (mut left, mut all, mut failed) = (vec![window.clone()], Found::default(), None);
    while let Some(range) = left.pop() {
        let sectors = range.end - range.start;
        let half = (sectors / 2).next_multiple_of(block);
        // Without write-behind every copy has what was flushed, and it is all the same who is believed.
        let is_block = half == 0 || half >= sectors || port.array.behind.limit() == 0;
        match compare(port, geometry, range.start, sectors, kind, is_block).await {
            Ok(Some(found)) => all.add(found),
            Ok(None) => {
                let middle = range.start + half;
                left.extend([middle..range.end, range.start..middle]);
            }
            Err(WindowError::Failed) => failed = Some(WindowError::Failed),
            Err(error) => return Err(error),
        }
    }
    failed.map_or(Ok(all), Err)
}

/// Compares all copies with the first; with `mend`, makes them the same as it, those that could not
/// be read as well. None where one cannot be read, and only parts of it may be to blame.
async fn compare(
    port: &ArrayLane,
    geometry: &Geometry,
    sector: u64,
    sectors: u64,
    kind: &SyncKind,
    is_block: bool,
) -> Result<Option<Found>, WindowError> {
    let mend = *kind != SyncKind::Check;
    let mode = if mend { Mode::Exclusive } else { Mode::Shared };
    let _claim = claim(port, geometry, sector, sectors, mode).await;
    let pieces = believed(&port.view(), sector, sectors);
    let mut found = join_all(pieces.iter().map(|piece| read(port, piece))).await;
    if found.iter().any(|copy| matches!(copy, Copied::Late)) {
        // Nobody answers for it here.
        found.into_iter().for_each(|copy| copy.recycle(port));
        return Err(WindowError::Late);
    }
    if !is_block && found.iter().any(|copy| matches!(copy, Copied::Unreadable(_))) {
        found.into_iter().for_each(|copy| copy.recycle(port));
        return Ok(None);
    }
    let first = found.iter().position(|copy| matches!(copy, Copied::Block(..)));
    let first = first.ok_or(WindowError::Failed)?;
    // What resync is there to make right proves nothing against anybody.
    let judges = *kind != SyncKind::Resync
        && port.with_view(|view| view.trusted(&(sector..sector + sectors)));
    let (places, votes) =
        if judges { judge(port, sector, kind, &found) } else { Default::default() };
    let left: Vec<Range<usize>> = match kind {
        SyncKind::Repair(Undecided::Leave) => {
            places.iter().filter_map(undecided_at(sector)).collect()
        }
        _ => Vec::new(),
    };
    let model = found.swap_remove(first);
    let Copied::Block(first, mut model) = model else { unreachable!("just found") };
    let outvoted = !votes.is_empty();
    for (at, right) in votes {
        model[at].copy_from_slice(&right);
    }
    let mut writes = WindowWrites::default();
    let mut differs = false;
    if mend && outvoted {
        let view = port.view();
        if let Some(member) = view.member(first.slot) {
            let copy = copy_of(port, &model);
            writes.start(port, member, first.member_sector, whole_buffer(copy));
        }
    }
    for copy in found {
        let (piece, block) = match copy {
            Copied::None | Copied::Late => continue,
            Copied::Unreadable(piece) => {
                let view = port.view();
                if mend && let Some(member) = view.member(piece.slot) {
                    port.rewrite(member, piece.member_sector, &model).await;
                }
                continue;
            }
            Copied::Block(piece, block) => (piece, block),
        };
        let is_other = *block != *model;
        differs |= is_other;
        let view = port.view();
        if mend
            && is_other
            && let Some(member) = view.member(piece.slot)
        {
            // Each copy keeps what nobody can tell to be wrong.
            let mut copy = copy_of(port, &model);
            for at in &left {
                copy[at.clone()].copy_from_slice(&block[at.clone()]);
            }
            match *copy == *block {
                true => port.recycle(Some(copy)),
                false => writes.start(port, member, piece.member_sector, whole_buffer(copy)),
            }
        }
        port.recycle(Some(block));
    }
    port.recycle(Some(model));
    writes.finish(port).await?;
    Ok(Some(Found { sectors: if differs || !places.is_empty() { sectors } else { 0 }, places }))
}

fn copy_of(port: &ArrayLane, block: &Buffer) -> Buffer {
    let mut copy = port.lane.backend().allocate(block.len());
    copy.copy_from_slice(block);
    copy
}

/// What most copies say where one differs from all others.
type Outvoted = Vec<(Range<usize>, Vec<u8>)>;

/// Where in the window a mismatch lies of which nobody can tell who lies.
fn undecided_at(sector: u64) -> impl Fn(&Mismatch) -> Option<Range<usize>> {
    move |place| {
        let length = place.member_sectors.end - place.member_sectors.start;
        place.liar.is_none().then(|| byte_range(place.array_sector - sector, length))
    }
}

/// Where copies contradict each other, and what is right where that can be told.
fn judge(
    port: &ArrayLane,
    sector: u64,
    kind: &SyncKind,
    found: &[Copied],
) -> (Vec<Mismatch>, Outvoted) {
    let copies = found.iter().filter_map(|copy| match copy {
        Copied::Block(piece, block) => Some((piece, &**block)),
        _ => None,
    });
    let copies: Vec<(&Piece, &[u8])> = copies.collect();
    let unit = port.with_view(|view| view.block_sectors) as usize * SECTOR_BYTES;
    let votes = Votes(copies.iter().map(|(_, block)| *block).collect());
    let (mut places, mut outvoted) = (Vec::new(), Vec::new());
    for Suspicion { bytes, liar } in votes.suspicions(unit) {
        let first = (bytes.start / SECTOR_BYTES) as u64;
        let (shown, _) = copies[liar.unwrap_or(0)];
        let start = shown.member_sector + first;
        places.push(Mismatch {
            array_sector: sector + first,
            member_sectors: start..start + (bytes.len() / SECTOR_BYTES) as u64,
            row: None,
            slots: copies.iter().map(|(piece, _)| piece.slot.0.into()).collect(),
            liar: liar.map(|liar| copies[liar].0.slot.0.into()),
        });
        // Others than the first copy need no word: it is what all are made to follow.
        let right = match (liar, kind) {
            (Some(0), _) => Some(1),
            (None, SyncKind::Repair(Undecided::ByMember(id))) => {
                let is_it = |piece: &Piece| {
                    port.with_view(|view| view.member(piece.slot).is_some_and(|m| m.id == *id))
                };
                copies.iter().position(|(piece, _)| is_it(piece))
            }
            _ => None,
        };
        if let Some(right) = right {
            outvoted.push((bytes.clone(), copies[right].1[bytes].to_vec()));
        }
    }
    (places, outvoted)
}

/// What a copy turned out to be.
enum Copied {
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

async fn read(port: &ArrayLane, piece: &Piece) -> Copied {
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
    let done = port.read_member(member, piece.member_sector, into).await;
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
