//! Copies against each other: one window of a check, a repair or a resync of RAID1 or RAID10.

use std::ops::Range;

use crate::backend::MemberId;
use crate::geometry::{Geometry, Piece};
use crate::lane::join_all;
use crate::memory::Buffer;
use crate::status::Mismatch;

use super::super::array_lane::{ArrayLane, Permit, SECTOR_BYTES};
use super::super::claims::{Claim, Mode};
use super::super::command::Undecided;
use super::super::member_writes::whole_buffer;
use super::super::mend::{Mended, NotRewritten};
use super::super::mirror::believed;
use super::super::sources::{Lasting, Sources};
use super::mirror_window::{Copied, claim, read};
use super::suspect::{Suspicion, Votes};
use super::window::{Found, SyncKind, WindowError};
use super::writes::{WindowWrites, make_last};

/// Compares all copies with the first; but for a check, makes them the same as it, those that could
/// not be read as well.
pub(super) async fn compare(
    port: &ArrayLane,
    geometry: &Geometry,
    window: &Range<u64>,
    kind: &SyncKind,
) -> Result<Found, WindowError> {
    let (sector, sectors) = (window.start, window.end - window.start);
    let mends = *kind != SyncKind::Check;
    let mode = if mends { Mode::Exclusive } else { Mode::Shared };
    let range = sector..sector + sectors;
    let claim = claim(port, geometry, sector, sectors, mode).await;
    let mut copies = read_all(port, sector, sectors).await?;
    let first = copies.iter().position(|copy| matches!(copy, Copied::Block(..)));
    let first = first.expect("one was read");
    // What resync is there to make right proves nothing against anybody.
    let judges = *kind != SyncKind::Resync
        && port.with_view(|view| view.trusted(&(sector..sector + sectors)));
    let verdict = if judges { judge(port, sector, kind, &copies) } else { Verdict::default() };
    let sources: Sources = copies.iter().filter_map(Copied::source).collect();
    let Copied::Block(first, _, mut model) = copies.swap_remove(first) else {
        unreachable!("just found")
    };
    // Resync makes right what the bitmap marks already; everything else that is written is to be marked.
    let is_unreadable = |copy: &Copied| matches!(copy, Copied::Unreadable(..));
    let rewrites = mends && verdict.left.is_empty() && copies.iter().any(is_unreadable);
    let is_other = |copy: &Copied| matches!(copy, Copied::Block(_, _, block) if **block != *model);
    let is_wrong = !verdict.places.is_empty() || copies.iter().any(is_other);
    let permit = match mends && (rewrites || is_wrong && *kind != SyncKind::Resync) {
        true => Some(port.permit(range).await.map_err(|_| WindowError::Failed)?),
        false => None,
    };
    let lasting = match mends && (rewrites || is_wrong) {
        true => Some(make_last(port, kind, &sources).await?),
        false => None,
    };
    let mut writes = lasting.as_ref().map(WindowWrites::that_make_right);
    if verdict.correct(&mut model)
        && let Some(writes) = &mut writes
    {
        write_copy(port, writes, &first, copy_of(port, &model));
    }
    let (mut mended, mut undone) = (Mended::default(), Ok(()));
    let mut differs = !verdict.places.is_empty();
    for copy in copies {
        match copy {
            // Where nobody can tell which copy is right none of them is to get a witness.
            Copied::Unreadable(piece, _) if rewrites => {
                let held = permit.as_ref().zip(lasting.as_ref());
                let (permit, lasting) = held.expect("asked for, for what is rewritten");
                match rewrite(port, (&claim, permit, lasting), &piece, &model).await {
                    Ok(member) => mended.add(member),
                    Err(why) => undone = Err(why),
                }
            }
            Copied::Block(piece, _, block) => {
                let is_other = *block != *model;
                differs |= is_other;
                if is_other && let Some(writes) = &mut writes {
                    let wanted = verdict.wanted(port, &model, &block);
                    match *wanted == *block {
                        true => port.recycle(Some(wanted)),
                        false => write_copy(port, writes, &piece, wanted),
                    }
                }
                port.recycle(Some(block));
            }
            Copied::Unreadable(..) | Copied::None | Copied::Late => {}
        }
    }
    port.recycle(Some(model));
    if let Some(writes) = writes {
        writes.finish(port).await?;
    }
    undone?;
    let sectors = if differs { sectors } else { 0 };
    Ok(Found { sectors, places: verdict.places, mended, ..Found::default() })
}

