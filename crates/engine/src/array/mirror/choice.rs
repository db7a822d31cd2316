//! Which copy of a range answers a read.
//!
//! Where mirrors may differ it is always the same one. Elsewhere `read_policy` decides between the
//! copies that can be read whole; write-mostly members come last, whatever the policy.

use smallvec::SmallVec;

use crate::backend::MemberId;
use crate::balance::{Gauge, LaneGauges, Started, Work};
use crate::geometry::{Geometry, Piece, Slot};
use crate::time::Time;

use super::super::array_lane::{ArrayLane, SECTOR_BYTES};
use super::super::rules::Rule;
use super::super::settings::ReadPolicy;
use super::super::view::{ArrayView, MemberView};
use super::{believed, copies};

/// What the heads of a disk cost that must move, in bytes that pass meanwhile: half a turn, and as
/// much more as a seek over the whole disk takes.
const TURN_BYTES: u64 = 1 << 20;
const STROKE_BYTES: u64 = 4 << 20;

/// Equal members take turns by the address, so many sectors each.
const TURN_SECTORS: u64 = 128;

/// md leaves a stream on a member without heads for so many sectors, then looks for an idle one.
const STREAK_SECTORS: u64 = 2048;

/// A copy that can be read, and who has it.
type Reader<'v> = (Piece, &'v MemberView);

/// The copies of a range that can be read.
type Readers<'v> = SmallVec<[Reader<'v>; 4]>;

/// Chooses by what one lane knows. Pure but for the gauges that it reads.
struct Chooser<'a, Clock> {
    view: &'a ArrayView,
    gauges: &'a LaneGauges,
    policy: ReadPolicy,
    /// Whether all reads take the same copy where mirrors may differ.
    one_copy: bool,
    clock: Clock,
}

impl<'a, Clock: Fn() -> Time> Chooser<'a, Clock> {
    /// The copy to read of a range that lies together on each of its members.
    #[inline]
    fn choose(&self, sector: u64, sectors: u64) -> Option<Reader<'a>> {
        if !lies_together(self.view, sector, sectors) {
            return None;
        }
        let readers = self.readers(sector, sectors);
        match &readers[..] {
            [] => None,
            [only] => Some(*only),
            several => Some(several[self.place(several, sector)]),
        }
    }

    /// Which of several readers.
    #[inline]
    fn place(&self, readers: &[Reader<'_>], sector: u64) -> usize {
        match self.policy {
            ReadPolicy::First => first(readers),
            ReadPolicy::Nearest => nearest(self.view, self.gauges, readers),
            ReadPolicy::Md => md(self.gauges, readers),
            ReadPolicy::Expected => {
                let turn = (sector / TURN_SECTORS % readers.len() as u64) as usize;
                self.first_to_end(readers, turn)
            }
        }
    }

    /// The reader that would answer first; `turn` is the first to be looked at, so that ties spread
    /// by the address and streams stay where they are for a while.
    #[inline]
    fn first_to_end(&self, readers: &[Reader<'_>], turn: usize) -> usize {
        let in_turn = readers[turn..].iter().chain(&readers[..turn]);
        let works = in_turn.map(|(piece, member)| {
            let place = place_of(piece.slot);
            (place, self.work(piece, member))
        });
        let chosen = self.gauges.first_to_end(works, &self.clock).expect("there are readers");
        let is_chosen = |(piece, _): &Reader<'_>| place_of(piece.slot) == chosen;
        let chosen = readers.iter().position(is_chosen).expect("it is one of them");
        match readers.iter().all(|(_, member)| member.rotational) {
            true => self.nearest_of_the_soon(readers, chosen),
            false => chosen,
        }
    }

    /// Where seeks cost time, a longer queue is worth a shorter seek: it saves time for all who wait.
    fn nearest_of_the_soon(&self, readers: &[Reader<'_>], chosen: usize) -> usize {
        let end = |(piece, member): &Reader<'_>| {
            self.gauges.of(place_of(piece.slot)).outlook(self.work(piece, member)).nanos
        };
        let soon = SOON * readers.iter().map(end).fold(f64::INFINITY, f64::min);
        if end(&readers[chosen]) > soon {
            return chosen; // It is tried again.
        }
        let near = readers.iter().enumerate().filter(|(_, reader)| end(reader) <= soon);
        let near = near.min_by_key(|(_, (piece, member))| self.work(piece, member));
        near.map_or(chosen, |(place, _)| place)
    }

    /// Who may be read: without write-mostly members, if there is another; where mirrors may differ, the
    /// first that is believed.
    #[inline]
    fn readers(&self, sector: u64, sectors: u64) -> Readers<'a> {
        let view = self.view;
        let reader = |piece: Piece| {
            view.reader(piece.slot, piece.member_sector, piece.sectors)
                .map(|member| (piece, member))
        };
        if self.one_copy && !view.trusted(&(sector..sector + sectors)) {
            let has = |(piece, member): &Reader<'_>| {
                let range = piece.member_sectors();
                member.may_give_again(&range) || member.has_some_of(&range)
            };
            let mut copies = believed(view, sector, sectors).into_iter();
            let first =
                copies.find_map(|piece| Some((piece, view.member(piece.slot)?)).filter(has));
            // Each block has its own first copy. That of a late member is waited for: others may differ.
            let gives_all =
                |(piece, member): &Reader<'_>| member.can_read(piece.member_sector, piece.sectors);
            return first.filter(gives_all).into_iter().collect();
        }
        let mut readers: Readers<'a> =
            copies(&view.geometry, sector, sectors).into_iter().filter_map(reader).collect();
        if readers.iter().any(|(_, member)| member.write_mostly)
            && !readers.iter().all(|(_, member)| member.write_mostly)
        {
            readers.retain(|(_, member)| !member.write_mostly);
        }
        readers
    }

    /// What a read asks of a member.
    #[inline]
    fn work(&self, piece: &Piece, member: &MemberView) -> Work {
        work(&self.view.geometry, self.gauges.of(place_of(piece.slot)), piece, member)
    }

    /// How many sectors of a range to read from the member that is chosen for all of it: less than
    /// all, where the rest would come sooner from another one.
    fn worth_reading_there(&self, sector: u64, sectors: u64) -> u64 {
        let block = u64::from(self.view.block_sectors);
        let half = (sectors / 2).next_multiple_of(PART_SECTORS.max(block));
        if sectors < 2 * PART_SECTORS || half >= sectors || self.policy != ReadPolicy::Expected {
            return sectors;
        }
        match (&self.ends(sector, sectors)[..], &self.ends(sector, half)[..]) {
            ([whole, ..], [_, second, ..]) if *whole > WORTH * second => half,
            _ => sectors,
        }
    }

    /// When each of the readers of a range would have read it, in ns, the soonest first.
    fn ends(&self, sector: u64, sectors: u64) -> SmallVec<[f64; 4]> {
        let ends = self.readers(sector, sectors).into_iter().map(|(piece, member)| {
            let gauge = self.gauges.of(place_of(piece.slot));
            gauge.outlook(self.work(&piece, member)).nanos
        });
        let mut ends: SmallVec<[f64; 4]> = ends.collect();
        ends.sort_by(f64::total_cmp);
        ends
    }
}

