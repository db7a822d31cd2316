//! Writes that did not end well everywhere: what they come to, by what each member is now.
//!
//! A verdict is given in the step in which it is decided what to list and whom to take out. What it asks
//! to record is recorded, durably and adopted by every lane, and then it is asked again.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::backend::{IoError, IoErrorKind, MemberId};
use crate::geometry::Slot;
use crate::ranges::Ranges;
use crate::request::RequestError;

use super::super::borders::Borders;
use super::super::ended::{Asked, Ended, Failed, Judged, Lists, Target};
use super::super::mailbox::{BlockNews, Failure};
use super::super::news::News;
use super::super::outliers::Outliers;
use super::super::rules::Rule;
use super::super::verdict::Outcome;
use super::super::view::ArrayView;
use super::lost::Loss;
use super::{Controller, Member, WriteMode};

/// What verdicts ask to record.
#[derive(Default)]
struct Records {
    list: BTreeMap<MemberId, Ranges>,
    unlist: BTreeMap<MemberId, Ranges>,
    lack: BTreeMap<MemberId, Ranges>,
    torn: Torn,
    end_doubt: Ranges,
}

/// What failed writes leave half-written.
#[derive(Default)]
pub(super) struct Torn {
    /// In sectors as resync counts them.
    pub(super) doubt: Ranges,
    /// What is known of who lacks something there.
    pub(super) outliers: Outliers,
    /// Of parity rows: what was sent to each slot. None where that is not known.
    pub(super) sent: Option<BTreeMap<Slot, Ranges>>,
}

/// What writes that are not judged yet leave in doubt in two views.
pub(super) struct ComparedDoubt {
    pub(super) in_both: Ranges,
    pub(super) added: Ranges,
}

impl Controller {
    /// Judges the writes that have asked and records what that takes, until each is answered.
    pub(super) async fn judge_writes(&mut self) {
        let (mut get_shorter, mut full) = (true, Vec::<MemberId>::new());
        let mut looks_again = true;
        let listing = self.array.rules.keep(Rule::RefusedBlocksAreListed);
        while !self.asking.is_empty() {
            let writes = self.asking.clone();
            self.fail_filled(&writes).await;
            self.fail_fast(&writes).await;
            self.note_half_done(&writes).await;
            if let Some(error) = self.refuses_writes() {
                // Some members have the new bytes and some the old: nothing is computed from that.
                self.outliers = Outliers::default();
                let doubt = writes.iter().map(|write| write.ended.range()).collect();
                self.distrust(&Torn { doubt, ..Torn::default() }).await;
                return self.asking.drain(..).for_each(|write| write.fail(error));
            }
            // What is behind may have landed since one of them was needed for it.
            let before = full.len();
            if looks_again {
                full.retain(|id| !self.loses_nothing_without(&[*id]));
                looks_again = full.len() == before;
            }
            let now = self.view_now(&self.array.views.current());
            let lists = Lists { get_shorter, full: &full };
            let judge = |write: &Arc<Asked>| write.ended.judge(&now, lists);
            let (landing, judged): (Vec<_>, Vec<_>) = writes
                .into_iter()
                .map(|write| (judge(&write), write))
                .partition(|(judged, write)| self.waits_for_landing(write, judged, &now, &full));
            self.landing.extend(landing.into_iter().map(|(_, write)| write));
            let (judged, writes): (Vec<Judged>, Vec<_>) = judged.into_iter().unzip();
            let records = Records::of(&judged);
            full.extend(self.record(records).await);
            self.end_doubt_of_answered(&writes, &judged).await;
            // What was not taken off its list by now stays there.
            get_shorter = false;
            self.asking.clear();
            for (write, judged) in writes.into_iter().zip(judged) {
                match judged.outcome {
                    Outcome::Answer => write.tell(Ok(())),
                    Outcome::Record if !listing => write.tell(Ok(())),
                    Outcome::Record => self.asking.push(write),
                    // The columns beside those that failed are answered by what came of the record.
                    Outcome::Error if listing && judged.asks_to_record() => self.asking.push(write),
                    Outcome::Error if !self.array.rules.keep(Rule::WritesAreJudgedByBlocks) => {
                        write.tell(Ok(()));
                    }
                    Outcome::Error | Outcome::Broken => write.tell(Err(failed(judged))),
                }
            }
        }
    }

