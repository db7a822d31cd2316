//! How a write ended on every member, as a plain value, and what it comes to in a view.
//!
//! A lane that got what it wanted from every member answers by its own view. Otherwise it sends this to
//! the controller, which judges by what each member is when it decides what to record, and again when
//! that is recorded.

mod judging;
mod segment;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::backend::{IoError, MemberId};
use crate::geometry::{Geometry, Slot};
use crate::ranges::Ranges;
use crate::request::RequestError;
use crate::signal::Signal;
use crate::sync::Mutex;

use super::claims::Columns;
use super::outliers::Outliers;
use super::plan::Place;
use super::verdict::Outcome;
use super::view::{ArrayView, MemberView};
use judging::Judging;

/// What was written, wherever it was to go.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// A range of the array inside one region of a mirror: all copies.
    Copies(Range<u64>),
    /// Columns of a parity row: all of parity, and the parts of data blocks that users wrote.
    Row { row: u64, columns: Columns, written: SmallVec<[(Place, Columns); 2]> },
    /// What members hold already, or hold wrong: nothing is lost if it fails.
    Rewrites,
    /// The same of all in these columns of a row in doubt that did not agree. They are of one time then without what
    /// lacks it.
    Agreement(Range<u64>),
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
    /// For what is no user's: what went well and is listed as bad.
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
    /// Of rows among them: the blocks that were sent. All others are as they were.
    pub(crate) sent: Vec<(Slot, Range<u64>)>,
    /// Of rows among them: the slots that lack it. All others are of one time.
    pub(crate) outliers: Outliers,
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

    /// Whether it wrote again what members hold already, or hold wrong.
    pub(crate) fn is_rewrite(&self) -> bool {
        matches!(self.target, Target::Rewrites | Target::Agreement(_))
    }

    /// What members that answer otherwise did not take.
    pub(crate) fn lacking(&self) -> impl Iterator<Item = (MemberId, Range<u64>)> {
        let refused = self.refused.iter().flat_map(|(id, all)| all.iter().map(|at| (*id, at)));
        refused.chain(self.no_space.iter().cloned())
    }

    /// The sectors that it is about, as resync counts.
    pub(crate) fn range(&self) -> Range<u64> {
        match (&self.target, &*self.view.geometry) {
            (Target::Copies(range), _) => range.clone(),
            (Target::Row { row, columns, .. }, Geometry::Parity(map)) => {
                map.row(*row).member_sectors(columns)
            }
            (Target::Row { .. }, _) => 0..0,
            (Target::Rewrites | Target::Agreement(_) | Target::Fills, _) => 0..0,
        }
    }

    /// What it comes to in a view.
    pub(crate) fn judge(&self, now: &ArrayView, lists: Lists<'_>) -> Judged {
        let mut judged = Judged { only_no_space: true, ..Judged::default() };
        if self.is_rewrite() || self.fills_members() {
            self.judge_rewrites(now, lists, &mut judged);
            return judged;
        }
        let lists = Lists { get_shorter: lists.get_shorter && self.heals, ..lists };
        let mut judging = Judging { ended: self, now, lists, judged };
        self.segments(now).iter().for_each(|segment| judging.judge(segment));
        judging.judged
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

    /// Whether some member of a view gives each block that was written to copies.
    pub(crate) fn is_held(&self, now: &ArrayView) -> bool {
        let gives = |(slot, sectors): &(Slot, Range<u64>)| {
            now.member(*slot).is_some_and(|member| {
                self.was_in(*slot, member)
                    && self.lacks_nothing(member, sectors)
                    && member.can_wait_for(sectors.start, sectors.end - sectors.start)
            })
        };
        self.segments(now).iter().all(|segment| segment.slots.iter().any(gives))
    }

    /// Whether the write was sent to this member.
    fn was_in(&self, slot: Slot, member: &MemberView) -> bool {
        self.view.writers(slot).any(|other| other.id == member.id)
    }

    /// Whether nothing of these sectors failed on a member.
    fn lacks_nothing(&self, member: &MemberView, sectors: &Range<u64>) -> bool {
        !self.has_failed(member)
            && !self.refused(member, sectors)
            && !self.is_without_space(member, sectors)
    }

    fn has_failed(&self, member: &MemberView) -> bool {
        self.failed.iter().any(|(id, _)| *id == member.id)
    }

    fn refused(&self, member: &MemberView, sectors: &Range<u64>) -> bool {
        self.refused.iter().any(|(id, ranges)| *id == member.id && ranges.overlaps(sectors))
    }

    fn is_without_space(&self, member: &MemberView, sectors: &Range<u64>) -> bool {
        let overlaps = |range: &Range<u64>| range.start < sectors.end && sectors.start < range.end;
        self.no_space.iter().any(|(id, range)| *id == member.id && overlaps(range))
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
