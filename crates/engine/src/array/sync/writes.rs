//! What a window writes to members.

use crate::backend::WriteFrom;
use crate::request::RequestError;

use super::super::array_lane::ArrayLane;
use super::super::ended::{Failed, Target};
use super::super::member_writes::{Landed, MemberWrites};
use super::super::view::MemberView;
use super::window::WindowError;

/// The writes of one window.
#[derive(Default)]
pub(super) struct WindowWrites<'a>(Option<MemberWrites<'a>>);

impl<'a> WindowWrites<'a> {
    /// Starts a write to a member, and the same to the one that replaces it.
    pub(super) fn start(
        &mut self,
        port: &'a ArrayLane,
        member: &MemberView,
        sector: u64,
        from: WriteFrom,
    ) {
        let writes = self.0.get_or_insert_with(|| MemberWrites::new(port, false));
        writes.start_on_member(member, sector, from);
    }

    /// Waits for all. A member that failed ends this task, as the controller will say. `target` says whether
    /// members are filled.
    pub(super) async fn finish(self, port: &ArrayLane, target: Target) -> Result<(), WindowError> {
        let Some(writes) = self.0 else { return Ok(()) };
        let ended = writes.finish(|| target, |_, buffer| port.recycle(Some(buffer)));
        match ended.await {
            Ok(Landed::Whole | Landed::Listed) => Ok(()),
            Err(Failed { error: RequestError::NoSpace, .. }) => Err(WindowError::NoSpace),
            Ok(Landed::Without) | Err(_) => Err(WindowError::Failed),
        }
    }
}