    /// What the writes that have ended and are not judged leave in doubt, if members are as in this view and all
    /// lists have room. Also those that have asked since, or still ask for pieces.
    pub(super) fn doubt_of_asking(&self, view: &ArrayView) -> Ranges {
        let mut doubts = Vec::new();
        let mut judge = |ended: &Ended| doubts.push(ended.judge(view, Lists::ANYTHING).doubt);
        self.asking.iter().chain(&self.landing).for_each(|write| judge(&write.ended));
        self.array.mailbox.each_not_judged(judge);
        doubts.iter().flat_map(Ranges::iter).collect()
    }

    /// What they leave in doubt in two views: in both, and in the second one alone.
    pub(super) fn compare_doubt(&self, before: &ArrayView, after: &ArrayView) -> ComparedDoubt {
        let (doubt_before, mut added) = (self.doubt_of_asking(before), self.doubt_of_asking(after));
        let in_both = doubt_before.both(&added);
        doubt_before.iter().for_each(|range| added.remove(&range));
        ComparedDoubt { in_both, added }
    }

    /// Ends the doubt of what writes that are answered have made whole, and has a resync try again where they
    /// may have made it possible. What a write lacks that was answered early is in doubt because of it.
    async fn end_doubt_of_answered(&mut self, writes: &[Arc<Asked>], judged: &[Judged]) {
        let both = writes.iter().zip(judged);
        let answered = both
            .filter(|(write, judged)| judged.outcome == Outcome::Answer && !write.ended.answered);
        let mut whole = Ranges::default();
        for (_, judged) in answered {
            judged.made_whole.iter().for_each(|range| whole.insert(range));
            judged.may_resync.iter().for_each(|range| self.unresolved.remove(&range));
        }
        self.doubt_made_whole(&whole).await;
    }

    /// Asks again about writes that wait for what is behind: something of it has landed, or they are not kept
    /// waiting by a member any more, or can be answered no more.
    pub(super) async fn judge_what_landed(&mut self) {
        let is_there = |id| self.members.iter().any(|member| member.id == id && member.is_live());
        let is_free = |write: &Arc<Asked>| write.ended.refused.iter().any(|(id, _)| !is_there(*id));
        let asks = std::mem::take(&mut self.has_landed)
            || self.refuses_writes().is_some()
            || self.landing.iter().any(is_free);
        if asks && !self.landing.is_empty() {
            self.asking.append(&mut self.landing);
            self.judge_writes().await;
        }
    }

    /// Whether a write is an error only because a member cannot list what it refused, and is not given up as long
    /// as it alone has what is behind, or another member has a write of a parity row. That lands, or fails the members
    /// that it is behind on: it is asked again then.
    fn waits_for_landing(
        &self,
        write: &Asked,
        judged: &Judged,
        now: &ArrayView,
        full: &[MemberId],
    ) -> bool {
        let is_ahead = |(id, _): &(MemberId, Ranges)| {
            full.contains(id) && matches!(self.loss_of(&[*id]), Loss::Behind(_))
        };
        // Or as long as another write is under way.
        let lacking = || write.ended.lacking().map(|(id, _)| id);
        judged.outcome == Outcome::Error
            && (lacking().any(|id| self.keeps_rest_for(id))
                || write.ended.refused.iter().any(is_ahead)
                    && write.ended.judge(now, Lists::ANYTHING).outcome < Outcome::Error)
    }

