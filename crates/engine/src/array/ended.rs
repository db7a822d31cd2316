//! How a write ended on every member, as a plain value, and what it comes to in a view.
//!
//! A lane that got what it wanted from every member answers by its own view. Otherwise it sends this to
//! the controller, which judges by what each member is when it decides what to record, and again when
//! that is recorded.

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::backend::{IoError, MemberId};
use crate::geometry::{Geometry, ParityGeometry, Row, Slot};
use crate::ranges::Ranges;
use crate::request::RequestError;
use crate::signal::Signal;
use crate::sync::Mutex;

use super::borders::Borders;
use super::claims::Columns;
use super::held;
use super::mirror::{Copies, copies};
use super::plan::{Place, Places};
use super::reconstruct::slot_of;
use super::verdict::{Column, Outcome, SlotEnd};
use super::view::{ArrayView, MemberView};

/// What was written, wherever it was to go.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// A range of the array inside one region of a mirror: all copies.
    Copies(Range<u64>),
    /// Columns of a parity row: all of parity, and the parts of data blocks that users wrote.
    Row { row: u64, columns: Columns, written: SmallVec<[(Place, Columns); 2]> },
    /// What members hold already, or hold wrong: nothing is lost if it fails.
    Rewrites,
    /// What members lack that a sync task fills: it waits for space behind them.
    Fills,
}

/// How a write ended on every member that was written. Sectors count from the members' data offsets.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) target: Target,
    /// Under which the members were written: all that it has in the slots of the target.
    pub(crate) view: Arc<ArrayView>,
    /// Members that failed. The controller has been told of them.
    pub(crate) failed: SmallVec<[(MemberId, IoError); 1]>,
    /// What members did not take that otherwise answer.
    pub(crate) refused: Vec<(MemberId, Ranges)>,
    /// What found no space behind its member.
    pub(crate) no_space: Vec<(MemberId, Range<u64>)>,
    /// For [`Target::Rewrites`] and [`Target::Fills`]: what went well and is listed as bad.
    pub(crate) healed: Vec<(MemberId, Range<u64>)>,
    /// Whether it proves that the sectors can be written: a discard does not.
    pub(crate) heals: bool,
    /// Whether its client was told already that it went well.
    pub(crate) answered: bool,
}

/// Why a write failed, and in which sectors as resync counts them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) error: RequestError,
    pub(crate) columns: Ranges,
}

impl Failed {
    /// Nothing of the write counts.
    pub(crate) fn everywhere(error: RequestError) -> Self {
        Self { error, columns: Ranges::of(0..u64::MAX) }
    }
}

/// What members' lists can take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lists<'a> {
    /// Whether what took the write can be taken off them.
    pub(crate) get_shorter: bool,
    /// Members that cannot list what they lack, and are not given up for it: they alone give other blocks.
    pub(crate) full: &'a [MemberId],
}

impl Lists<'static> {
    /// Whatever is to be listed.
    pub(crate) const ANYTHING: Self = Self { get_shorter: true, full: &[] };
}

/// What a write comes to, and what is to be recorded for it.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    pub(crate) outcome: Outcome,
    /// What members' lists are to name, and what they are to name no more.
    pub(crate) list: Vec<(MemberId, Range<u64>)>,
    pub(crate) unlist: Vec<(MemberId, Range<u64>)>,
    /// What members' lists are to name that found no space for it: nothing is wrong with them.
    pub(crate) lack: Vec<(MemberId, Range<u64>)>,
    /// Columns whose write is an error, and that are to be in doubt.
    pub(crate) doubt: Ranges,
    /// Columns that parity alone holds, and whose doubt is to end before the answer.
    pub(crate) end_doubt: Ranges,
    /// Columns in which every slot that stays believed is right.
    pub(crate) made_whole: Ranges,
    /// What a resync left undone, and may be able to do now.
    pub(crate) may_resync: Ranges,
    /// Whether nothing but a lack of space stands against an answer.
    pub(crate) only_no_space: bool,
}

