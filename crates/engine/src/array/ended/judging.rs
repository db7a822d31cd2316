//! What a write comes to in a view, segment by segment.

use std::ops::Range;

use smallvec::SmallVec;

use crate::geometry::{Geometry, Slot};

use super::super::held;
use super::super::outliers::Slots;
use super::super::plan::Places;
use super::super::rules::{Rule, keep};
use super::super::verdict::{Column, Outcome, SlotEnd, Verdict};
use super::super::view::{ArrayView, MemberView};
use super::segment::Segment;
use super::{Ended, Judged, Lists, Target};

/// A write that is judged in a view, by what members' lists can take.
pub(super) struct Judging<'a> {
    pub(super) ended: &'a Ended,
    pub(super) now: &'a ArrayView,
    pub(super) lists: Lists<'a>,
    pub(super) judged: Judged,
}

/// What is known of the slots of a segment, by place.
struct Found {
    ends: SmallVec<[SlotEnd; 8]>,
    /// As if there had been room behind every member.
    with_room: SmallVec<[SlotEnd; 8]>,
    /// A member lacks it for want of space.
    lacks_space: bool,
    /// One that is being filled does. Of that no list is made.
    lacks_space_to_fill: bool,
    /// A member refused it, and its list has no room to say so.
    lacks_list: bool,
}

impl Found {
    /// Whether the row gives a block of a member that is out, or has not got it yet. It would not if it were torn.
    fn needs_a_whole_row(&self, segment: &Segment) -> bool {
        let is_needed = |end: &SlotEnd| {
            use SlotEnd::{Bad, Gone, Hidden, Out, Unfilled};
            matches!(end, Gone | Out | Bad | Hidden | Unfilled)
        };
        segment.data_count.is_some() && !self.lacks_space_to_fill && self.ends.iter().any(is_needed)
    }
}