impl ArrayLane {
    #[inline]
    fn chooser<'a>(&'a self, view: &'a ArrayView) -> Chooser<'a, impl Fn() -> Time> {
        let policy = self.array.settings.read_policy();
        let one_copy = self.array.rules.keep(Rule::OneCopyInDoubt);
        let clock = || self.lane.backend().now();
        Chooser { view, gauges: self.gauges(), policy, one_copy, clock }
    }

    /// The copy to read of a range that lies together on each of its members; none where no member
    /// has it whole, or only one that still gets earlier writes.
    #[inline]
    pub(in super::super) fn choose<'v>(
        &'v self,
        view: &'v ArrayView,
        sector: u64,
        sectors: u64,
    ) -> Option<Reader<'v>> {
        let chosen = self.chooser(view).choose(sector, sectors)?;
        // Where copies may differ, the view that says which one is believed must hold after a crash too.
        if !view.whole && !view.trusted(&(sector..sector + sectors)) {
            self.array.views.is_settled_up_to(view).then_some(())?;
        }
        let may_lack = chosen.1.write_mostly
            && self.array.has_writes_behind()
            && self.array.rules.keep(Rule::ReadsWaitForWritesBehind);
        (!may_lack).then_some(chosen)
    }

    /// As [`choose`](Self::choose), and none where several members together would be sooner.
    #[inline]
    pub(in super::super) fn choose_whole<'v>(
        &'v self,
        view: &'v ArrayView,
        sector: u64,
        sectors: u64,
    ) -> Option<Reader<'v>> {
        let is_split = sectors >= 2 * PART_SECTORS
            && lies_together(view, sector, sectors)
            && self.worth_reading_there(view, sector, sectors) < sectors;
        if is_split { None } else { self.choose(view, sector, sectors) }
    }

    /// How many sectors of a range to read from one member, where several could read it.
    pub(super) fn worth_reading_there(&self, view: &ArrayView, sector: u64, sectors: u64) -> u64 {
        self.chooser(view).worth_reading_there(sector, sectors)
    }

    /// This lane's gauges of the members, by slot.
    #[inline]
    pub(super) fn gauges(&self) -> &LaneGauges {
        self.array.gauges.of_lane(usize::from(self.lane.id().0))
    }

    /// Notes that a copy is read from now on.
    #[inline]
    pub(in super::super) fn begin_copy(
        &self,
        view: &ArrayView,
        piece: &Piece,
        member: &MemberView,
    ) -> Started {
        let (gauges, place) = (self.gauges(), place_of(piece.slot));
        let gauge = gauges.of(place);
        let work = work(&view.geometry, gauge, piece, member);
        let bytes = piece.sectors * SECTOR_BYTES as u64;
        let now = || self.lane.backend().now();
        let started = gauges.begin(place, device(member.id), work, bytes, now);
        gauge.move_head(piece.member_sector, piece.sectors);
        started
    }

    /// Notes how the read of a copy ended.
    #[inline]
    pub(in super::super) fn end_copy(&self, slot: Slot, started: Started, good: bool) {
        self.gauges().end(place_of(slot), started, good, || self.lane.backend().now());
    }
}