/// Reads every copy. Blocks that one of them cannot read are looked for in halves of the range, until they
/// stand alone: what can be read of the copy that is believed counts, and good sectors stay as they are.
async fn read_all(port: &ArrayLane, sector: u64, sectors: u64) -> Result<Vec<Copied>, WindowError> {
    let pieces = believed(&port.view(), sector, sectors);
    let copies = join_all(pieces.iter().map(|piece| read(port, piece))).await;
    let any = |is_it: fn(&Copied) -> bool| copies.iter().any(is_it);
    let has_parts = sectors > port.with_view(|view| u64::from(view.block_sectors));
    let why = match () {
        // Nobody answers for a late one here.
        () if any(|copy| matches!(copy, Copied::Late)) => WindowError::Late,
        () if has_parts && copies.iter().any(|copy| copy.has_parts(port)) => {
            WindowError::Unreadable
        }
        () if any(|copy| matches!(copy, Copied::Block(..))) => return Ok(copies),
        () if any(|copy| matches!(copy, Copied::Unreadable(..))) => WindowError::Unreadable,
        () => WindowError::Failed,
    };
    copies.into_iter().for_each(|copy| copy.recycle(port));
    Err(why)
}

async fn rewrite(
    port: &ArrayLane,
    held: (&Claim<'_>, &Permit<'_>, &Lasting),
    piece: &Piece,
    model: &Buffer,
) -> Result<Option<MemberId>, NotRewritten> {
    let view = port.view();
    let Some(member) = view.member(piece.slot) else { return Ok(None) };
    port.rewrite(held, member, piece.member_sector, model).await
}

fn write_copy<'a>(port: &'a ArrayLane, writes: &mut WindowWrites<'a>, piece: &Piece, copy: Buffer) {
    let view = port.view();
    match view.member(piece.slot) {
        Some(member) => writes.start(port, member, piece.member_sector, whole_buffer(copy)),
        None => port.recycle(Some(copy)),
    }
}

fn copy_of(port: &ArrayLane, block: &Buffer) -> Buffer {
    let mut copy = port.lane.backend().allocate(block.len());
    copy.copy_from_slice(block);
    copy
}

/// Who lies where copies contradict each other.
#[derive(Default)]
struct Verdict {
    places: Vec<Mismatch>,
    /// What is right where the first copy is not.
    outvoted: Vec<(Range<usize>, Vec<u8>)>,
    /// Where nobody can tell what is right, nor has the user.
    left: Vec<Range<usize>>,
}

impl Verdict {
    /// Makes the first copy right. False where it was.
    fn correct(&self, model: &mut Buffer) -> bool {
        for (at, right) in &self.outvoted {
            model[at.clone()].copy_from_slice(right);
        }
        !self.outvoted.is_empty()
    }

    /// What a copy is to hold: each keeps what nobody can tell to be wrong.
    fn wanted(&self, port: &ArrayLane, model: &Buffer, block: &Buffer) -> Buffer {
        let mut copy = copy_of(port, model);
        for at in &self.left {
            copy[at.clone()].copy_from_slice(&block[at.clone()]);
        }
        copy
    }
}

/// Where copies contradict each other, and what is right where that can be told.
fn judge(port: &ArrayLane, sector: u64, kind: &SyncKind, found: &[Copied]) -> Verdict {
    let copies = found.iter().filter_map(|copy| match copy {
        Copied::Block(piece, _, block) => Some((piece, &**block)),
        _ => None,
    });
    let copies: Vec<(&Piece, &[u8])> = copies.collect();
    let unit = port.with_view(|view| view.block_sectors) as usize * SECTOR_BYTES;
    let votes = Votes(copies.iter().map(|(_, block)| *block).collect());
    let mut verdict = Verdict::default();
    for Suspicion { bytes, liar } in votes.suspicions(unit) {
        let first = (bytes.start / SECTOR_BYTES) as u64;
        let (shown, _) = copies[liar.unwrap_or(0)];
        let start = shown.member_sector + first;
        verdict.places.push(Mismatch {
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
        match right {
            Some(right) => verdict.outvoted.push((bytes.clone(), copies[right].1[bytes].to_vec())),
            // A member that has no copy here decides nothing.
            None if liar.is_none() && *kind != SyncKind::Repair(Undecided::ByData) => {
                verdict.left.push(bytes);
            }
            None => {}
        }
    }
    verdict
}