impl Judged {
    /// Whether something is to be recorded that an answer to some columns rests on.
    pub(crate) fn asks_to_record(&self) -> bool {
        let lists = [&self.list, &self.unlist, &self.lack];
        !self.end_doubt.is_empty() || lists.iter().any(|news| !news.is_empty())
    }
}

/// Sectors in which everything that counts is the same from the first to the last.
struct Segment {
    /// As resync counts.
    range: Range<u64>,
    /// By place: the slot, and the sectors of its member.
    slots: SmallVec<[(Slot, Range<u64>); 8]>,
    data_count: Option<usize>,
    written: Places,
}

impl Segment {
    /// Whether it was written in this place: data where users wrote, parity always.
    fn is_sent(&self, place: Place) -> bool {
        self.data_count.is_none_or(|data| place >= data) || self.written.has(place)
    }
}

impl Ended {
    /// One that every member took.
    pub(crate) fn well(target: Target, view: Arc<ArrayView>) -> Self {
        let (failed, refused, no_space, healed) = Default::default();
        let (heals, answered) = (true, false);
        Self { target, view, failed, refused, no_space, healed, heals, answered }
    }

    /// Whether every member took all of it.
    pub(crate) fn went_well(&self) -> bool {
        self.failed.is_empty()
            && self.refused.is_empty()
            && self.no_space.is_empty()
            && self.healed.is_empty()
    }

    /// Whether it fills members: who has no space is to get it later.
    pub(crate) fn fills_members(&self) -> bool {
        matches!(self.target, Target::Fills)
    }

    /// The sectors that it is about, as resync counts.
    pub(crate) fn range(&self) -> Range<u64> {
        match (&self.target, &*self.view.geometry) {
            (Target::Copies(range), _) => range.clone(),
            (Target::Row { row, columns, .. }, Geometry::Parity(map)) => {
                let start = map.row(*row).member_sector();
                start + u64::from(columns.start)..start + u64::from(columns.end)
            }
            (Target::Row { .. } | Target::Rewrites | Target::Fills, _) => 0..0,
        }
    }

    /// What it comes to in a view.
    pub(crate) fn judge(&self, now: &ArrayView, lists: Lists<'_>) -> Judged {
        let mut judged = Judged { only_no_space: true, ..Judged::default() };
        if matches!(self.target, Target::Rewrites | Target::Fills) {
            self.judge_rewrites(now, lists, &mut judged);
            return judged;
        }
        let lists = Lists { get_shorter: lists.get_shorter && self.heals, ..lists };
        for segment in self.segments(now) {
            self.judge_segment(now, &segment, lists, &mut judged);
        }
        judged
    }

    fn judge_rewrites(&self, now: &ArrayView, lists: Lists<'_>, judged: &mut Judged) {
        let device = |id| now.devices().find(|member| member.id == id);
        // Who failed for it is out by now.
        if self.no_space.iter().any(|(id, _)| device(*id).is_some()) {
            judged.outcome = Outcome::Error;
            return;
        }
        for (id, ranges) in &self.refused {
            let Some(member) = device(*id) else { continue };
            let unlisted = ranges.iter().filter(|range| !member.is_listed_for_good(range));
            judged.list.extend(unlisted.map(|range| (*id, range)));
        }
        // It lacks that, and would be believed.
        if judged.list.iter().any(|(id, _)| lists.full.contains(id)) {
            judged.list.clear();
            (judged.outcome, judged.only_no_space) = (Outcome::Error, false);
            return;
        }
        for (id, range) in &self.healed {
            let is_listed = device(*id).is_some_and(|member| member.bad.overlaps(range));
            if lists.get_shorter && is_listed {
                judged.unlist.push((*id, range.clone()));
            }
        }
        if !judged.list.is_empty() || !judged.unlist.is_empty() {
            judged.outcome = Outcome::Record;
        }
    }

