//! Members that let reads pass their deadline: others answer for them until they do again.
//!
//! Lateness alone fails nobody. A late member takes writes as before, and those have a deadline of
//! their own that fails it.

use std::time::Duration;

use crate::backend::{MemberId, MemberIo, Patience, Scope};

use super::Controller;
use super::metadata::probe;

/// Between two questions to a member whose answer is that it does not answer.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);

impl Controller {
    /// Lanes read members that are late no more while others can answer for them.
    pub(super) fn members_late(&mut self, late: &[MemberId]) {
        let mut news = Vec::new();
        for member in self.members.iter_mut().filter(|member| late.contains(&member.id)) {
            if member.slot().is_some() && !std::mem::replace(&mut member.is_late, true) {
                news.push((member.id, member.superblock.place.sector));
            }
        }
        if !news.is_empty() {
            self.publish();
            self.array.views.settle();
        }
        for (member, sector) in news {
            self.wait_for_answer(member, sector);
        }
    }

    /// Lanes read them again.
    pub(super) fn members_answered(&mut self, answered: &[MemberId]) {
        for member in self.members.iter_mut().filter(|member| answered.contains(&member.id)) {
            member.is_late = false;
        }
        if !answered.is_empty() {
            self.publish();
            self.array.views.settle();
        }
    }

    /// Asks a member for its superblock, and says when it answers. The controller does not wait.
    fn wait_for_answer(&self, member: MemberId, sector: u64) {
        let (array, lane) = (self.array.clone(), self.lane.clone());
        self.lane.spawn(async move {
            loop {
                let io = MemberIo { member, op: probe(sector), patience: Patience::FOREVER };
                match lane.io(io).await.result {
                    Ok(()) => return array.mailbox.member_answered(member),
                    Err(error) => match error.kind.scope() {
                        Scope::Time => {}
                        Scope::Sectors => return array.mailbox.member_answered(member),
                        Scope::Space | Scope::Member | Scope::Array => {
                            return array.member_failed(member, error);
                        }
                    },
                }
                lane.sleep_until(lane.backend().now() + ASK_AGAIN_AFTER).await;
            }
        });
    }
}