    /// A resync or a mend that wrote one block of a row and not another: those that agreed may do so no more. Its
    /// claim goes back only when no lane computes by them.
    async fn note_half_done(&mut self, writes: &[Arc<Asked>]) {
        let is_half_done = |ended: &&Ended| ended.is_rewrite() && ended.lacking().next().is_some();
        let mut rewrites = writes.iter().map(|write| &write.ended).filter(is_half_done).peekable();
        if rewrites.peek().is_none() {
            return;
        }
        let mut outliers = self.outliers.clone();
        for ended in rewrites {
            match &ended.target {
                Target::Agreement(range) => self.know_what_lacks(ended, range, &mut outliers),
                _ => self.forget_what_lacks(ended, &mut outliers),
            }
        }
        if outliers == self.outliers || !self.array.rules.keep(Rule::HalfDoneIsNotKnown) {
            return;
        }
        self.outliers = outliers;
        if !self.array.rules.keep(Rule::AllForgetWhatIsHalfDone) {
            return;
        }
        let epoch = self.publish();
        self.array.views.adopted(epoch).await;
        self.array.views.settle();
    }

    /// A row was to agree, and these members lack something of that. All others do agree.
    fn know_what_lacks(&self, ended: &Ended, range: &Range<u64>, outliers: &mut Outliers) {
        let mut borders = Borders::of(range.clone());
        ended.lacking().for_each(|(_, lacking)| borders.add(&lacking));
        borders.add_ranges(&self.doubted, 0);
        for part in borders.cut() {
            let here = |range: &Range<u64>| range.start < part.end && part.start < range.end;
            let lacking = ended.lacking().filter(|(_, range)| here(range));
            let slots: Vec<Option<Slot>> = lacking.map(|(id, _)| self.slot_of(id)).collect();
            if slots.is_empty() {
                continue;
            }
            match slots.into_iter().collect() {
                Some(slots) if self.doubted.overlaps(&part) => outliers.insert(part, slots),
                _ => outliers.forget(&part),
            }
        }
    }

    /// One block of a row was written, and others may need another one. What is being filled is none of those. Where
    /// only an outlier lacks it again, all others still agree.
    fn forget_what_lacks(&self, ended: &Ended, outliers: &mut Outliers) {
        for (id, range) in ended.lacking() {
            let lacks_again =
                self.slot_of(id).is_some_and(|slot| outliers.names(slot, &range, &self.doubted));
            if !lacks_again {
                outliers.forget(&range);
            }
        }
    }

    /// Where a member is read or written.
    fn slot_of(&self, id: MemberId) -> Option<Slot> {
        self.members.iter().find(|member| member.id == id).and_then(Member::slot)
    }

    /// Why a write cannot be answered, whatever became of it: what it needs is not recorded any more.
    fn refuses_writes(&self) -> Option<RequestError> {
        match self.mode {
            WriteMode::Clean | WriteMode::Closing | WriteMode::Open => None,
            WriteMode::ReadOnly => Some(RequestError::ReadOnly),
            WriteMode::Broken => Some(RequestError::Lost),
            WriteMode::Stopped => Some(RequestError::Stopped),
        }
    }

    /// Gives the members that could not list what they lack, and that are not given up for it.
    async fn record(&mut self, records: Records) -> Vec<MemberId> {
        let Records { list, unlist, lack, torn, end_doubt } = records;
        if !end_doubt.is_empty() {
            self.doubt_resolved(&end_doubt).await;
        }
        // Before a list is changed: nothing is computed from a row of which a part was refused.
        if !torn.doubt.is_empty() {
            self.distrust(&torn).await;
        }
        let mut full = Vec::new();
        if unlist.is_empty() && lack.is_empty() && list.is_empty() {
            return full;
        }
        // What stays listed there may be why no other list is to get longer: the write is judged again.
        if !unlist.is_empty() {
            self.blocks_written(&news(unlist)).await;
            self.publish();
            self.array.views.settle();
            return full;
        }
        full.extend(self.blocks_failed(&news(lack), News::Unfilled).await);
        if self.array.rules.keep(Rule::RefusedBlocksAreListed) {
            full.extend(self.blocks_failed(&news(list), News::Refused).await);
        }
        // A lane that still goes by the longer list only reads less.
        self.publish();
        self.array.views.settle();
        full
    }