    fn judge_segment(
        &self,
        now: &ArrayView,
        segment: &Segment,
        lists: Lists<'_>,
        judged: &mut Judged,
    ) {
        let heals = lists.get_shorter;
        let mut ends: SmallVec<[SlotEnd; 8]> = SmallVec::new();
        // As if there had been room.
        let mut with_room: SmallVec<[SlotEnd; 8]> = SmallVec::new();
        let mut no_space = false;
        for (place, (slot, sectors)) in segment.slots.iter().enumerate() {
            let end = self.end_of(now, *slot, sectors, segment.is_sent(place), heals);
            let lacks_room = !self.answered && self.found_no_space(now, *slot, sectors);
            // One that is being filled and stays, for it alone gives other blocks: nobody fills it here again.
            no_space |= lacks_room && matches!(end, SlotEnd::Refused | SlotEnd::Unfilled);
            ends.push(end);
            with_room.push(if lacks_room && end == SlotEnd::Refused { SlotEnd::Took } else { end });
        }
        let is_full =
            |slot: Slot| now.member(slot).is_some_and(|member| lists.full.contains(&member.id));
        let mut by_slot = segment.slots.iter().zip(&ends);
        let unnamed = by_slot.any(|((slot, sectors), end)| {
            let refused = || now.member(*slot).is_some_and(|member| self.refused(member, sectors));
            let lacks = *end == SlotEnd::Refused || *end == SlotEnd::Unfilled && refused();
            lacks && is_full(*slot)
        });
        let in_doubt = now.doubted.overlaps(&segment.range);
        let column = Column {
            ends: &ends,
            data_count: segment.data_count,
            written: segment.written,
            was_held: self.was_held(now, segment),
            in_doubt,
            parity_right: true,
        };
        let verdict = column.verdict();
        let fails = |outcome| matches!(outcome, Outcome::Error | Outcome::Broken);
        // Nothing is wrong with a member behind which there is no room: the write fails, and no list names
        // what it lacks.
        // So does one that a member refused whose list has no room for it.
        let outcome = match no_space || unnamed {
            true => verdict.outcome.max(Outcome::Error),
            false => verdict.outcome,
        };
        judged.only_no_space &=
            !unnamed && !fails(Column { ends: &with_room, ..column }.verdict().outcome);
        judged.outcome = judged.outcome.max(outcome);
        match outcome {
            Outcome::Answer | Outcome::Record => {
                if verdict.end_doubt {
                    judged.end_doubt.insert(segment.range.clone());
                } else if verdict.may_end_doubt {
                    judged.made_whole.insert(segment.range.clone());
                }
                if now.unresolved.overlaps(&segment.range) {
                    judged.may_resync.insert(segment.range.clone());
                }
            }
            Outcome::Error | Outcome::Broken => judged.doubt.insert(segment.range.clone()),
        }
        if heals {
            self.take_off_lists_of_filled(now, segment, judged);
        }
        let records = outcome == Outcome::Record;
        for ((slot, sectors), end) in segment.slots.iter().zip(&ends) {
            let Some(member) = now.member(*slot) else { continue };
            let news = || (member.id, sectors.clone());
            match end {
                SlotEnd::Refused if self.answered && self.found_no_space(now, *slot, sectors) => {
                    // A resync writes it when there is room.
                    judged.lack.extend((!is_full(*slot)).then(news));
                    judged.doubt.insert(segment.range.clone());
                }
                // The member stays: it is filled again here.
                SlotEnd::Unfilled if self.answered && self.is_without_space(member, sectors) => {
                    judged.doubt.insert(segment.range.clone());
                }
                SlotEnd::Refused if records || self.answered && !is_full(*slot) => {
                    judged.list.push(news());
                }
                SlotEnd::Healed if records => judged.unlist.push(news()),
                // It loses nothing by that, and recovery goes round it.
                SlotEnd::Unfilled
                    if self.refused(member, sectors)
                        && !member.bad.overlaps(sectors)
                        && !is_full(*slot) =>
                {
                    judged.list.push(news());
                    judged.outcome = judged.outcome.max(Outcome::Record);
                }
                _ => {}
            }
        }
    }

