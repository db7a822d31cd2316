//! What a window writes to members.

use std::ops::Range;
use std::rc::Rc;

use crate::backend::WriteFrom;
use crate::geometry::Slot;
use crate::memory::Buffer;
use crate::request::RequestError;

use super::super::array_lane::{ArrayLane, byte_range};
use super::super::ended::{Failed, Target};
use super::super::member_writes::{Landed, MemberWrites};
use super::super::sources::{Lasting, Sources};
use super::super::view::{ArrayView, MemberView};
use super::window::{SyncKind, WindowError};

/// The writes of one window.
pub(super) struct WindowWrites<'a> {
    target: Target,
    /// None before the first of them.
    writes: Option<MemberWrites<'a>>,
}

impl<'a> WindowWrites<'a> {
    /// Of a window that makes members agree. What it writes comes from members whose blocks will last.
    pub(super) fn that_make_right(_: &Lasting) -> Self {
        Self { target: Target::Rewrites, writes: None }
    }

    /// Of a window that fills members.
    pub(super) fn that_fill() -> Self {
        Self { target: Target::Fills, writes: None }
    }

    /// Starts a write to a member, and the same to the one that replaces it.
    pub(super) fn start(
        &mut self,
        port: &'a ArrayLane,
        member: &MemberView,
        sector: u64,
        from: WriteFrom,
    ) {
        let begin = || match self.target {
            Target::Fills => MemberWrites::that_fill(port),
            _ => MemberWrites::new(port, false),
        };
        let writes = self.writes.get_or_insert_with(begin);
        writes.start_on_member(member, sector, from);
    }

    /// Starts to write what the member in a slot lacks of a window. What it has stays: what the others give by now may
    /// be older, for one of them may have lost what it was not told to flush.
    pub(super) fn fill(
        &mut self,
        port: &'a ArrayLane,
        view: &ArrayView,
        slot: Slot,
        (window, block): (&Range<u64>, &Rc<Buffer>),
    ) {
        let Some(member) = view.member(slot) else { return };
        for part in view.lacking(member, window).iter() {
            let bytes = byte_range(part.start - window.start, part.end - part.start);
            self.start(port, member, part.start, WriteFrom::Shared(block.clone(), bytes));
        }
    }

    /// What it makes right are all blocks of rows in doubt in these sectors: what lacks some of it is what they lack.
    pub(super) fn makes_all_agree(&mut self, sectors: Range<u64>) {
        self.target = Target::Agreement(sectors);
    }

    /// Waits for all. A member that failed ends this task, as the controller will say.
    pub(super) async fn finish(self, port: &ArrayLane) -> Result<(), WindowError> {
        let Self { target, writes: Some(writes) } = self else { return Ok(()) };
        let ended = writes.finish(|| target, |_, buffer| port.recycle(Some(buffer)));
        match ended.await {
            Ok(Landed::Whole | Landed::Listed) => Ok(()),
            Err(Failed { error: RequestError::NoSpace, .. }) => Err(WindowError::NoSpace),
            Ok(Landed::Without) | Err(_) => Err(WindowError::Failed),
        }
    }
}

/// Flushes the members that a window has read, before it writes by that. Where it would be read otherwise by now, the
/// window is done again.
pub(super) async fn make_last(
    port: &ArrayLane,
    kind: &SyncKind,
    sources: &Sources,
) -> Result<Lasting, WindowError> {
    let lasting = match kind {
        SyncKind::Resync => port.make_last_for_resync(sources).await,
        _ => port.make_last(sources).await,
    };
    lasting.ok_or_else(|| match port.with_view(|now| sources.are_still_given(now)) {
        true => WindowError::Failed,
        false => WindowError::Outdated,
    })
}
