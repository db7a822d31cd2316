//! Members that were read for what is about to be written to others.
//!
//! A drive that resets loses what it was not told to flush. It gives the blocks that were there before, and says so at
//! its next flush. What is copied or computed from those must not come to another member: when the one that has reset
//! is out, the others are all that is left. So its flush comes between: it shows that what the member gave is there
//! for good.
//!
//! What fills a member is written without that: it is taken back when a member goes that it came from. And users'
//! writes do not wait for it.

use std::ops::Range;

use smallvec::SmallVec;

use crate::backend::{IoError, MemberId};

use super::array_lane::{ArrayLane, UnderWay};
use super::flushes::{self, Flush};
use super::rules::Rule;
use super::view::{ArrayView, MemberView, WriteMode};

/// What was read of members.
#[derive(Clone, Debug, Default)]
pub(super) struct Sources(SmallVec<[Source; 8]>);

/// What one of them gave: sectors of its data.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Source {
    member: MemberId,
    sectors: Range<u64>,
}

impl Sources {
    pub(super) fn of(member: MemberId, sectors: Range<u64>) -> Self {
        Self([Source { member, sectors }].into_iter().collect())
    }

    pub(super) fn add(&mut self, other: Self) {
        for source in other.0 {
            if !self.0.contains(&source) {
                self.0.push(source);
            }
        }
    }

    /// Whether their members still give it. One that went out since, or that is to be filled anew there, may have given
    /// what was there before a write that the others have.
    pub(super) fn are_still_given(&self, view: &ArrayView) -> bool {
        let gives = |source: &Source, member: &MemberView| {
            let Range { start, end } = source.sectors;
            member.id == source.member && member.can_wait_for(start, end - start)
        };
        self.0.iter().all(|source| view.present().any(|(_, member)| gives(source, member)))
    }

    /// Whose flush shows that what they gave is there for good. What a member was filled with since its last flush came
    /// from any of the others.
    fn to_flush(&self, view: &ArrayView) -> SmallVec<[MemberId; 8]> {
        let is_source = |member: &MemberView| self.0.iter().any(|it| it.member == member.id);
        let present = || view.present().map(|(_, member)| member);
        let any_is_filled =
            present().any(|member| is_source(member) && member.filled_sectors < u64::MAX);
        present().filter(|it| any_is_filled || is_source(it)).map(|member| member.id).collect()
    }
}

impl FromIterator<(MemberId, Range<u64>)> for Sources {
    fn from_iter<I: IntoIterator<Item = (MemberId, Range<u64>)>>(sources: I) -> Self {
        let sources = sources.into_iter();
        Self(sources.map(|(member, sectors)| Source { member, sectors }).collect())
    }
}

/// That what was read of members, for something that is to be written to others, is there for good.
pub(super) struct Lasting(());

impl ArrayLane {
    /// Whether what was read of members counts still, no part of it read under an older view than that of this `epoch`.
    /// Else it is read again: what one of them has does not count any more.
    pub(super) fn still_counts(&self, sources: &Sources, epoch: u64) -> bool {
        self.counts_under(epoch)
            && self.are_believed(sources)
            && self.with_view(|now| now.epoch == epoch || sources.are_still_given(now))
    }

    /// Whether each of these members is believed: no flush has told that it may have lost what it was given, and it has
    /// not failed.
    pub(super) fn are_believed(&self, sources: &Sources) -> bool {
        !sources.0.iter().any(|source| self.distrusts(source.member))
    }

    /// Flushes members that were read, under the claim that they were read under. None where the array breaks, or where
    /// one of them does not give any more what it gave.
    pub(super) async fn make_last(&self, sources: &Sources) -> Option<Lasting> {
        if !self.array.rules.keep(Rule::SourcesAreFlushed) {
            return Some(Lasting(()));
        }
        let view = self.view();
        if !sources.are_still_given(&view) {
            return None;
        }
        // Until it is known that one has failed the array is not marked clean, nor stopped with it.
        let _under_way = UnderWay::begin(self);
        let patience = self.array.settings.write_patience();
        let flush = |member| Flush::new(&self.array, &self.lane, member, patience);
        let mut failed: SmallVec<[(MemberId, IoError); 1]> = SmallVec::new();
        let flushed = sources.to_flush(&view).into_iter().map(flush).collect();
        flushes::all_of(flushed, |member, error| {
            failed.push((member, error));
            self.array.member_failed(member, error);
        })
        .await;
        // What came from a member that failed is taken back with it: the others are asked.
        let are_out = failed.is_empty() || self.do_without(&view, &failed).await;
        let last = are_out
            && self.are_believed(sources)
            && self.with_view(|now| sources.are_still_given(now));
        last.then_some(Lasting(()))
    }

    /// The same for a window of a resync. All members are flushed before it begins, and when the array is marked clean:
    /// where that still stands no write has come since.
    pub(super) async fn make_last_for_resync(&self, sources: &Sources) -> Option<Lasting> {
        match self.array.views.current().mode {
            WriteMode::Clean => Some(Lasting(())),
            _ => self.make_last(sources).await,
        }
    }
}