    /// What is known of the member that is in `slot` now, for sectors that are all alike.
    fn end_of(
        &self,
        now: &ArrayView,
        slot: Slot,
        sectors: &Range<u64>,
        is_sent: bool,
        heals: bool,
    ) -> SlotEnd {
        let Some(member) = now.member(slot) else { return SlotEnd::Out };
        if self.failed.iter().any(|(id, _)| *id == member.id) {
            return SlotEnd::Gone;
        }
        if !held::is_on_record(member, sectors) {
            return SlotEnd::Unfilled;
        }
        let listed = member.bad.overlaps(sectors);
        let was_there = || self.was_in(slot, member);
        let took = || was_there() && self.lacks_nothing(member, sectors);
        match (listed, is_sent) {
            (false, false) => SlotEnd::Kept,
            (true, false) => SlotEnd::Bad,
            (false, true) if took() => SlotEnd::Took,
            (false, true) => SlotEnd::Refused,
            (true, true) if heals && took() => SlotEnd::Healed,
            // Only memory keeps it from being read.
            (true, true) if !took() && member.bad_in_memory.overlaps(sectors) => SlotEnd::Refused,
            (true, true) => SlotEnd::Bad,
        }
    }

    /// A member that is being filled is listed where its bytes could not be had. It has them now, and
    /// recovery goes round what is listed. Of a replacement no verdict speaks, whatever is on its record: it
    /// would take over without what users wrote there.
    fn take_off_lists_of_filled(&self, now: &ArrayView, segment: &Segment, judged: &mut Judged) {
        for (place, (slot, sectors)) in segment.slots.iter().enumerate() {
            let in_slot = now.member(*slot);
            let in_slot = in_slot.filter(|member| !held::is_on_record(member, sectors));
            let filled = in_slot.into_iter().chain(now.replacement(*slot));
            for member in filled.filter(|member| member.bad.overlaps(sectors)) {
                let took = self.was_in(*slot, member) && self.lacks_nothing(member, sectors);
                if segment.is_sent(place) && took {
                    judged.unlist.push((member.id, sectors.clone()));
                    judged.outcome = judged.outcome.max(Outcome::Record);
                }
            }
        }
    }

    /// Whether the write was sent to this member.
    fn was_in(&self, slot: Slot, member: &MemberView) -> bool {
        self.view.writers(slot).any(|other| other.id == member.id)
    }

    /// Whether nothing of these sectors failed on a member.
    fn lacks_nothing(&self, member: &MemberView, sectors: &Range<u64>) -> bool {
        !self.failed.iter().any(|(id, _)| *id == member.id)
            && !self.refused(member, sectors)
            && !self.is_without_space(member, sectors)
    }

    fn refused(&self, member: &MemberView, sectors: &Range<u64>) -> bool {
        self.refused.iter().any(|(id, ranges)| *id == member.id && ranges.overlaps(sectors))
    }

    fn found_no_space(&self, now: &ArrayView, slot: Slot, sectors: &Range<u64>) -> bool {
        now.member(slot).is_some_and(|member| self.is_without_space(member, sectors))
    }

    fn is_without_space(&self, member: &MemberView, sectors: &Range<u64>) -> bool {
        let overlaps = |range: &Range<u64>| range.start < sectors.end && sectors.start < range.end;
        self.no_space.iter().any(|(id, range)| *id == member.id && overlaps(range))
    }

    /// The data blocks that were not written and could be had when the write began.
    fn was_held(&self, now: &ArrayView, segment: &Segment) -> Places {
        let (Some(data_count), Target::Row { row, .. }) = (segment.data_count, &self.target) else {
            return Places::default();
        };
        let Geometry::Parity(map) = &*now.geometry else { return Places::default() };
        let row = map.row(*row);
        let kept = (0..data_count).filter(|place| !segment.written.has(*place));
        kept.filter(|&place| held::in_row(&self.view, map, &row, place, &segment.range)).collect()
    }

