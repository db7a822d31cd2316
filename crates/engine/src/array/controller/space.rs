//! Members behind which writes find no space.

use std::time::Duration;

use crate::backend::MemberId;

use super::{Controller, Member};

/// So long after the last write that found no space a member counts as without it.
const COUNTS_FOR: Duration = Duration::from_secs(60);

impl Controller {
    /// Writes found no space behind these members.
    pub(super) fn members_without_space(&mut self, without: &[MemberId]) {
        let now = self.lane.backend().now();
        for member in self.members.iter_mut().filter(|member| without.contains(&member.id)) {
            member.without_space = Some(now);
        }
    }

    pub(super) fn lacks_space(&self, member: &Member) -> bool {
        let now = self.lane.backend().now();
        member.without_space.is_some_and(|last| now.since(last) < COUNTS_FOR)
    }
}
