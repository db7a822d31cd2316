//! Which sectors of the array no member holds and nothing can compute: today, or without some members.

use std::ops::Range;
use std::sync::Arc;

use crate::backend::MemberId;
use crate::geometry::{Geometry, ParityGeometry, Piece, Slot};
use crate::ranges::Ranges;

use super::super::borders::Borders;
use super::super::mirror::{believed, copies};
use super::super::view::{ArrayView, MemberView};
use super::progress::Readable;
use super::{Controller, Member, WriteMode};

/// Most pieces of members that are looked at, each within one chunk. Where there are more, no member is given up by choice.
const PIECES_MAX: usize = 1 << 16;

/// Sectors that were found among pieces of members.
struct Found {
    sectors: Ranges,
    /// At least so many were not looked at.
    unseen: u64,
}

impl Found {
    /// Looks at so many pieces, and tells whether there are more.
    fn among<P>(
        mut pieces: impl Iterator<Item = P>,
        most: usize,
        find: impl FnMut(P) -> Vec<Range<u64>>,
        length: impl Fn(&P) -> u64,
    ) -> Self {
        let sectors = pieces.by_ref().take(most).flat_map(find).collect();
        Self { sectors, unseen: pieces.next().as_ref().map_or(0, length) }
    }

    /// How many sectors count as lost. Those that were not looked at may be.
    fn count(&self) -> u64 {
        self.sectors.sectors() + self.unseen
    }
}

/// What the array loses with members that it has now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    Nothing,
    /// At least so many sectors of the array, which are held by no other member.
    Sectors(u64),
    /// Nothing on record, but so many writes that were answered are behind on every member that is left.
    Behind(u32),
    /// Nothing that was acknowledged, but so many sectors of a mirror in doubt would be read from another
    /// copy than before.
    Copy(u64),
    /// More members are missing then than the level bears.
    Array,
}

/// What a parity in doubt is worth where a second one is left to compare it with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doubt {
    /// A block, where the two say the same, or give it without what put the row in doubt. Whether they say the same
    /// shows when it is read.
    IsCompared,
    /// Nothing: where they differ the block is lost, and no member is given up by choice on the chance.
    Loses,
}

impl Controller {
    /// Sectors of the array that are lost to bad blocks: too many members lack them. What whole members
    /// lack that are missing is not among them, for there is another word for that.
    pub(super) fn lost_to_bad_blocks(&self) -> Ranges {
        if self.mode == WriteMode::Broken {
            return Ranges::default();
        }
        self.listed_and_lost(&self.array.views.current())
    }

    /// The same by what members are now, whether or not it is published.
    pub(super) fn lost_now(&self) -> Ranges {
        self.listed_and_lost(&self.view_now(&self.array.views.current()))
    }

    fn listed_and_lost(&self, view: &ArrayView) -> Ranges {
        self.lost_in(view, &listed(view), Doubt::IsCompared).sectors
    }

    /// What is lost with these members: the one question before a member that still works is given up.
    pub(super) fn loss_of(&self, members: &[MemberId]) -> Loss {
        if !self.bears_loss_of(members) {
            return Loss::Array;
        }
        let slots = self.members.iter().filter(|member| members.contains(&member.id));
        let slots: Vec<Slot> = slots.filter_map(|member| member.slot()).collect();
        match (self.loss_without(&slots), self.given_by_replacements(members)) {
            (Loss::Nothing, sectors @ 1..) => Loss::Sectors(sectors),
            (loss, _) => loss,
        }
    }

    /// Sectors that are lost now, and are there again when these members take slots over.
    fn given_by_replacements(&self, members: &[MemberId]) -> u64 {
        let before = self.view_now(&self.array.views.current());
        let takes = |(_, member): &&(Slot, MemberView)| members.contains(&member.id);
        let mut taking = before.replacements.iter().filter(takes).peekable();
        if taking.peek().is_none() {
            return 0;
        }
        let mut after = before.clone();
        taking.for_each(|(slot, member)| {
            after.slots[usize::from(slot.0)] = Some(member.clone());
        });
        let mut given = self.listed_and_lost(&before);
        let lost_then = self.lost_in(&after, &listed(&before), Doubt::IsCompared);
        lost_then.sectors.iter().for_each(|range| given.remove(&range));
        given.sectors()
    }

