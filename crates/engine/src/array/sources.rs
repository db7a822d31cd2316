//! Members that were read for what is about to be written to others.
//!
//! A drive that resets loses what it was not told to flush. It gives the blocks that were there before, and says so at
//! its next flush. What is copied or computed from those must not come to another member: when the one that has reset
//! is out, the others are all that is left. So its flush comes between: it shows that what the member gave is there
//! for good.
//!
//! What fills a member is written without that: it is taken back when a member goes that it came from. And users'
//! writes do not wait for it.

use smallvec::SmallVec;

use crate::backend::{IoError, MemberId};

use super::array_lane::{ArrayLane, UnderWay};
use super::flushes::{self, Flush};
use super::rules::Rule;
use super::view::WriteMode;

/// Members that gave something.
pub(super) type Sources = SmallVec<[MemberId; 8]>;

/// That what was read of members, for something that is to be written to others, is there for good.
pub(super) struct Lasting(());

impl ArrayLane {
    /// Flushes members that were read, under the claim that they were read under. None where one has failed, or does so
    /// now: the array does without it by then, or is broken.
    pub(super) async fn make_last(&self, sources: &Sources) -> Option<Lasting> {
        if !self.array.rules.keep(Rule::SourcesAreFlushed) {
            return Some(Lasting(()));
        }
        let view = self.view();
        let is_there = |id: &MemberId| view.present().any(|(_, member)| member.id == *id);
        if !sources.iter().all(is_there) {
            return None;
        }
        // Until it is known that one has failed the array is not marked clean, nor stopped with it.
        let _under_way = UnderWay::begin(self);
        let patience = self.array.settings.write_patience();
        let flush = |member: &MemberId| Flush::new(&self.array, &self.lane, *member, patience);
        let mut failed: SmallVec<[(MemberId, IoError); 1]> = SmallVec::new();
        flushes::all_of(sources.iter().map(flush).collect(), |member, error| {
            failed.push((member, error));
            self.array.mailbox.member_failed(member, error);
        })
        .await;
        if failed.is_empty() {
            return Some(Lasting(()));
        }
        self.do_without(&view, &failed).await;
        None
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