    /// A member that is only being filled fails where a write finds no space behind it, and a replacement also
    /// for what it refuses: the others have what it lacks. By what it is now: it may have taken over since. But
    /// none goes that alone gives a block where it is filled.
    async fn fail_filled(&mut self, writes: &[Arc<Asked>]) {
        let is = |this: &Self, id: MemberId, what: fn(&Member) -> bool| {
            this.members.iter().any(|member| member.id == id && what(member))
        };
        let failed = |member, kind| {
            let error = IoError { kind, errno: 0 };
            Failure { member, error, if_borne: false }
        };
        let mut failures: Vec<Failure> = Vec::new();
        for ended in writes.iter().map(|write| &write.ended) {
            let without = ended.no_space.iter().filter(|_| !ended.fills_members());
            for (id, _) in without {
                if !is(self, *id, |member| member.filled_to().is_some()) {
                    continue;
                }
                let others = failures.iter().map(|failure| failure.member);
                let with_it: Vec<MemberId> = others.chain([*id]).collect();
                // No verdict speaks of what a replacement lacks: it goes, whatever it has.
                let gives_none = |this: &Self| !matches!(this.loss_of(&with_it), Loss::Sectors(_));
                let goes = is(self, *id, Member::replaces)
                    || self.may_go_at_rest(&with_it, gives_none).await;
                if goes {
                    failures.push(failed(*id, IoErrorKind::NoSpace));
                }
            }
            let refused = ended.refused.iter().filter(|(id, _)| is(self, *id, Member::replaces));
            failures.extend(refused.map(|(id, _)| failed(*id, IoErrorKind::Medium)));
        }
        if !failures.is_empty() {
            self.members_failed(&failures).await;
        }
    }

    /// A member that is to fail fast fails for what it refused, if every block is held without it.
    async fn fail_fast(&mut self, writes: &[Arc<Asked>]) {
        let is_fast = |id: MemberId| {
            let fast = |member: &Member| member.is_written() && member.superblock.flags.fail_fast();
            self.members.iter().any(|member| member.id == id && fast(member))
        };
        let refused = writes.iter().flat_map(|write| write.ended.refused.iter().map(|(id, _)| *id));
        let error = IoError { kind: IoErrorKind::Medium, errno: 0 };
        let failed = |member| Failure { member, error, if_borne: true };
        let failures: Vec<Failure> = refused.filter(|id| is_fast(*id)).map(failed).collect();
        if !failures.is_empty() {
            self.members_failed(&failures).await;
        }
    }
}

impl Records {
    fn of(judged: &[Judged]) -> Self {
        let mut records = Self::default();
        for Judged { list, unlist, lack, doubt, sent, outliers, end_doubt, .. } in judged {
            add(&mut records.list, list);
            add(&mut records.unlist, unlist);
            add(&mut records.lack, lack);
            doubt.iter().for_each(|range| records.torn.doubt.insert(range));
            add(records.torn.sent.get_or_insert_default(), sent);
            for (range, slots) in outliers.iter() {
                records.torn.outliers.insert(range.clone(), slots.clone());
            }
            end_doubt.iter().for_each(|range| records.end_doubt.insert(range));
        }
        records
    }
}

fn add<K: Copy + Ord>(all: &mut BTreeMap<K, Ranges>, news: &[(K, Range<u64>)]) {
    for (key, range) in news {
        all.entry(*key).or_default().insert(range.clone());
    }
}

fn news(all: BTreeMap<MemberId, Ranges>) -> Vec<BlockNews> {
    all.into_iter().map(|(member, ranges)| BlockNews { member, ranges }).collect()
}

fn failed(judged: Judged) -> Failed {
    let error = if judged.only_no_space { RequestError::NoSpace } else { RequestError::Lost };
    Failed { error, columns: judged.doubt }
}