    /// Whether members that still work are not needed for any block.
    pub(super) fn loses_nothing_without(&self, members: &[MemberId]) -> bool {
        self.loss_of(members) == Loss::Nothing
    }

    /// What is lost without the members in these slots, which their replacements take over.
    fn loss_without(&self, slots: &[Slot]) -> Loss {
        let mut before = self.view_now(&self.array.views.current());
        let mut after = before.clone();
        for slot in slots {
            after.slots[usize::from(slot.0)] = before.replacement(*slot).cloned();
        }
        // What was copied from them and is not durable is taken back when they go.
        for view in after.slots.iter_mut().flatten() {
            let member = self.members.iter().find(|member| member.id == view.id);
            let durable = member.and_then(Member::falls_back_to).map_or(u64::MAX, Readable::sector);
            view.filled_sectors = view.filled_sectors.min(durable);
        }
        // No list says yet what members lack of the writes that are being judged. Some rows will be in doubt with these
        // members and without them.
        let doubt = self.compare_doubt(&before, &after);
        put_in_doubt(&mut before, &doubt.in_both);
        put_in_doubt(&mut after, &doubt.in_both);
        // Parity was accepted for what is missing now.
        after.unaccepted = after.doubted.clone();
        after.accepted_for_all = Default::default();
        let mut suspects = listed(&before);
        if matches!(*self.geometry, Geometry::Parity(_)) {
            suspects.extend(before.doubted.iter().map(|range| (Slot(0), range)));
        }
        let mut lost = self.lost_in(&after, &suspects, Doubt::Loses);
        // What reads give now by comparing parities is lost with them too.
        let lost_before = self.lost_in(&before, &suspects, Doubt::IsCompared);
        lost_before.sectors.iter().for_each(|range| lost.sectors.remove(&range));
        // First: one that is behind no more is being judged.
        let behind = self.behind_in(&after);
        let elsewhere = read_elsewhere(&before, &after);
        match (lost.count() + doubt.added.sectors(), behind, elsewhere.count()) {
            (0, 0, 0) => Loss::Nothing,
            (0, 0, sectors) => Loss::Copy(sectors),
            (0, writes, _) => Loss::Behind(writes),
            (sectors, ..) => Loss::Sectors(sectors),
        }
    }

    /// Sectors without those of a mirror that a member of `slot` gives which is being filled, and no copy that is
    /// believed before it. One that is to take the slot over comes last.
    pub(super) fn but_what_it_gives_first(
        &self,
        id: MemberId,
        slot: Slot,
        mut sectors: Ranges,
    ) -> Ranges {
        if matches!(*self.geometry, Geometry::Parity(_)) {
            return sectors;
        }
        let view = self.view_now(&self.array.views.current());
        let is_its = |member: Option<&MemberView>| member.is_some_and(|member| member.id == id);
        let gives_first = |part: &Range<u64>| match read_from(&view, part) {
            Some(first) => first == slot && is_its(view.member(slot)),
            None => is_its(view.replacement(slot)) && replacement_gives(&view, slot, part),
        };
        let own: Vec<_> = parts_of(&sectors, &[&view]).filter(gives_first).collect();
        own.iter().for_each(|part| sectors.remove(part));
        sectors
    }

    /// Writes that were answered and that no member of a view may have got yet. Before the controller's next
    /// turn there come no more: until then each lane has adopted what is decided by that.
    fn behind_in(&self, view: &ArrayView) -> u32 {
        let is_ahead =
            |member: &MemberView| !member.write_mostly && member.filled_sectors == u64::MAX;
        match view.present().any(|(_, member)| is_ahead(member)) {
            true => 0,
            false => self.array.behind.hold(),
        }
    }

