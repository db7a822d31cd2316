//! One window of RAID1 or RAID10: a range that lies in one claim region.

use std::ops::Range;
use std::rc::Rc;

use smallvec::SmallVec;

use crate::backend::{MemberId, ReadInto};
use crate::geometry::{Geometry, Piece, Slot};
use crate::memory::Buffer;

use super::super::array_lane::{ArrayLane, byte_range};
use super::super::claims::{Claim, Mode};
use super::super::mirror::{believed, region_sectors};
use super::super::sources::Sources;
use super::super::unread::Cause;
use super::super::view::MemberView;
use super::mirror_compare::compare;
use super::row_window;
use super::window::{Found, SyncKind, WindowError};
use super::writes::WindowWrites;

/// Does one window; gives the sectors in which copies differed.
pub(super) async fn run(
    port: &ArrayLane,
    geometry: &Geometry,
    kind: &SyncKind,
    window: &Range<u64>,
) -> Result<Found, WindowError> {
    let SyncKind::Recover(slots) = kind else {
        return compare(port, geometry, window, kind).await;
    };
    for (sector, slots) in by_content(geometry, slots, window) {
        recover(port, geometry, sector, &slots, window).await?;
    }
    Ok(Found::default())
}

/// Slots that hold the same range of the array.
type Alike = SmallVec<[Slot; 2]>;

/// What members in `slots` hold in a range of theirs, by the array's sector. Recovery counts member
/// sectors: one range of all members may be one of the array, or as many as there are members; what the
/// array does not use there needs nothing.
fn by_content(
    geometry: &Geometry,
    slots: &[Slot],
    window: &Range<u64>,
) -> SmallVec<[(u64, Alike); 2]> {
    let mut contents: SmallVec<[(u64, Alike); 2]> = SmallVec::new();
    for slot in slots {
        let Some(sector) = geometry.inverse(*slot, window.start) else { continue };
        match contents.iter_mut().find(|(known, _)| *known == sector) {
            Some((_, alike)) => alike.push(*slot),
            None => contents.push((sector, Alike::from_slice(&[*slot]))),
        }
    }
    contents
}

/// Those of them whose members lack that. Asked under the claim: a write before it may have failed, and has left
/// doubt where a member had all.
fn lacking(port: &ArrayLane, alike: &[Slot], window: &Range<u64>) -> Alike {
    let view = port.view();
    let lacks = |member: &MemberView| !view.lacking(member, window).is_empty();
    alike.iter().copied().filter(|slot| view.member(*slot).is_some_and(lacks)).collect()
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
    row_window::acquire(port, sector / size, start..start + sectors as u32, mode).await
}

/// Copies a range from the first copy that can be read to all members of these slots that lack it.
async fn recover(
    port: &ArrayLane,
    geometry: &Geometry,
    sector: u64,
    alike: &[Slot],
    window: &Range<u64>,
) -> Result<(), WindowError> {
    let sectors = window.end - window.start;
    let claim = claim(port, geometry, sector, sectors, Mode::Exclusive).await;
    let slots = lacking(port, alike, window);
    if slots.is_empty() {
        return Ok(());
    }
    let others = believed(&port.view(), sector, sectors);
    let others = others.into_iter().filter(|piece| !slots.contains(&piece.slot));
    let held = (&claim, &(sector..sector + sectors));
    let block = match (first_readable(port, held, others).await, &slots[..]) {
        (Ok(block), _) => Rc::new(block),
        (Err(why), [slot]) => {
            let filled = port.with_view(|view| view.member(*slot).map(|member| member.id));
            return why.list_unfilled(port, &claim, filled, window).await;
        }
        (Err(why), _) => return Err(why),
    };
    let view = port.view();
    let mut writes = WindowWrites::that_fill();
    for slot in slots {
        writes.fill(port, &view, slot, (window, &block));
    }
    let done = writes.finish(port).await;
    port.recycle(Rc::into_inner(block));
    done
}

/// What a copy turned out to be.
pub(super) enum Copied {
    /// No member may be read for it now.
    None,
    /// Its member is late.
    Late,
    /// Its sectors cannot be read.
    Unreadable(Piece, MemberId),
    /// Its bytes.
    Block(Piece, MemberId, Buffer),
}

