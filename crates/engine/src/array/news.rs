//! News about blocks of a member, told to the controller.
//!
//! Who meets it holds a claim on the range, and gives it back only when every lane and the log of the
//! member know. Else a write behind it could land and be answered, and its block be listed as bad then.

use crate::backend::MemberId;
use crate::ranges::Ranges;

use super::array_lane::ArrayLane;
use super::claims::Claim;
use super::rules::Rule;

/// What became of some blocks of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// It did not take them, or took them and cannot read them.
    Refused,
    /// It lacks them, and the other members cannot tell what belongs there. Nothing is wrong with it.
    Unfilled,
    /// It cannot read them, and the other members cannot answer for them.
    Unreadable,
}

/// How many pieces of news there were since the array started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NewsCount(u64);

impl NewsCount {
    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl ArrayLane {
    /// Tells the controller what became of blocks of a member, and waits until it has acted on it: the
    /// blocks are listed or not, durably, or the member is out, and every lane knows.
    pub(super) async fn tell(
        &self,
        _claim: &Claim<'_>,
        news: News,
        member: MemberId,
        blocks: &Ranges,
    ) {
        let count = self.array.mailbox.blocks(news, member, blocks);
        if !self.array.rules.keep(Rule::NewsIsSettledUnderClaim) {
            return;
        }
        self.array.views.settled_hearing(count).await;
    }
}