    /// Sectors of the array that are lost where these sectors of members lie.
    fn lost_in(&self, view: &ArrayView, suspects: &[(Slot, Range<u64>)], doubt: Doubt) -> Found {
        let chunk = view.geometry.chunk_sectors().unwrap_or(u64::MAX);
        let pieces = suspects.iter().flat_map(|(slot, sectors)| {
            in_chunks(sectors.clone(), chunk).map(|piece| (*slot, piece))
        });
        let lost = |(slot, piece): (Slot, Range<u64>)| match &*view.geometry {
            Geometry::Parity(map) => self.lost_in_row(view, map, &piece, doubt),
            Geometry::Raid1(_) | Geometry::Raid10(_) => lost_copies(view, slot, &piece),
            Geometry::Linear(_) | Geometry::Raid0(_) => {
                of_array(&view.geometry, slot, &piece).into_iter().collect()
            }
        };
        Found::among(pieces, PIECES_MAX, lost, |(_, piece)| piece.end - piece.start)
    }

    /// `piece`: sectors of all members, within one row.
    fn lost_in_row(
        &self,
        view: &ArrayView,
        map: &ParityGeometry,
        piece: &Range<u64>,
        doubt: Doubt,
    ) -> Vec<Range<u64>> {
        let mut borders = Borders::of(piece.clone());
        borders.add_ranges(&view.doubted, 0);
        borders.add_ranges(&view.unaccepted, 0);
        borders.add_ranges(&view.accepted_for_all, 0);
        borders.add_ranges(&self.unresolved, 0);
        view.present().for_each(|(_, member)| borders.add_member(member, 0));
        let lost = |part: Range<u64>| {
            let slots = (0..view.geometry.raid_disks()).map(Slot);
            let lacking: Vec<Slot> = slots.filter(|slot| lacks(view, *slot, &part)).collect();
            let parities = usize::from(map.parity_disks());
            // Parity in doubt makes up for nothing, unless a second one says the same.
            let compares = lacking.len() < parities && !self.unresolved.overlaps(&part);
            let is_given = doubt == Doubt::IsCompared
                && (compares || is_given_around_outliers(view, &part, &lacking, parities));
            let in_doubt = view.in_doubt(&part, lacking.len() <= 1) && !is_given;
            let is_lost = lacking.len() > parities || in_doubt;
            let of_array =
                lacking.into_iter().filter_map(|slot| of_array(&view.geometry, slot, &part));
            of_array.filter(|_| is_lost).collect::<Vec<_>>()
        };
        borders.cut().flat_map(lost).collect()
    }
}

/// Has rows of a view be in doubt that writes will have put there.
fn put_in_doubt(view: &mut ArrayView, rows: &Ranges) {
    for doubt in [&mut view.doubted, &mut view.unaccepted] {
        let doubt = Arc::make_mut(doubt);
        rows.iter().for_each(|range| doubt.insert(range));
    }
}

/// Whether blocks of a row in doubt are computed without those that are known to have put it there.
fn is_given_around_outliers(
    view: &ArrayView,
    part: &Range<u64>,
    lacking: &[Slot],
    parities: usize,
) -> bool {
    let outliers = view.outliers.of(part, &view.doubted);
    outliers.is_some_and(|outliers| {
        let others = outliers.iter().filter(|slot| !lacking.contains(slot)).count();
        lacking.len() + others <= parities
    })
}

/// What members and their replacements list as bad.
fn listed(view: &ArrayView) -> Vec<(Slot, Range<u64>)> {
    let replacements = view.replacements.iter().map(|(slot, member)| (*slot, member));
    let members = view.present().chain(replacements);
    members.flat_map(|(slot, member)| member.bad.iter().map(move |range| (slot, range))).collect()
}

/// The parts of a piece of a mirror's member of which no copy can be had.
fn lost_copies(view: &ArrayView, slot: Slot, piece: &Range<u64>) -> Vec<Range<u64>> {
    let geometry = &*view.geometry;
    let Some(range) = of_array(geometry, slot, piece) else { return Vec::new() };
    let copies = copies(geometry, range.start, range.end - range.start);
    let mut borders = Borders::of(range.clone());
    for copy in &copies {
        let shift = range.start.wrapping_sub(copy.member_sector);
        view.member(copy.slot).into_iter().for_each(|member| borders.add_member(member, shift));
    }
    let is_lost = |part: &Range<u64>| {
        copies.iter().all(|copy| {
            let first = copy.member_sector + (part.start - range.start);
            lacks(view, copy.slot, &(first..first + (part.end - part.start)))
        })
    };
    borders.cut().filter(is_lost).collect()
}