impl Copied {
    /// Whether some of it cannot be read, and some perhaps can.
    pub(super) fn has_parts(&self, port: &ArrayLane) -> bool {
        let Self::Unreadable(piece, _) = self else { return false };
        let range = piece.member_sectors();
        port.with_view(|view| {
            view.member(piece.slot).is_some_and(|member| !member.bad.contains(&range))
        })
    }

    /// The member that gave it, and which sectors.
    pub(super) fn source(&self) -> Option<(MemberId, Range<u64>)> {
        match self {
            Self::Block(piece, member, _) => Some((*member, piece.member_sectors())),
            Self::None | Self::Late | Self::Unreadable(..) => None,
        }
    }

    pub(super) fn recycle(self, port: &ArrayLane) {
        if let Self::Block(_, _, block) = self {
            port.recycle(Some(block));
        }
    }
}

/// The copy of a range: the first that can be read. Where copies may differ each block has its own: a
/// range of which the first copy lacks a part is to be asked for block by block. What users are answered from stays
/// the same after a member is filled: a copy that comes before the one that is taken is written again, or listed.
pub(super) async fn first_readable(
    port: &ArrayLane,
    (claim, range): (&Claim<'_>, &Range<u64>),
    pieces: impl Iterator<Item = Piece>,
) -> Result<Buffer, WindowError> {
    let block = port.with_view(|view| u64::from(view.block_sectors));
    let trusted = port.with_view(|view| view.trusted(range));
    let mut why = WindowError::Failed;
    let mut unreadable = Vec::new();
    for piece in pieces {
        match read(port, &piece).await {
            Copied::Block(piece, source, block) => {
                let sources = Sources::of(source, piece.member_sectors());
                for (copy, _) in unreadable.iter().filter(|_| !trusted) {
                    let from = (&*block, &sources);
                    if port.settle_copy((claim, range), copy, from).await.is_err() {
                        port.recycle(Some(block));
                        return Err(WindowError::Doubted);
                    }
                }
                return Ok(block);
            }
            Copied::Late if trusted => why = WindowError::Late,
            // Users were answered from this copy, and others may differ.
            Copied::Late => return Err(WindowError::Late),
            Copied::None => {}
            Copied::Unreadable(piece, _) if !trusted && piece.sectors > block => {
                return Err(WindowError::Unreadable);
            }
            Copied::Unreadable(piece, member) => unreadable.push((piece, member)),
        }
    }
    if unreadable.is_empty() || matches!(why, WindowError::Late) {
        return Err(why);
    }
    // What a distrusted member has may be on one that takes its slot over.
    if port.distrusted_go().await {
        return Err(WindowError::Outdated);
    }
    port.report_lost_copies(claim, &unreadable).await;
    Err(WindowError::Unreadable)
}

pub(super) async fn read(port: &ArrayLane, piece: &Piece) -> Copied {
    let view = port.view();
    let Some(member) = view.reader(piece.slot, piece.member_sector, piece.sectors) else {
        let waits = |member: &MemberView| member.can_wait_for(piece.member_sector, piece.sectors);
        let range = piece.member_sectors();
        return match view.member(piece.slot) {
            Some(member) if waits(member) => Copied::Late,
            Some(member) if member.bad.overlaps(&range) || member.has_some_of(&range) => {
                Copied::Unreadable(*piece, member.id)
            }
            _ => Copied::None,
        };
    };
    let bytes = byte_range(0, piece.sectors);
    let buffer = port.lane.backend().allocate(bytes.len());
    let into = ReadInto::Buffer(buffer, bytes);
    let done = port.read_member_for_sync(member, piece.member_sector, into).await;
    let Err(error) = done.result else {
        let block = done.buffer.expect("a finished read returns its buffer");
        return Copied::Block(*piece, member.id, block);
    };
    port.recycle(done.buffer);
    match port.report_read(member.id, error) {
        Cause::Unreadable => Copied::Unreadable(*piece, member.id),
        Cause::Late => Copied::Late,
        Cause::Lost => Copied::None,
    }
}