impl Judging<'_> {
    pub(super) fn judge(&mut self, segment: &Segment) {
        let found = self.find(segment);
        let column = Column {
            ends: &found.ends,
            data_count: segment.data_count,
            written: segment.written,
            was_held: self.was_held(segment),
            in_doubt: self.now.doubted.overlaps(&segment.range),
            parity_right: true,
        };
        let verdict = column.verdict();
        // Nothing is wrong with a member behind which there is no room, nor with one that stays because it
        // alone gives other blocks. No list names what they lack: the write fails. Unless that would cost a
        // block beside it.
        let fails_for_it = found.lacks_space && !found.needs_a_whole_row(segment);
        let outcome = match fails_for_it || found.lacks_list {
            true => verdict.outcome.max(Outcome::Error),
            false => verdict.outcome,
        };
        let with_room = Column { ends: &found.with_room, ..column }.verdict();
        self.judged.only_no_space &= !found.lacks_list && !fails(with_room.outcome);
        self.judged.outcome = self.judged.outcome.max(outcome);
        self.tell_of_doubt(segment, &verdict, outcome);
        if fails(outcome) && segment.data_count.is_some() {
            let places = segment.slots.iter().enumerate();
            let sent = places.filter(|(place, _)| segment.is_sent(*place));
            self.judged.sent.extend(sent.map(|(_, block)| block.clone()));
        }
        if outcome == Outcome::Error && segment.data_count.is_some() {
            let outliers = self.outliers(segment);
            self.judged.outliers.insert(segment.range.clone(), outliers);
        }
        if self.lists.get_shorter {
            self.take_off_lists_of_filled(segment);
        }
        self.tell_of_lists(segment, &found.ends, outcome == Outcome::Record);
    }

    fn find(&self, segment: &Segment) -> Found {
        let (mut ends, mut with_room) = (SmallVec::new(), SmallVec::new());
        let (mut lacks_space, mut lacks_list, mut lacks_space_to_fill) = (false, false, false);
        for (place, (slot, sectors)) in segment.slots.iter().enumerate() {
            let end = self.end_of(*slot, sectors, segment.is_sent(place));
            let member = self.now.member(*slot);
            let had_no_room = !self.ended.answered
                && member.is_some_and(|member| self.ended.is_without_space(member, sectors));
            // A member that is being filled stays if it alone gives other blocks. No sync task fills it here again.
            lacks_space |= had_no_room && matches!(end, SlotEnd::Refused | SlotEnd::Unfilled);
            lacks_space_to_fill |= had_no_room && end == SlotEnd::Unfilled;
            lacks_list |= member.is_some_and(|member| {
                let refused = || self.ended.refused(member, sectors);
                let lacks = end == SlotEnd::Refused || end == SlotEnd::Unfilled && refused();
                lacks && self.is_full(member)
            });
            ends.push(end);
            with_room.push(if had_no_room && end == SlotEnd::Refused {
                SlotEnd::Took
            } else {
                end
            });
        }
        Found { ends, with_room, lacks_space, lacks_space_to_fill, lacks_list }
    }

    /// What is known of the member that is in `slot` now, for sectors that are all alike.
    fn end_of(&self, slot: Slot, sectors: &Range<u64>, is_sent: bool) -> SlotEnd {
        let Some(member) = self.now.member(slot) else { return SlotEnd::Out };
        if self.ended.has_failed(member) {
            return SlotEnd::Gone;
        }
        if !held::is_on_record(member, sectors) {
            return SlotEnd::Unfilled;
        }
        let listed = member.bad.overlaps(sectors);
        let was_there = || self.ended.was_in(slot, member);
        let took = || was_there() && self.ended.lacks_nothing(member, sectors);
        match (listed, is_sent) {
            (false, false) => SlotEnd::Kept,
            (true, false)
                if member.bad_in_memory.overlaps(sectors) && keep(Rule::HiddenIsWrittenFirst) =>
            {
                SlotEnd::Hidden
            }
            (true, false) => SlotEnd::Bad,
            (false, true) if took() => SlotEnd::Took,
            (false, true) => SlotEnd::Refused,
            (true, true) if self.lists.get_shorter && took() => SlotEnd::Healed,
            // Only memory keeps it from being read.
            (true, true) if !took() && member.bad_in_memory.overlaps(sectors) => SlotEnd::Refused,
            (true, true) => SlotEnd::Bad,
        }
    }

    /// Whether its list has no room, and it stays.
    fn is_full(&self, member: &MemberView) -> bool {
        self.lists.full.contains(&member.id)
    }

    /// The data blocks that were not written and could be had when the write began.
    fn was_held(&self, segment: &Segment) -> Places {
        let (Some(data_count), Target::Row { row, .. }) = (segment.data_count, &self.ended.target)
        else {
            return Places::default();
        };
        let Geometry::Parity(map) = &*self.now.geometry else { return Places::default() };
        let (row, view) = (map.row(*row), &self.ended.view);
        let kept = (0..data_count).filter(|place| !segment.written.has(*place));
        kept.filter(|&place| held::in_row(view, map, &row, place, &segment.range)).collect()
    }

    /// The slots of a row whose members are there and lack what they were sent. Parity was sent to fit what all
    /// others have: in doubt it is made of their blocks, else it did before.
    fn outliers(&self, segment: &Segment) -> Slots {
        let slots = segment.slots.iter().enumerate().filter(|(place, (slot, sectors))| {
            let member = self.now.member(*slot);
            segment.is_sent(*place)
                && member.is_some_and(|member| !self.ended.lacks_nothing(member, sectors))
        });
        slots.map(|(_, (slot, _))| *slot).collect()
    }

    fn tell_of_doubt(&mut self, segment: &Segment, verdict: &Verdict, outcome: Outcome) {
        let (range, judged) = (&segment.range, &mut self.judged);
        if fails(outcome) {
            judged.doubt.insert(range.clone());
            return;
        }
        if verdict.end_doubt {
            judged.end_doubt.insert(range.clone());
        } else if verdict.may_end_doubt {
            judged.made_whole.insert(range.clone());
        }
        if self.now.unresolved.overlaps(range) {
            judged.may_resync.insert(range.clone());
        }
    }

    /// A member that is being filled is listed where its bytes could not be had. It has them now, and
    /// recovery goes round what is listed. Of a replacement no verdict speaks, whatever is on its record: it
    /// would take over without what users wrote there.
    fn take_off_lists_of_filled(&mut self, segment: &Segment) {
        for (place, (slot, sectors)) in segment.slots.iter().enumerate() {
            let in_slot = self.now.member(*slot);
            let in_slot = in_slot.filter(|member| !held::is_on_record(member, sectors));
            let filled = in_slot.into_iter().chain(self.now.replacement(*slot));
            for member in filled.filter(|member| member.bad.overlaps(sectors)) {
                let took =
                    self.ended.was_in(*slot, member) && self.ended.lacks_nothing(member, sectors);
                if segment.is_sent(place) && took {
                    self.judged.unlist.push((member.id, sectors.clone()));
                    self.judged.outcome = self.judged.outcome.max(Outcome::Record);
                }
            }
        }
    }

    /// What is to be listed, and what is not any more. `records`: the write is answered for it.
    fn tell_of_lists(&mut self, segment: &Segment, ends: &[SlotEnd], records: bool) {
        let (ended, answered) = (self.ended, self.ended.answered);
        for ((slot, sectors), end) in segment.slots.iter().zip(ends) {
            let Some(member) = self.now.member(*slot) else { continue };
            let has_room = !self.is_full(member);
            let judged = &mut self.judged;
            let news = (member.id, sectors.clone());
            match end {
                SlotEnd::Refused
                    if (answered || records) && ended.is_without_space(member, sectors) =>
                {
                    judged.lack.extend(has_room.then_some(news));
                    // A resync writes it when there is room.
                    if answered {
                        judged.doubt.insert(segment.range.clone());
                    }
                }
                // The member stays: it is filled again here.
                SlotEnd::Unfilled if answered && ended.is_without_space(member, sectors) => {
                    judged.doubt.insert(segment.range.clone());
                }
                SlotEnd::Refused if records || answered && has_room => judged.list.push(news),
                SlotEnd::Healed if records => judged.unlist.push(news),
                // It loses nothing by that, and recovery goes round it.
                SlotEnd::Unfilled
                    if ended.refused(member, sectors)
                        && !member.bad.overlaps(sectors)
                        && has_room =>
                {
                    judged.list.push(news);
                    judged.outcome = judged.outcome.max(Outcome::Record);
                }
                _ => {}
            }
        }
    }
}

fn fails(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Error | Outcome::Broken)
}