/// Sectors of a mirror that are in doubt and that `after` reads from another slot than `before`. What a
/// user has read there could turn older.
fn read_elsewhere(before: &ArrayView, after: &ArrayView) -> Found {
    let geometry = &*before.geometry;
    if !matches!(geometry, Geometry::Raid1(_) | Geometry::Raid10(_)) {
        return Found { sectors: Ranges::default(), unseen: 0 };
    }
    let changes = |part: &Range<u64>| {
        let now = read_from(after, part);
        now.is_some() && now != read_from(before, part)
    };
    let views = [before, after];
    let changed =
        |piece| parts_of_piece(&views, piece).into_iter().filter(changes).collect::<Vec<_>>();
    let pieces = in_pieces(&before.doubted, geometry);
    Found::among(pieces, PIECES_MAX, changed, |piece| piece.end - piece.start)
}

/// Sectors of a mirror, cut where its copies change their places. Those of RAID1 never do, whatever the range is.
fn in_pieces(sectors: &Ranges, geometry: &Geometry) -> impl Iterator<Item = Range<u64>> {
    let chunk = geometry.chunk_sectors().unwrap_or(u64::MAX);
    sectors.iter().flat_map(move |range| in_chunks(range, chunk))
}

/// The parts of the first pieces of a mirror's sectors in which everything is the same that these views say of their
/// copies.
fn parts_of(sectors: &Ranges, views: &[&ArrayView]) -> impl Iterator<Item = Range<u64>> {
    let pieces = in_pieces(sectors, &views[0].geometry).take(PIECES_MAX);
    pieces.flat_map(move |piece| parts_of_piece(views, piece))
}

fn parts_of_piece(views: &[&ArrayView], piece: Range<u64>) -> Vec<Range<u64>> {
    let mut borders = Borders::of(piece.clone());
    for copy in copies(&views[0].geometry, piece.start, piece.end - piece.start) {
        let shift = piece.start.wrapping_sub(copy.member_sector);
        let members = views.iter().flat_map(|view| view.writers(copy.slot));
        members.for_each(|member| borders.add_member(member, shift));
    }
    borders.cut().collect()
}

/// The slot from which these sectors of a mirror in doubt are read, which are all alike.
fn read_from(view: &ArrayView, part: &Range<u64>) -> Option<Slot> {
    let copies = believed(view, part.start, part.end - part.start);
    let gives = |copy: &Piece| !lacks(view, copy.slot, &copy.member_sectors());
    copies.into_iter().find(gives).map(|copy| copy.slot)
}

/// Whether the replacement in a slot has its copy of these sectors of a mirror, which are all alike.
fn replacement_gives(view: &ArrayView, slot: Slot, part: &Range<u64>) -> bool {
    let copies = copies(&view.geometry, part.start, part.end - part.start);
    let copy = copies.iter().find(|copy| copy.slot == slot);
    let sectors = copy.map(|copy| copy.member_sectors());
    sectors.is_some_and(|sectors| gives(view.replacement(slot), &sectors))
}

/// Whether the member in a slot cannot give these sectors, which are all alike.
fn lacks(view: &ArrayView, slot: Slot, sectors: &Range<u64>) -> bool {
    !gives(view.member(slot), sectors)
}

fn gives(member: Option<&MemberView>, sectors: &Range<u64>) -> bool {
    let length = sectors.end - sectors.start;
    member.is_some_and(|member| member.can_wait_for(sectors.start, length))
}

/// The data of the array in sectors of a member that lie within one chunk.
fn of_array(geometry: &Geometry, slot: Slot, sectors: &Range<u64>) -> Option<Range<u64>> {
    let first = geometry.inverse(slot, sectors.start)?;
    Some(first..first + (sectors.end - sectors.start))
}

fn in_chunks(sectors: Range<u64>, chunk: u64) -> impl Iterator<Item = Range<u64>> {
    let mut at = sectors.start;
    std::iter::from_fn(move || {
        let first = at;
        at = (first - first % chunk).saturating_add(chunk).min(sectors.end);
        (first < sectors.end).then_some(first..at)
    })
}

#[cfg(test)]
mod tests;