/// A disk whose end lies this much behind the soonest is worth its shorter seek.
const SOON: f64 = 1.5;

/// Shortest part of a read that is worth an I/O of its own.
const PART_SECTORS: u64 = 256;

/// So much sooner must all of it be there.
const WORTH: f64 = 1.25;

/// The number by which gauges know a device.
pub(in super::super) fn device(id: MemberId) -> u64 {
    // 0 is none.
    (u64::from(id.index) << 16 | u64::from(id.generation)) + 1
}

pub(super) fn place_of(slot: Slot) -> usize {
    usize::from(slot.0)
}

/// Whether every copy of the range is one run of sectors, read from one member as a whole.
#[inline]
fn lies_together(view: &ArrayView, sector: u64, sectors: u64) -> bool {
    match &*view.geometry {
        Geometry::Raid10(map) => {
            let chunk = u64::from(map.chunk_sectors());
            (sector & (chunk - 1)) + sectors <= chunk
        }
        _ => true,
    }
}

/// How many sectors from `sector` on the copy with most of them has before one that it lacks.
pub(super) fn longest_readable(view: &ArrayView, sector: u64, sectors: u64) -> u64 {
    let readable = copies(&view.geometry, sector, sectors).into_iter().map(|piece| {
        let member = view.member(piece.slot);
        member.map_or(0, |member| member.readable_from(piece.member_sector, piece.sectors))
    });
    let block = u64::from(view.block_sectors);
    readable.max().unwrap_or(0) / block * block
}

/// What a read asks of a member, whose heads must move first if it has any.
#[inline]
fn work(geometry: &Geometry, gauge: &Gauge, piece: &Piece, member: &MemberView) -> Work {
    let work = Work::of(piece.sectors * SECTOR_BYTES as u64);
    let distance = gauge.head().abs_diff(piece.member_sector);
    if !member.rotational || distance == 0 {
        return work;
    }
    let stroke = match geometry {
        Geometry::Raid10(map) => map.used_sectors(),
        geometry => geometry.array_sectors(),
    };
    let part = (distance as f64 / stroke as f64).min(1.0).sqrt();
    work.and(TURN_BYTES + (STROKE_BYTES as f64 * part) as u64)
}

/// The lowest slot.
fn first(readers: &[Reader<'_>]) -> usize {
    place_of_least(readers, |(piece, _)| piece.slot)
}

/// Nearest to where the last I/O of the member ended; of far copies the one at the lowest address,
/// for those lie on the fastest tracks.
fn nearest(view: &ArrayView, gauges: &LaneGauges, readers: &[Reader<'_>]) -> usize {
    let is_far = matches!(&*view.geometry, Geometry::Raid10(map) if map.has_far_copies());
    place_of_least(readers, |(piece, _)| match is_far {
        true => piece.member_sector,
        false => gauges.of(place_of(piece.slot)).head().abs_diff(piece.member_sector),
    })
}

/// md's rules: a stream stays where it is; then the member with the fewest I/Os pending, of those
/// without heads if there are any; and the nearest head where all have heads and none is idle.
fn md(gauges: &LaneGauges, readers: &[Reader<'_>]) -> usize {
    let gauge = |piece: &Piece| gauges.of(place_of(piece.slot));
    let goes_on = |(piece, member): &Reader<'_>| {
        let gauge = gauge(piece);
        gauge.head() == piece.member_sector
            && (member.rotational || gauge.streak() < STREAK_SECTORS)
    };
    if let Some(place) = readers.iter().position(goes_on) {
        return place;
    }
    let all_have_heads = readers.iter().all(|(_, member)| member.rotational);
    let pending = |(piece, member): &Reader<'_>| {
        let waits_for_heads = member.rotational && !all_have_heads;
        (waits_for_heads, gauge(piece).in_flight())
    };
    let fewest = place_of_least(readers, pending);
    if all_have_heads && gauge(&readers[fewest].0).in_flight() > 0 {
        return place_of_least(readers, |(piece, _)| {
            gauge(piece).head().abs_diff(piece.member_sector)
        });
    }
    fewest
}

fn place_of_least<K: Ord>(readers: &[Reader<'_>], key: impl Fn(&Reader<'_>) -> K) -> usize {
    let places = readers.iter().enumerate();
    places.min_by_key(|(_, reader)| key(reader)).map_or(0, |(place, _)| place)
}

#[cfg(test)]
mod tests;
