//! What a window writes to members.

use std::ops::Range;

use crate::backend::{MemberId, WriteFrom};

use super::super::array_lane::{ArrayLane, MemberWrite, SECTOR_BYTES};
use super::super::view::MemberView;
use super::window::WindowError;

/// The writes of one window.
#[derive(Default)]
pub(super) struct WindowWrites<'a> {
    under_way: Vec<MemberWrite<'a>>,
    /// Those into what their members' logs list as bad.
    listed: Vec<(MemberId, Range<u64>)>,
}

impl<'a> WindowWrites<'a> {
    /// Starts a write to a member, and the same to the one that replaces it.
    pub(super) fn start(
        &mut self,
        port: &'a ArrayLane,
        member: &MemberView,
        sector: u64,
        from: WriteFrom,
    ) {
        let view = port.view();
        let slot = view.present().find(|(_, other)| other.id == member.id).map(|(slot, _)| slot);
        if let Some(replacement) = slot.and_then(|slot| view.replacement(slot)) {
            let again = from.again(&|length| port.lane.backend().allocate(length));
            self.start_on(port, replacement, sector, again);
        }
        self.start_on(port, member, sector, from);
    }

    fn start_on(&mut self, port: &'a ArrayLane, member: &MemberView, sector: u64, from: WriteFrom) {
        let range = sector..sector + (from.len() / SECTOR_BYTES) as u64;
        if member.bad.overlaps(&range) {
            self.listed.push((member.id, range));
        }
        let io = port.write_member(member, sector, from, false);
        self.under_way.push(MemberWrite { member: member.id, io });
    }

    /// Waits for all. A member that failed is reported; the controller ends this task.
    pub(super) async fn finish(self, port: &ArrayLane) -> Result<(), WindowError> {
        let finished = port.finish_writes(self.under_way).await;
        for (member, error) in &finished.failed {
            port.array.mailbox.member_failed(*member, *error);
        }
        if !finished.failed.is_empty() {
            return Err(WindowError::Failed);
        }
        if finished.no_space {
            return Err(WindowError::NoSpace);
        }
        for (member, range) in self.listed {
            port.take_off_list(member, range).await;
        }
        Ok(())
    }
}