    fn segments(&self, now: &ArrayView) -> Vec<Segment> {
        match (&self.target, &*now.geometry) {
            (Target::Row { row, columns, written }, Geometry::Parity(map)) => {
                self.row_segments(now, map, &map.row(*row), columns, written)
            }
            (Target::Copies(range), geometry) => {
                let copies = copies(geometry, range.start, range.end - range.start);
                self.mirror_segments(now, range, &copies)
            }
            (Target::Row { .. } | Target::Rewrites | Target::Fills, _) => {
                unreachable!("rows are those of parity levels")
            }
        }
    }

    fn row_segments(
        &self,
        now: &ArrayView,
        map: &ParityGeometry,
        row: &Row,
        columns: &Columns,
        written: &[(Place, Columns)],
    ) -> Vec<Segment> {
        let data_count = usize::from(map.data_disks());
        let places = data_count + usize::from(map.parity_disks());
        let slots: SmallVec<[Slot; 8]> =
            (0..places).map(|place| slot_of(row, data_count, place)).collect();
        let start = row.member_sector();
        let on_member =
            |columns: &Columns| start + u64::from(columns.start)..start + u64::from(columns.end);
        let mut borders = Borders::of(on_member(columns));
        borders.add_ranges(&now.doubted, 0);
        written.iter().for_each(|(_, part)| borders.add(&on_member(part)));
        slots.iter().for_each(|slot| self.add_borders(&mut borders, now, *slot, 0));
        let segments = borders.cut().map(|range| {
            let here = |part: &Columns| {
                let part = on_member(part);
                part.start <= range.start && range.end <= part.end
            };
            let written = written.iter().filter(|(_, part)| here(part));
            Segment {
                slots: slots.iter().map(|slot| (*slot, range.clone())).collect(),
                data_count: Some(data_count),
                written: written.map(|(place, _)| *place).collect(),
                range,
            }
        });
        segments.collect()
    }

    fn mirror_segments(
        &self,
        now: &ArrayView,
        range: &Range<u64>,
        copies: &Copies,
    ) -> Vec<Segment> {
        let mut borders = Borders::of(range.clone());
        borders.add_ranges(&now.doubted, 0);
        for copy in copies {
            // What to add to a sector of the member to get the array's.
            let shift = range.start.wrapping_sub(copy.member_sector);
            self.add_borders(&mut borders, now, copy.slot, shift);
        }
        let segments = borders.cut().map(|part| {
            let there = copies.iter().map(|copy| {
                let first = copy.member_sector + (part.start - range.start);
                (copy.slot, first..first + (part.end - part.start))
            });
            Segment {
                slots: there.collect(),
                data_count: None,
                written: Places::of(0),
                range: part,
            }
        });
        segments.collect()
    }

    /// Where something about the member in a slot changes, now or when it was written.
    fn add_borders(&self, borders: &mut Borders, now: &ArrayView, slot: Slot, shift: u64) {
        let members = [now.member(slot), self.view.member(slot), now.replacement(slot)];
        for member in members.into_iter().flatten() {
            borders.add_member(member, shift);
            for (_, ranges) in self.refused.iter().filter(|(id, _)| *id == member.id) {
                borders.add_ranges(ranges, shift);
            }
            for (_, range) in self.no_space.iter().filter(|(id, _)| *id == member.id) {
                borders.add_ranges(&Ranges::of(range.clone()), shift);
            }
        }
    }
}

/// A write whose end the controller judges, while its lane waits under its claim.
pub(crate) struct Asked {
    pub(crate) ended: Ended,
    answer: Mutex<Option<Result<(), Failed>>>,
    told: Signal,
}

impl Asked {
    pub(crate) fn new(ended: Ended) -> Self {
        Self { ended, answer: Mutex::new(None), told: Signal::default() }
    }

    pub(crate) fn tell(&self, answer: Result<(), Failed>) {
        *self.answer.lock() = Some(answer);
        self.told.notify();
    }

    pub(crate) async fn answer(&self) -> Result<(), Failed> {
        self.told.until(|| self.answer.lock().take()).await
    }

    /// It failed everywhere.
    pub(crate) fn fail(&self, error: RequestError) {
        self.tell(Err(Failed::everywhere(error)));
    }
}
